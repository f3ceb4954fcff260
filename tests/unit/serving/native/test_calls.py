"""Messages with their length before them, whatever pieces they come in; and who pays for what is unfinished."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.serving.buffers import Budget
from picker.serving.http2.limits import Counts
from picker.serving.native.calls import PREFIX, SMALL_PART, Call, Shared, prefixed, seconds_of, trailers


class Wire:
    """The part of a stream that a call uses."""

    def __init__(self) -> None:
        self.responded = False
        self.waits = False
        self.sent = b""
        self.status: bytes | None = None
        self.resets: list[int] = []

    def respond(self, block: bytes) -> None:
        self.responded = True

    def send(self, data: bytes) -> None:
        self.sent += data

    def finish(self, block: bytes) -> None:
        self.status = block

    def reset(self, code: int) -> None:
        self.resets.append(code)


class Told(Call):
    def __init__(self, *, limit: int = 1 << 20, budget: int = 1 << 20) -> None:
        self.wire = cast("Any", Wire())
        self.budget = Budget(budget)
        super().__init__(self.wire, Shared(budget=self.budget, counts=Counts(), max_message=limit))
        self.told: list[Any] = []

    def message(self, data: bytes) -> None:
        self.told.append(data)

    def half_closed(self) -> None:
        self.told.append("half closed")

    def cancelled(self) -> None:
        self.told.append("cancelled")

    def broken(self) -> None:
        self.told.append("broken")


messages = st.lists(st.binary(max_size=40), max_size=8)


@given(messages, st.lists(st.integers(1, 30), max_size=60))
def test_messages_come_out_as_they_went_in_however_they_are_cut(given_: list[bytes], cuts: list[int]) -> None:
    call, data = Told(), b"".join(prefixed(one) for one in given_)
    for cut in cuts:
        if data:
            call.data(data[:cut])
            data = data[cut:]
    if data:
        call.data(data)
    assert call.told == given_
    assert call.budget.held == 0
    call.ended()
    assert call.told[-1] == "half closed"


@given(
    st.lists(st.integers(0, 9_000), min_size=1, max_size=4),
    st.lists(st.sampled_from([1, 3, 5, 700, SMALL_PART - 1, SMALL_PART, 2_000, 16_384]), max_size=60),
)
def test_parts_large_and_small_make_the_message_that_was_cut(sizes: list[int], cuts: list[int]) -> None:
    given_ = [random.Random(size).randbytes(size) for size in sizes]
    call, data = Told(), b"".join(prefixed(one) for one in given_)
    for cut in cuts:
        call.data(data[:cut])
        data = data[cut:]
        assert call.budget.held < 9_000 + PREFIX
    call.data(data)
    assert call.told == given_
    assert call.budget.held == 0


def test_a_message_that_comes_byte_by_byte_is_not_kept_as_an_object_for_each() -> None:
    call = Told()
    for byte in prefixed(b"x" * 5_000)[:-1]:
        call.data(bytes((byte,)))
    assert call._kept is not None
    assert len(call._kept) == 1
    assert call.budget.held == 5_000 + PREFIX - 1
    call.data(b"x")
    assert call.told == [b"x" * 5_000]


def test_what_is_unfinished_is_paid_for_and_given_back() -> None:
    for end in ("reset", "lost", "finish"):
        call = Told()
        call.data(prefixed(b"x" * 1000)[:500])
        assert call.budget.held == 500
        call.data(b"y")
        assert call.budget.held == 501
        if end == "reset":
            call.reset(8)
        else:
            getattr(call, end)()
        assert call.budget.held == 0


def test_a_message_beyond_the_memory_of_all_fails_alone() -> None:
    call = Told(budget=10_000)
    call.data(prefixed(b"x" * 9_000)[:8_000])
    assert call.budget.held == 8_000
    call.data(b"x" * 900)
    call.data(b"x" * 90_000)
    assert call.told == [b"x" * 9_000] or call.wire.status
    other = Told(budget=10_000)
    other.data(prefixed(b"x" * 20_000)[:15_000])
    assert b"grpc-status\x018" in other.wire.status
    assert other.told == ["cancelled"]
    assert other.budget.held == 0


@pytest.mark.parametrize("pieces", [1, 2, 6, 100])
def test_a_message_over_the_limit_is_refused_by_its_prefix(pieces: int) -> None:
    call, data = Told(limit=50), prefixed(b"fine") + prefixed(b"x" * 51)
    for at in range(0, len(data), len(data) // pieces or 1):
        call.data(data[at : at + (len(data) // pieces or 1)])
    assert call.told == [b"fine", "cancelled"]
    assert b"grpc-status\x018" in call.wire.status


def test_a_failure_while_answers_wait_resets_the_stream() -> None:
    call = Told(limit=50)
    call.wire.waits = True
    call.data(prefixed(b"x" * 51))
    assert call.wire.resets == [8]
    assert call.told == ["cancelled"]


def test_nothing_is_heard_after_the_end() -> None:
    call = Told()
    call.finish()
    call.data(prefixed(b"late"))
    call.ended()
    assert call.told == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1H", 3600.0), (b"2M", 120.0), (b"3S", 3.0), (b"250m", 0.25), (b"5u", 5e-6), (b"99999999n", 0.099999999),
        (b"123456789S", None), (b"S", None), (b"1", None), (b"-1S", None), (b"1.5S", None), (b"", None),
    ],
)  # fmt: skip
def test_timeouts_are_read_as_grpc_writes_them(text: bytes, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


def test_a_status_s_text_is_escaped_and_short() -> None:
    block = trailers(13, "100 %\n" + "é" * 500)
    assert b"100 %25%0A%C3%A9" in block
    assert len(block) < 170
