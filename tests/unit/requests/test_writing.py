"""JSON as templates write it is what Python's own library writes, remembered or not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Undefined

from picker.requests import writing as module
from picker.requests.writing import to_json

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


def told(write: Callable[[Any], str], value: Any) -> object:
    try:
        return write(value)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@given(st.dictionaries(st.text(max_size=4) | st.none(), VALUES, max_size=4) | VALUES)
def test_what_is_written_is_what_pythons_library_writes(value: Any) -> None:
    for _ in range(2):
        assert told(to_json, value) == told(lambda each: json.dumps(each, ensure_ascii=False), value)


@pytest.mark.parametrize(
    "value",
    [
        {"a": math.nan}, {"a": math.inf}, {"a": 1.0, "b": 1, "c": True}, {"a": -0.0}, {"a": (1, 2)}, {1: 2}, {"a": {1}},
        {"a": "\ud800"}, {"a": Undefined()}, {"é": "\u2028 <>&'"}, {"a": 2**80}, {"a": b"x"}, {"a": 1e300, "b": 1e-300},
    ],
    ids=repr,
)  # fmt: skip
def test_awkward_values_are_written_or_refused_alike(value: Any) -> None:
    for _ in range(2):
        assert told(to_json, value) == told(lambda each: json.dumps(each, ensure_ascii=False), value)


def test_options_are_kept_to() -> None:
    value = {"b": "é", "a": [1]}
    for options in ({"indent": 4}, {"sort_keys": True}, {"ensure_ascii": True}, {"separators": (",", ":")}):
        assert to_json(value, **options) == json.dumps(value, **{"ensure_ascii": False, **options})  # type: ignore[arg-type]


def test_no_more_is_remembered_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module._written.cache_clear()
    long = {"a": "x" * module.LONGEST}
    assert orjson.loads(to_json(long)) == long
    assert module._written.cache_info().currsize == 0
    to_json({"a": 1})
    to_json({"a": 1})
    assert (module._written.cache_info().hits, module._written.cache_info().currsize) == (1, 1)
    assert module._written.cache_info().maxsize == module.MOST
