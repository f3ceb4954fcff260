"""The client's model name, put back: nothing else changes, wherever the pieces are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from picker.responses.naming import Naming
from picker.responses.shape import Shape

ENGINE, CLIENT = "engine/model-v2", 'the "client\'s"\\ näme'

CHAT = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": ENGINE,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": f'{{"model":"{ENGINE}"}}', "model": ENGINE}}],
    "usage": {"prompt_tokens": 3, "model": ENGINE},
}  # fmt: skip
LATE = {
    "content": [{"text": "\\", "model": ENGINE}, "model", '\\"'],
    "tags": ["model", ENGINE],
    "model": ENGINE,
}
RESPONSES = {
    "type": "response.completed",
    "response": {"output": [{"model": ENGINE}], "model": ENGINE, "x": {}},
}
ANTHROPIC = {
    "type": "message_start",
    "message": {"content": [], "model": ENGINE, "usage": {"input_tokens": 3}},
}
UNTOUCHED = [
    {"type": "delta", "text": f'"model":"{ENGINE}"'},
    {"model": None, "a": 1},
    {"model": {"model": ENGINE}},
    {"model": [ENGINE]},
    {"other": {"model": ENGINE}},
    {"response": [{"model": ENGINE}]},
    {"response": "model", "message": {"message": {"model": ENGINE}}},
    {"models": ENGINE, "mode": ENGINE, "Model": ENGINE, "a": "model", "b": ENGINE},
    [{"model": ENGINE}],
    "model",
]


def renamed(event: Any) -> Any:
    """What should come out, by a plain reading of the JSON."""
    if not isinstance(event, dict):
        return event
    event = dict(event)
    for holder in ("response", "message"):
        if isinstance(event.get(holder), dict) and isinstance(event[holder].get("model"), str):
            return {**event, holder: {**event[holder], "model": CLIENT}}
    return {**event, "model": CLIENT} if isinstance(event.get("model"), str) else event


def passed(shape: Shape, pieces: list[bytes]) -> bytes:
    naming = Naming(shape, CLIENT)
    out = []
    for piece in pieces:
        changed = naming.piece(piece)
        out.append(piece if changed is None else changed)
    return b"".join(out)


def pieces_of(text: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


def written(event: Any, spaced: bool) -> bytes:
    return json.dumps(event, separators=(", ", ": ") if spaced else (",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("event", [CHAT, LATE, RESPONSES, ANTHROPIC, *UNTOUCHED])
@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_the_name_is_put_at_the_places_of_engines_and_nowhere_else(
    event: Any, spaced: bool, size: int
) -> None:
    text = written(event, spaced)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert json.loads(passed(Shape.JSON, pieces)) == renamed(event)
    lines = b"event: x\r\ndata: " + text + b"\r\n\r\ndata:" + text + b"\n\ndata: [DONE]\n\n"
    pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
    out = passed(Shape.LINES, pieces).split(b"\n")
    assert json.loads(out[1].removeprefix(b"data: ")) == renamed(event)
    assert json.loads(out[3].removeprefix(b"data:")) == renamed(event)
    assert out[5] == b"data: [DONE]"


@pytest.mark.parametrize("event", [CHAT, LATE, RESPONSES, ANTHROPIC])
def test_only_the_bytes_of_the_name_change(event: Any) -> None:
    text = b"  \n" + json.dumps(event, indent=3, ensure_ascii=False).encode()
    out = passed(Shape.JSON, [text])
    assert json.loads(out) == renamed(event)
    name = json.dumps(CLIENT, ensure_ascii=False).encode()
    old = json.dumps(ENGINE).encode()
    at = out.index(name)
    assert out[:at] == text[:at]
    assert text[at : at + len(old)] == old
    assert out[at + len(name) :] == text[at + len(old) :]


texts = st.text(st.sampled_from('model"\\{}[]:,\n\r\té\U0001f600 data'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts | st.just(ENGINE),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "response", "message", "a"]) | texts, inner, max_size=4)
    ),
    max_leaves=12,
)
events = st.dictionaries(st.sampled_from(["model", "id", "response", "message"]) | texts, values, max_size=5)


@settings(deadline=None)
@given(st.lists(events, max_size=4), st.booleans(), st.lists(st.integers(0, 2000), max_size=8))
def test_an_event_stream_cut_anywhere_gives_what_the_whole_gives(
    stream: list[Any], spaced: bool, cuts: list[int]
) -> None:
    text = b"".join(b"data: " + written(event, spaced) + b"\n\n" for event in stream)
    whole = passed(Shape.LINES, [text])
    assert passed(Shape.LINES, pieces_of(text, cuts)) == whole
    lines = [line for line in whole.split(b"\n") if line]
    for line, event in zip(lines, stream, strict=True):
        told = json.loads(line.removeprefix(b"data: "))
        first = next((key for key in event if key in {"model", "response", "message"}), "")
        # no answer has more than one name: the first one found ends the search
        if (
            first
            and sum(isinstance(event.get(key), dict | str) for key in ("model", "response", "message")) == 1
        ):
            assert told == renamed(event)


@settings(deadline=None)
@given(events, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_an_answer_cut_anywhere_gives_what_the_whole_gives(event: Any, spaced: bool, cuts: list[int]) -> None:
    text = written(event, spaced)
    assert passed(Shape.JSON, pieces_of(text, cuts)) == passed(Shape.JSON, [text])


@settings(deadline=None)
@given(st.binary(max_size=80) | st.text(st.sampled_from('data: {}[]",\\model\n'), max_size=80).map(str.encode),
       st.sampled_from(Shape), st.lists(st.integers(0, 80), max_size=6))  # fmt: skip
@example(b'data: {"model":"', Shape.LINES, [])
@example(b'{"model":"x\\', Shape.JSON, [3])
@example(b'{"model":"x\n"}', Shape.LINES, [12])
def test_broken_answers_never_raise_and_are_read_the_same_in_pieces(
    text: bytes, shape: Shape, cuts: list[int]
) -> None:
    assert passed(shape, pieces_of(text, cuts)) == passed(shape, [text])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "broken", [b'{"model":"x', b'{"a', b'{"a":"\\', b'{"a":[{"b":', b'{"a":{', b"{", b"x" * 100, b"[{"]
)
@pytest.mark.parametrize("size", [1, 10_000])
def test_the_end_of_a_line_ends_whatever_stood_on_it(broken: bytes, end: bytes, size: int) -> None:
    good = b'data: {"message":{"model":"m"}}'
    text = end.join([b"event: message_start", good, b"data: " + broken, good, b"", b": ping", good, b""])
    out = passed(Shape.LINES, [text[at : at + size] for at in range(0, len(text), size)])
    name = json.dumps(CLIENT, ensure_ascii=False).encode()
    lines = out.split(end)
    assert [lines[at] for at in (1, 3, 6)] == [good.replace(b'"m"', name)] * 3
    assert (lines[0], lines[5]) == (b"event: message_start", b": ping")


def test_text_that_cannot_matter_is_not_remembered() -> None:
    naming = Naming(Shape.LINES, CLIENT)
    for piece in (b"x" * 1_000_000, b'\ndata: {"' + b"k" * 1_000_000, b'":1,"model":"' + b"n" * 1_000_000):
        naming.piece(piece)
        assert len(naming._key) < 200


def test_past_the_name_pieces_pass_as_they_are() -> None:
    naming = Naming(Shape.JSON, CLIENT)
    assert naming.piece(b'{"model":"m","text":"') is not None
    assert naming.piece(b'"model":"m"') is None
    assert naming.named
