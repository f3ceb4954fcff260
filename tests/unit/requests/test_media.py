"""Equal pictures are equal, however they are sent; nothing else is."""

from __future__ import annotations

import base64
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.blocks import sequence_hashes
from picker.prompts import prompt_of
from picker.requests.ask import Api, Ask, TokenIds
from picker.requests.media import identity, words

DATA = base64.b64encode(b"a picture").decode()
URL = f"data:image/png;base64,{DATA}"

PICTURE: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": URL}},
    {"type": "image_url", "image_url": URL},
    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
    {"type": "image_url", "image_url": {"url": f"DATA:image/jpeg;base64,{DATA}"}},
    {"type": "input_image", "image_url": URL, "detail": "auto"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    {"type": "image", "source": {"type": "base64", "data": DATA}, "cache_control": {"type": "ephemeral"}},
]
OTHERS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
    {"type": "image_url", "image_url": {"url": URL}, "uuid": "mine"},
    {"type": "image_url", "image_url": None, "uuid": "yours"},
    {"type": "input_image", "file_id": "file_1"},
    {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    {"type": "video_url", "video_url": {"url": URL}},
    {"type": "file", "file": {"file_data": DATA}},
    {"type": "document", "source": {"type": "text", "data": "words"}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
    {"type": "image"},
    {"type": "something", "url": URL},
    {"type": ["image"]},
]


def test_one_picture_is_itself_in_every_dress() -> None:
    assert len({identity(part) for part in PICTURE}) == 1


def test_a_uuid_stands_for_the_data_wherever_it_is_given() -> None:
    given: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": URL}, "uuid": "mine"},
        {"type": "image_url", "image_url": {"url": "https://example.org/other.png"}, "uuid": "mine"},
        {"type": "image_url", "image_url": {"url": URL, "uuid": "mine"}},
        {"type": "image_url", "image_url": None, "uuid": "mine"},
        {"type": "image_url", "image_url": URL, "uuid": "mine"},
    ]
    assert len({identity(part) for part in given}) == 1


def test_other_media_are_others() -> None:
    parts = [PICTURE[0], *OTHERS]
    assert len({identity(part) for part in parts}) == len(parts)


@given(st.dictionaries(st.text(max_size=5) | st.sampled_from(["type", "source", "image_url", "uuid", "url"]),
       st.recursive(st.none() | st.text(max_size=5) | st.integers(0, 9) | st.sampled_from(["image", "file"]),
                    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
                    max_leaves=4)))  # fmt: skip
def test_any_part_has_an_identity(part: dict[str, Any]) -> None:
    assert len(identity(part)) == 16
    assert identity(part) == identity(dict(part))
    assert len(words(identity(part))) == 512


def test_a_part_nested_too_deep_has_one_too() -> None:
    deep: Any = "x"
    for _ in range(600):
        deep = [deep]
    assert len(identity({"type": "odd", "x": deep})) == 16


# hashes

TOKENS = st.lists(st.integers(0, 9), max_size=30).map(lambda ids: array("I", ids))


def ask(**given: Any) -> Ask:
    return Ask(api=Api.CHAT, **given)


def told(known: Any, behind: Any) -> TokenIds:
    return TokenIds((array("I", known),), complete=False, behind=array("I", behind))


@given(known=TOKENS, behind=TOKENS, more=TOKENS, size=st.integers(1, 5))
def test_a_longer_conversation_begins_with_the_blocks_of_the_shorter(
    known: Any, behind: Any, more: Any, size: int
) -> None:
    short, long = (prompt_of(ask(), told(known, each), size) for each in (behind, behind + more))
    assert long.hashes == short.hashes == (sequence_hashes(known, size),)
    assert list(long.tail[: len(short.tail)]) == list(short.tail)
    assert len(short.hashes[0]) + len(short.tail) == (
        (len(known) + len(behind)) // size if behind else len(known) // size
    )


@given(known=TOKENS, behind=TOKENS.filter(bool), size=st.integers(1, 5))
def test_no_block_of_a_tail_is_one_that_an_engine_announces(known: Any, behind: Any, size: int) -> None:
    tail = set(prompt_of(ask(), told(known, behind), size).tail)
    assert tail.isdisjoint(sequence_hashes(known + behind, size))


@given(known=TOKENS, behind=st.lists(st.integers(0, 9), min_size=8).map(lambda ids: array("I", ids)))
def test_tails_of_other_salts_adapters_pictures_and_beginnings_share_nothing(known: Any, behind: Any) -> None:
    other = array("I", [99]) + behind[1:]
    prompts = [
        prompt_of(ask(), told(known, behind), 4),
        prompt_of(ask(salt="s"), told(known, behind), 4),
        prompt_of(ask(lora="l"), told(known, behind), 4),
        prompt_of(ask(), told(known, other), 4),
        prompt_of(ask(), told(array("I", [77] * 4) + known, behind), 4),
    ]
    tails = [set(prompt.tail) for prompt in prompts]
    assert all(tails)
    assert sum(map(len, tails)) == len(set().union(*tails))


@pytest.mark.parametrize(
    ("sequences", "prompts", "blocks"), [(1, 1, 3), (4, 1, 6), (4, 2, 12), (16_384, 1, 3 + 1024)]
)
def test_each_further_sequence_is_counted_with_the_block_it_does_not_share(
    sequences: int, prompts: int, blocks: int
) -> None:
    ids = tuple(array("I", range(10)) for _ in range(prompts))
    asked = ask(n=sequences, sequences=sequences, prompts=ids)
    assert prompt_of(asked, TokenIds(ids), 4).blocks == blocks


def test_leading_tokens_alone_tell_nothing_of_the_prompts_last_block() -> None:
    assert prompt_of(ask(), TokenIds((array("I", range(8)),)), 4).last_block is not None
    assert prompt_of(ask(), told(range(8), [1] * 8), 4).last_block is None
    assert (
        prompt_of(ask(estimated_tokens=99), TokenIds((array("I", range(8)),), complete=False), 4).last_block
        is None
    )
