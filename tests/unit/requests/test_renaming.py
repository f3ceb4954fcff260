"""A body under another model: the same JSON but for the model, and the same bytes but for its value."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.requests.renaming import MAX_MEMBERS, find, renamed

NEW = 'the "new"\\ möd\nel'


def under(body: bytes, model: str = NEW) -> bytes:
    places = find(body)
    assert places is not None
    return renamed(body, places, model)


texts = st.text(st.sampled_from('model"\\{}[]:, \n\té\U0001f600\x00'), max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.just("model") | texts, inner, max_size=4),
    max_leaves=12,
)
members = st.lists(st.tuples(st.just("model") | texts, values), max_size=6)
blanks = st.text(st.sampled_from(" \t\r\n"), max_size=2)


@st.composite
def written(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, Any]], list[tuple[int, int]]]:
    """An object as clients may write it, its members, and where the values of ``model`` stand."""
    pairs, out, places = draw(members), bytearray(), []

    def blank() -> None:
        out.extend(draw(blanks).encode())

    blank()
    out += b"{"
    blank()
    for index, (key, value) in enumerate(pairs):
        if index:
            out += b","
            blank()
        text = json.dumps(key, ensure_ascii=draw(st.booleans()))
        if key == "model" and draw(st.booleans()):
            text = '"mod\\u0065l"'
        out += text.encode()
        blank()
        out += b":"
        blank()
        begin = len(out)
        indent = draw(st.sampled_from([None, 1]))
        out += json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent).encode()
        if key == "model":
            places.append((begin, len(out)))
        blank()
    out += b"}"
    blank()
    return bytes(out), pairs, places


@settings(deadline=None)
@given(
    written(),
    st.text(min_size=1, max_size=20).filter(lambda text: text.encode("utf-8", "ignore").decode() == text),
)
def test_only_the_model_changes_and_every_other_byte_stays(
    case: tuple[bytes, list[tuple[str, Any]], list[tuple[int, int]]], model: str
) -> None:
    body, pairs, places = case
    changed = under(body, model)
    named = any(key == "model" for key, _ in pairs)
    assert json.loads(changed, object_pairs_hook=list)[0 if named else 1 :] == [
        (key, model if key == "model" else _as_pairs(value)) for key, value in pairs
    ]
    assert json.loads(changed)["model"] == model
    value, at, rest = json.dumps(model, ensure_ascii=False).encode(), 0, changed
    if not named:
        brace = body.index(b"{") + 1
        assert changed[:brace] == body[:brace]
        assert changed.endswith(body[brace:])
        return
    for begin, end in places:
        assert rest.startswith(body[at:begin])
        rest = rest[begin - at :]
        rest = rest[len(_value_of(rest, model, value)) :]
        at = end
    assert rest == body[at:]


def _as_pairs(value: Any) -> Any:
    return json.loads(json.dumps(value), object_pairs_hook=list)


def _value_of(rest: bytes, model: str, plain: bytes) -> bytes:
    """The JSON string at the front; its spelling is the writer's business."""
    if rest.startswith(plain):
        return plain
    text, size = json.JSONDecoder().raw_decode(rest.decode())
    assert text == model
    return rest.decode()[:size].encode()


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"model":"a"}', b'{"model":"new"}'),
        (b'{"model" : null, "x":1}', b'{"model" : "new", "x":1}'),
        (b"{}", b'{"model":"new"}'),
        (b" { } ", b' {"model":"new" } '),
        (b'{ "a":1}', b'{"model":"new", "a":1}'),
        (b'{"model":"a","model":"b"}', b'{"model":"new","model":"new"}'),
        (b'{"m\\u006fdel":"a"}', b'{"m\\u006fdel":"new"}'),
        (b'{"model":"a","x":{"model":"b"}}', b'{"model":"new","x":{"model":"b"}}'),
        (b'{"x":"\\"model\\":\\"b\\"","model":{"model":1}}', b'{"x":"\\"model\\":\\"b\\"","model":"new"}'),
        (b'{"a":[1,2.5e3,-1],"model":"a"}', b'{"a":[1,2.5e3,-1],"model":"new"}'),
    ],
)
def test_spellings_of_clients(body: bytes, changed: bytes) -> None:
    assert under(body, "new") == changed


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"x":1}', None),
        (b'{"model":7}', None),
        (b'{"model":"\\u00e9"}', "é"),
    ],
)
def test_the_model_that_counts_is_the_last_one(body: bytes, model: str | None) -> None:
    places = find(body)
    assert places is not None
    assert places.model(body) == model


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'"model"', b"{", b'{"model"', b'{"model":', b'{"model":"a"', b'{"a":1 "b":2}', b'{"a":[}', b"{1:2}",
     b"\x1f\x8b\x08\x00", b'{"a":"x', b'{"a":{"b":[1}'],
)  # fmt: skip
def test_what_is_no_object_has_no_places(body: bytes) -> None:
    assert find(body) is None


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[]",:\\model1 '), max_size=60).map(str.encode))
def test_bytes_of_any_kind_never_raise(body: bytes) -> None:
    find(body)


def test_an_object_of_very_many_members_is_not_looked_through() -> None:
    body = b"{" + b'"a":1,' * (MAX_MEMBERS + 1) + b'"model":"a"}'
    assert find(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":' + b"[" * 16_000_000,
        b'{"a":"' + b'\\"' * 8_000_000,
        b"{" + b'"a":1,' * 2_000_000,
        b'{"a":' + b" " * 16_000_000,
    ],
    ids=["brackets", "escapes", "members", "blanks"],
)  # fmt: skip
def test_hostile_bodies_are_given_up_within_seconds(body: bytes) -> None:
    began = time.process_time()
    assert find(body) is None
    assert time.process_time() - began < 5
