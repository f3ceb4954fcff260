from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from picker.events.bridge.dialect import (
    BadBatch,
    Batch,
    Cleared,
    Frames,
    Removed,
    Stored,
    decode_batch,
    decode_frames,
    is_end,
)

ARRAYS = bytes.fromhex(
    "93cb3ff80000000000009397ab426c6f636b53746f72656492cf800000000000000507c0dc0020000102030405060708090a0b0c0d0e0f1011121314"
    "15161718191a1b1c1d1e1f10c0a347505593ac426c6f636b52656d6f7665649107a347505591b0416c6c426c6f636b73436c656172656400"
)
MAPS = bytes.fromhex(
    "93cb3ff8000000000000938ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf8000000000000005b1706172656e745f"
    "626c6f636b5f68617368c0a9746f6b656e5f696473dc0010000102030405060708090a0b0c0d0e0faa626c6f636b5f73697a6510a76c6f72615f6964"
    "c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065"
    "635f6b696e64ae66756c6c5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469"
    "756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400"
)
RAW_HASHES = bytes.fromhex(
    "93cb3ff80000000000009197ab426c6f636b53746f72656491c420aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac4"
    "20bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbdc0010000102030405060708090a0b0c0d0e0f10c0a347505500"
)


def stored(**given: Any) -> Stored:
    defaults: dict[str, Any] = {
        "hashes": (1,), "parent": None, "tokens": array("I", range(16)), "block_size": 16, "tier": 0, "lora": "",
        "salt": "", "opaque": (), "group": None, "kind": None,
    }  # fmt: skip
    return Stored(**(defaults | given))


def batch(*events: Any, rank: Any = 0) -> Batch:
    decoded = decode_batch(msgspec.msgpack.encode([1.5, list(events), rank]))
    assert isinstance(decoded, Batch)
    return decoded


def as_map(**given: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": list(range(16)),
        "block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    return defaults | given


def test_array_events_of_0_10_to_0_13() -> None:
    assert len(ARRAYS) == 116
    assert decode_batch(ARRAYS) == Batch(
        0,
        (
            stored(hashes=(9223372036854775813, 7), tokens=array("I", range(32))),
            Removed((7,), 0, None),
            Cleared(),
        ),
    )


def test_map_events_of_0_24_and_later() -> None:
    assert len(MAPS) == 281
    assert decode_batch(MAPS) == Batch(
        0,
        (
            stored(hashes=(9223372036854775813,), group=0, kind="full_attention"),
            Removed((7,), 0, 0),
            Cleared(),
        ),
    )


def test_raw_hashes_are_their_last_eight_bytes() -> None:
    assert len(RAW_HASHES) == 119
    assert decode_batch(RAW_HASHES) == Batch(
        0, (stored(hashes=(0xAAAAAAAAAAAAAAAA,), parent=0xBBBBBBBBBBBBBBBB),)
    )


TOKENS = list(range(16))
IMAGE = xxh3_64_intdigest(b"image")


def test_each_event_is_read_in_its_own_encoding() -> None:
    mixed = batch(as_map(), ["BlockRemoved", [1], "DISK"], {"type": "AllBlocksCleared", "news": 1})
    assert mixed.events == (stored(), Removed((1,), 2, None), Cleared())


def test_a_batch_of_two_elements_leaves_the_rank_to_the_port() -> None:
    decoded = decode_batch(msgspec.msgpack.encode([1.5, [["AllBlocksCleared"]]]))
    assert decoded == Batch(None, (Cleared(),))
    assert batch(["AllBlocksCleared"], rank=3).rank == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"extra_keys": [["ad"]], "lora_name": "ad"}, stored(lora="ad")),
        ({"extra_keys": [["ad", "salt"]], "lora_name": "ad"}, stored(lora="ad", salt="salt")),
        ({"extra_keys": [["ad", "ad"]], "lora_name": "ad"}, stored(lora="ad", salt="ad")),
        ({"extra_keys": [[["image", 3]]]}, stored(media=((IMAGE,),))),
        (
            {"extra_keys": [[["ab" * 32, 3], ["image", 0], "pepper"]]},
            stored(media=((0xABABABABABABABAB, IMAGE),), salt="pepper"),
        ),
        ({"extra_keys": [["image"]], "parent_block_hash": 5}, stored(parent=5, media=((IMAGE,),))),
        ({"extra_keys": [[["image", 3], b"digest"]]}, stored(media=((IMAGE,),), opaque=(True,))),
        ({"extra_keys": [[["image"]]]}, stored(opaque=(True,))),
        ({"origin": "REUSED"}, stored(again=True)),
        ({"origin": "NEW"}, stored()),
        ({"parent_block_hash": 0}, stored()),
        ({"extra_keys": [[b"digest"]]}, stored(opaque=(True,))),
        ({"cache_salt": "pepper", "session_id": "x"}, stored(salt="pepper")),
        ({"mm_keys": [[{"type": "mm_key", "hash": "image", "start_offset": 2}]]}, stored(media=((IMAGE,),))),
        (
            {"mm_keys": [[{"type": "mm_key", "hash": 7}, {"type": "mm_key"}]]},
            stored(media=((7,),), opaque=(True,)),
        ),
        ({"mm_keys": [[], []]}, stored(opaque=(True,))),
        ({"mm_keys": ["x"]}, stored(opaque=(True,))),
        ({"token_ids": [], "block_size": 0, "medium": "CPU"}, stored(tokens=None, block_size=0, tier=1)),
    ],
)
def test_what_else_makes_a_block_is_kept_apart(given: dict[str, Any], expected: Stored) -> None:
    assert batch(as_map(**given)).events == (expected,)


