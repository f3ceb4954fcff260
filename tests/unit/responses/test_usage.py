"""Token usage out of answers and event streams, whatever their shape and however they are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.responses.counts import Unreadable
from picker.responses.shape import Shape
from picker.responses.usage import KEPT_BYTES, Usage, UsageReading

OPENAI = {
    "prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37, "prompt_tokens_details": {"cached_tokens": 16},
}  # fmt: skip


def read(shape: Shape, *pieces: bytes) -> UsageReading:
    reading = UsageReading(shape)
    for index, piece in enumerate(pieces):
        reading.piece(piece, end=index == len(pieces) - 1)
    return reading


def stream(*events: Any) -> bytes:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in events)
    return b"".join(b"data: " + line.encode() + b"\n\n" for line in lines)


CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "choices": [{"delta": {"content": 'the "usage": {"x":1}'}}],
}

ANSWERS: list[tuple[str, Any, Usage | None]] = [
    ("chat", {"id": "c", "choices": [], "usage": OPENAI}, Usage(30, 7, 16)),
    ("embeddings", {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 9}}, Usage(9, 0, None)),
    (
        "responses",
        {"usage": {"input_tokens": 5, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 4}}},
        Usage(5, 6, 4),
    ),
    (
        "anthropic",
        {"type": "message", "usage": {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 40,
                                      "cache_creation_input_tokens": 2}},
        Usage(47, 6, 40),
    ),
    (
        "SGLang's generate",
        {"text": "a", "meta_info": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8, "id": "x"}},
        Usage(9, 2, 8),
    ),
    ("none", {"id": "c", "choices": []}, None),
    ("null", {"id": "c", "usage": None}, None),
    ("a word", {"id": "c", "usage": "oops"}, None),
    ("inside a text", {"text": '"usage":{"prompt_tokens":5}'}, None),
    ("elsewhere", {"choices": [{"usage": {"prompt_tokens": 5}}]}, None),
    ("numbers as words", {"usage": {"prompt_tokens": "1024", "completion_tokens": 3.0}}, Usage(1024, 3, None)),
    (
        "nonsense",
        {"usage": {"prompt_tokens": [], "completion_tokens": -4, "prompt_tokens_details": {"cached_tokens": True}}},
        Usage(0, 0, 0),
    ),
    ("nonsense at large", {"usage": {"prompt_tokens": 10**300, "completion_tokens": "9" * 400}}, Usage(0, 0, None)),
    ("details of another kind", {"usage": {"prompt_tokens": 4, "prompt_tokens_details": 7}}, Usage(4, 0, None)),
]  # fmt: skip

STREAMS: list[tuple[str, bytes, Usage | None]] = [
    ("chat", stream(CHUNK, CHUNK | {"usage": None}, {"choices": [], "usage": OPENAI}, "[DONE]"), Usage(30, 7, 16)),
    ("every chunk tells", stream(*({"usage": {"prompt_tokens": 9, "completion_tokens": n}} for n in range(5))),
     Usage(9, 4, None)),
    ("not asked for", stream(CHUNK, CHUNK, "[DONE]"), None),
    ("no blank after the colon", b'data:{"usage":{"prompt_tokens":3}}\r\n\r\ndata:[DONE]\r\n\r\n', Usage(3, 0, None)),
    ("carriage returns", b'data: {"usage":{"prompt_tokens":3}}\r\rdata: [DONE]\r\r', Usage(3, 0, None)),
    ("no last line end", b'data: {"usage":{"prompt_tokens":3}}', Usage(3, 0, None)),
    (
        "responses",
        b"event: response.completed\n"
        + stream({"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 6}}}),
        Usage(5, 6, None),
    ),
    (
        "anthropic",
        stream(
            {"type": "message_start", "message": {"usage": {"input_tokens": 25, "cache_read_input_tokens": 8,
                                                            "output_tokens": 1}}},
            {"type": "content_block_delta", "delta": {"text": "usage"}},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 15, "input_tokens": 0}},
            {"type": "message_stop"},
        ),
        Usage(33, 15, 8),
    ),
    ("broken", b'data: {"usage": {"prompt_tokens": \n\n', None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "usage"), ANSWERS, ids=[name for name, _, _ in ANSWERS])
@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_usage_of_an_answer(name: str, answer: Any, usage: Usage | None, size: int) -> None:
    text = json.dumps(answer).encode()
    assert read(Shape.JSON, *(text[at : at + size] for at in range(0, len(text), size))).usage == usage


@pytest.mark.parametrize(("name", "text", "usage"), STREAMS, ids=[name for name, _, _ in STREAMS])
@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_usage_of_a_stream(name: str, text: bytes, usage: Usage | None, size: int) -> None:
    assert read(Shape.LINES, *(text[at : at + size] for at in range(0, len(text), size)), b"").usage == usage


@pytest.mark.parametrize("size", [1000, 4096, 10_000_000])
def test_usage_at_the_end_of_a_large_answer_is_read_from_its_end(size: int) -> None:
    data = [{"embedding": [0.123] * 1000, "text": '"usage":{"prompt_tokens":1}}'} for _ in range(600)]
    answer = {
        "object": "list",
        "data": data,
        "model": "m",
        "usage": {"prompt_tokens": 77},
        "extra": {"a": ["}"]},
    }
    text = json.dumps(answer).encode()
    reading = UsageReading(Shape.JSON)
    for at in range(0, len(text), size):
        reading.piece(text[at : at + size], end=False)
        assert len(reading._kept) <= KEPT_BYTES
    reading.piece(b"", end=True)
    assert reading.usage == Usage(77, 0, None)


def test_usage_far_from_the_end_is_said_to_be_unreadable() -> None:
    text = json.dumps({"usage": {"prompt_tokens": 77}, "data": ["x" * 50_000, "y" * 50_000]}).encode()
    reading = read(Shape.JSON, text[:50_000], text[50_000:], b"")
    assert (reading.usage, reading.fault) == (None, Unreadable.TOO_LARGE)


def test_a_nested_usage_in_the_end_of_a_large_answer_is_not_taken_for_its_own() -> None:
    text = json.dumps({"data": ["x" * 50_000], "b": [{"c": {"usage": {"prompt_tokens": 7}}}]}).encode()
    assert read(Shape.JSON, text[:40_000], text[40_000:], b"").usage is None


def test_a_long_event_is_read_from_its_end_and_the_next_one_whole() -> None:
    long = {
        "type": "response.completed",
        "response": {"output": "x" * 100_000, "usage": {"input_tokens": 5}, "user": None},
    }
    text = stream(long, {"usage": {"output_tokens": 6}})
    reading = UsageReading(Shape.LINES)
    for at in range(0, len(text), 999):
        reading.piece(text[at : at + 999], end=False)
        assert len(reading._kept) <= KEPT_BYTES
    reading.piece(b"", end=True)
    assert reading.usage == Usage(5, 6, None)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([text for _, text, _ in STREAMS]), min_size=1, max_size=3),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_a_stream_cut_anywhere_tells_what_the_whole_tells(texts: list[bytes], cuts: list[int]) -> None:
    text = b"".join(texts)
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert read(Shape.LINES, *pieces).usage == read(Shape.LINES, text).usage


NAMES = (
    "usage", "response", "message", "prompt_tokens", "input_tokens", "prompt_tokens_details", "cached_tokens",
    "cache_read_input_tokens",
)  # fmt: skip
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(junk, st.integers(0, 200), st.integers(0, 200), st.sampled_from(Shape))
def test_hostile_usage_never_raises_and_is_never_negative(
    value: Any, cut: int, lost: int, shape: Shape
) -> None:
    text = (
        b"data: " * (shape is Shape.LINES)
        + json.dumps({"usage": value, "message": value, "a": value}).encode()
    )
    text = text[: len(text) - lost]
    usage = read(shape, text[:cut], text[cut:]).usage
    assert usage is None or min(usage.input, usage.output, usage.cached or 0) >= 0


@settings(deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from(Shape))
def test_bytes_of_any_kind_never_raise(first: bytes, second: bytes, shape: Shape) -> None:
    read(shape, first, b'"usage":{', second, b"}")
