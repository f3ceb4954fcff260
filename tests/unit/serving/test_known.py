"""Headers that are remembered: whatever was read before, a message is read as the protobuf runtime reads it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.serving import known
from picker.serving.gateway import request_headers
from picker.serving.reading import headers_of
from picker.serving.shown import read
from picker.serving.wire.extproc_pb2 import HeaderMap, HeaderValue

FIRST = {":authority": "models", ":path": "/v1/completions", ":method": "POST", ":scheme": "http"}
PYTHON = {**FIRST, "user-agent": "python", "accept": "*/*", "x-lang": "python"}
GO = {**FIRST, "user-agent": "go", "accept-encoding": "gzip", "x-retries": "0"}


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of its own for each test, that learns from every message."""
    monkeypatch.setattr(known, "_entries", {})
    monkeypatch.setattr(known, "_runs", {})
    monkeypatch.setattr(known, "WORTH_LEARNING", 1)
    monkeypatch.setattr(known, "LEARN_EACH", 1)


def same(fields: list[tuple[str, bytes]]) -> None:
    message = HeaderMap(headers=[HeaderValue(key=name, raw_value=value) for name, value in fields])
    data = message.SerializeToString()
    found, control = known.headers(data, 0, len(data))
    assert found == headers_of(message)
    assert list(found) == list(headers_of(message)), "in their order"
    assert control == tuple(dict.fromkeys(name for name, _ in fields if name.startswith("x-picker")))


def runs() -> list[list[str]]:
    return sorted([[name for name, _ in pairs] for _, pairs, _ in known._runs.values()])


field = st.tuples(
    st.sampled_from(["a", "b", "c", "d", "cookie", "x-picker-booking"]),
    st.sampled_from([b"1", b"2", b"3"]) | st.binary(max_size=3),
)


@given(st.lists(st.lists(field, max_size=9), max_size=12))
def test_messages_are_read_right_whatever_was_learnt_from_others(
    messages: list[list[tuple[str, bytes]]],
) -> None:
    for fields in itertools.chain(messages, messages):
        same(fields)


def test_a_run_ends_before_what_differs_and_another_begins_behind_it() -> None:
    for number in range(6):
        read(
            request_headers(
                {**PYTHON, "x-request-id": str(number), "last": "one", "very": "last"}
            ).SerializeToString()
        )
    assert runs() == [list(PYTHON), ["last", "very"]]


def test_clients_that_begin_alike_share_a_run_and_keep_the_rest_apart() -> None:
    for client in (PYTHON, GO) * 6:
        read(request_headers(client).SerializeToString())
    assert runs() == sorted([list(FIRST), list(PYTHON)[4:], list(GO)[4:]])
    before = dict(known._runs)
    for client in (PYTHON, GO) * 6:
        read(request_headers(client).SerializeToString())
    assert known._runs == before, "nothing is learnt and forgotten in turns"


def test_runs_are_bounded_and_hold_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "KNOWN_RUNS", 5)
    for number in range(40):
        client = {f"a{number}": "v", "b": "v", "authorization": "secret", "c": "v", f"d{number}": "w"}
        for _ in range(3):
            read(request_headers(client).SerializeToString())
        assert len(known._runs) <= 5
    many = {f"h{number}": "v" for number in range(3 * known.LONGEST_RUN)}
    for _ in range(3):
        read(request_headers(many).SerializeToString())
    assert known._runs
    assert all(len(fields) <= known.LONGEST_RUN for _, _, fields in known._runs.values())
    assert not any(b"secret" in each for each, _, _ in known._runs.values())


@pytest.mark.parametrize(
    "name", ["Authorization", "set-cookie", "x-goog-api-key", "X-Auth-Token", "x-iap-jwt-assertion"]
)
def test_of_what_may_be_a_secret_by_its_name_nothing_is_remembered(name: str) -> None:
    for _ in range(3):
        read(request_headers({"a": "v", name: "hidden", "b": "v"}).SerializeToString())
    assert not any(b"hidden" in each for each in known._entries)
    assert {pair[0] for pair in known._entries.values()} >= {"a", "b"}


def test_a_run_that_reaches_beyond_the_headers_is_none_of_theirs() -> None:
    fields = HeaderMap(headers=[HeaderValue(key=name, raw_value=b"v") for name in "abc"]).SerializeToString()
    for _ in range(3):
        known.headers(fields, 0, len(fields))
    assert runs() == [["a", "b", "c"]]
    with pytest.raises(known.UnusualError):
        known.headers(fields, 0, len(fields) - 2)
