"""What a file of workers may say, and how it is told what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.found import Endpoint
from discovery.workerfile import WorkerFileError, read_workers


def test_lines_name_one_worker_each() -> None:
    text = "# the pool\n10.0.0.1:8000\n\n 10.0.0.1:8000@1  # rank 1\n[::1]:80\r\n10.0.0.1:8000\n"
    assert read_workers(text) == {
        Endpoint("10.0.0.1:8000"),
        Endpoint("10.0.0.1:8000", 1),
        Endpoint("[::1]:80"),
    }


def test_json_names_ranks_and_labels() -> None:
    text = json.dumps(
        {"workers": [{"address": "A:1", "rank": 2, "labels": {"zone": "x"}}, {"address": "b:1"}, "c:1"]}
    )
    assert read_workers("  " + text) == {Endpoint("a:1", 2, {"zone": "x"}), Endpoint("b:1"), Endpoint("c:1")}


def test_only_json_empties_a_pool() -> None:
    assert read_workers('{"workers": []}') == frozenset()
    for text in ("", "\n", "# all gone\n"):
        with pytest.raises(WorkerFileError, match="names no worker"):
            read_workers(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a:1\nb", "line 2.*no port"),
        ("a:1\n\nb:99999", "line 3.*1 to 65535"),
        ("a:1@x", "line 1.*rank"),
        ("a:1@", "line 1.*rank"),
        ("a:1@999999", "line 1.*rank"),
        ("a:1 b:2", "line 1"),
        ('{"workers": [', "JSON"),
        ('{"workers": {}}', "must hold"),
        ("{}", "must hold"),
        ('{"workers": [3]}', r"workers\[0\].*address"),
        ('{"workers": ["a:1", {"rank": 0}]}', r"workers\[1\].*address"),
        ('{"workers": [{"address": "a"}]}', r"workers\[0\].*no port"),
        ('{"workers": [{"address": "a:1", "rank": -1}]}', r"workers\[0\].*rank"),
        ('{"workers": [{"address": "a:1", "rank": true}]}', r"workers\[0\].*rank"),
        ('{"workers": [{"address": "a:1", "labels": {"x": 1}}]}', r"workers\[0\].*'x'"),
        ('{"workers": [{"address": "a:1", "labels": []}]}', r"workers\[0\].*labels"),
        ('{"workers": [{"address": "a:1", "weight": 3}]}', r"workers\[0\].*'weight'.*allowed"),
        ('{"workers": ["a:1", {"address": "a:1", "labels": {"x": "y"}}]}', r"workers\[1\].*workers\[0\]"),
    ],
)
def test_a_fault_is_named_by_its_place(text: str, says: str) -> None:
    with pytest.raises(WorkerFileError, match=says):
        read_workers(text)


@given(st.text(max_size=80) | st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
).map(lambda value: json.dumps({"workers": value})))  # fmt: skip
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        read_workers(text)
    except WorkerFileError as refused:
        reason: Any = str(refused)
        if not reason:
            raise


def test_a_change_of_labels_is_a_change() -> None:
    assert Endpoint("a:1", 0, {"x": "1"}) != Endpoint("a:1", 0, {"x": "2"})
    assert hash(Endpoint("a:1", 0, {"x": "1"})) == hash(Endpoint("a:1", 0, {"x": "2"}))