def test_tokens_that_are_none_make_the_blocks_unmatchable() -> None:
    (event,) = batch(as_map(token_ids=["<image>", *range(15)])).events
    assert isinstance(event, Stored)
    assert event.opaque == (True,)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("text", "shape"),
        ([], "shape"),
        (["Unheard"], "unknown_tag"),
        (as_map(block_hashes=[1, 2]), "masked"),
        (as_map(block_hashes="x"), "hash"),
        (as_map(block_hashes=[b"short"]), "hash"),
        (as_map(token_ids=[-1] * 16), "tokens"),
        (as_map(block_size="16"), "block_size"),
        (as_map(lora_id=3), "lora_without_name"),
        (as_map(medium="EXTERNAL"), "elsewhere"),
        (as_map(medium="TAPE"), "medium"),
        (as_map(extra_keys=[None, None]), "extra_keys"),
        (as_map(group_idx="a"), "group"),
    ],
)
def test_one_bad_event_is_skipped_and_named(event: Any, reason: str) -> None:
    assert batch(event, ["BlockRemoved", [1], "GPU"]) == Batch(0, (Removed((1,), 0, None),), (reason,))


def test_an_event_without_blocks_is_nothing() -> None:
    assert batch(as_map(block_hashes=[], token_ids=[]), ["BlockRemoved", [], "GPU"]) == Batch(0, ())


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_raise(payload: bytes) -> None:
    assert isinstance(decode_batch(payload), Batch | BadBatch)


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
fields = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
          "extra_keys", "group_idx", "kv_cache_spec_kind", "cache_salt", "mm_keys", "origin"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(fields), odd), st.lists(odd, max_size=11))
def test_events_of_any_content_never_raise(named: dict[str, Any], placed: list[Any]) -> None:
    whole = batch(as_map(**named), {"type": "BlockRemoved", **named}, ["BlockStored", *placed],
                  ["BlockRemoved", *placed], placed)  # fmt: skip
    assert len(whole.events) + len(whole.skipped) <= 5


@given(st.integers(0, len(MAPS) - 1), st.integers(0, 255))
def test_damaged_batches_never_raise(place: int, value: int) -> None:
    decode_batch(MAPS[:place] + bytes([value]) + MAPS[place + 1 :])
    decode_batch(MAPS[:place])


def test_deep_nesting_is_no_batch() -> None:
    assert decode_batch(b"\x91" * 100_000) == BadBatch("malformed")


NUMBER = (5).to_bytes(8, "big")


@pytest.mark.parametrize(
    "frames", [[b"topic", NUMBER, b"data"], [b"", NUMBER, b"data"], [b"", b"topic", NUMBER, b"data"]]
)
def test_live_messages_and_both_replay_framings_are_read_from_the_end(frames: list[bytes]) -> None:
    assert decode_frames(frames) == Frames(5, b"data")
    assert not is_end(frames)


@pytest.mark.parametrize("frames", [[b"", b"\xff" * 8, b""], [b"", b"", b"\xff" * 8, b""]])
def test_both_marks_of_a_replays_end_are_known(frames: list[bytes]) -> None:
    assert is_end(frames)


@pytest.mark.parametrize("frames", [[], [b"x"], [b"", b"short", b"data"]])
def test_other_frames_are_none(frames: list[bytes]) -> None:
    assert decode_frames(frames) is None
