"""The standing of a request: read, bounded, and shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests.ask import Standing
from picker.requests.reading import read
from picker.requests.standing import FAIRNESS, MAX_LENGTH, OBJECTIVE, TPOT, TTFT, read_standing

NAMES = (*OBJECTIVE, *FAIRNESS, *TTFT, *TPOT)


@pytest.mark.parametrize("age", [0, 1], ids=["new names", "old names"])
def test_both_names_of_each_header_are_read(age: int) -> None:
    headers = {OBJECTIVE[age]: "chat", FAIRNESS[age]: " tenant-1 ", TTFT[age]: "250", TPOT[age]: "12.5"}
    assert read_standing(headers, 3) == Standing("chat", "tenant-1", 3, 250.0, 12.5)


def test_the_newer_name_counts() -> None:
    assert read_standing({OBJECTIVE[0]: "new", OBJECTIVE[1]: "old"}) == Standing(objective="new")


def test_nothing_said_is_nothing_read() -> None:
    assert read_standing({":path": "/", "traceparent": "00-1-1-01"}) is None
    assert read_standing({}, 0) == Standing(priority=0)


@pytest.mark.parametrize("value", ["x" * (MAX_LENGTH + 1), "a\nb", "naïve", "\x00"])
def test_a_word_too_long_or_of_other_letters_is_left_out_and_named(value: str) -> None:
    assert read_standing({FAIRNESS[0]: value}) == Standing(ignored=(FAIRNESS[0],))


@pytest.mark.parametrize("value", ["fast", "-1", "0", "nan", "inf", "1e300", "9" * 40, "\u0663"])
def test_a_latency_that_makes_no_sense_is_left_out_and_named(value: str) -> None:
    assert read_standing({TTFT[1]: value}) == Standing(ignored=(TTFT[1],))


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=300)))
def test_any_headers_are_read_within_bounds(headers: dict[str, str]) -> None:
    standing = read_standing(headers)
    if standing is not None:
        assert max(len(standing.objective), len(standing.fairness_id)) <= MAX_LENGTH
        assert set(standing.ignored) <= set(headers)


def test_a_request_carries_it_whatever_becomes_of_its_body() -> None:
    body = json.dumps({"prompt": "x", "priority": 5}).encode()
    asked = read("/v1/completions", {OBJECTIVE[0]: "chat"}, body)
    assert asked.standing == Standing(objective="chat", priority=5)
    assert read("/v1/models", {OBJECTIVE[0]: "chat"}, None).standing == Standing(objective="chat")
    assert read("/v1/completions", {}, b'{"prompt": "x"}').standing is None
