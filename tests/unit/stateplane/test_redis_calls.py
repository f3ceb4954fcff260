"""What is written to the server and read from it: shortcuts give what the long way gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import Amount, Booked, Booking, Cause, Owner, State, Version
from stateplane.redis import codec
from stateplane.redis.calls import Argument, Head, packed

ME = Owner("a", "1")
arguments: st.SearchStrategy[list[Argument]] = st.lists(
    st.one_of(st.text(max_size=20), st.binary(max_size=20), st.integers(), st.just("\r\n*3\r\n")), max_size=8
)


@given(arguments, arguments.filter(bool))
def test_a_command_whose_head_was_packed_before_is_the_command(
    head: list[Argument], rest: list[Argument]
) -> None:
    assert Head("EVALSHA", *head).packed(rest) == packed(["EVALSHA", *head, *rest])


def test_a_command_may_be_all_head() -> None:
    assert Head("PING").packed([]) == packed(["PING"])


@given(st.sampled_from(State), st.integers(0, 99), st.integers(1, 9), st.integers(0, 60_000))
def test_the_feed_brings_the_same_booking_as_the_answer_to_a_call(
    state: State, tokens: int, term: int, left: int
) -> None:
    cause = Cause.BROKEN if state is State.DRAINING else None
    told = Booking("id", "key", "w", ME, Amount(tokens, 2), 1, term, 3, state, cause)
    raw, ms = codec.pack(told, codec.owner_token(ME), 1), b"%d" % left
    answered = codec.outcome_of("id", (b"done", raw, ms, b"", b"", b"7-1")).booking
    change = codec.change_of(b"7-1", [b"b1", b"id", b"r", bytes(bytearray(raw)), b"d", ms])
    assert isinstance(change, Booked)
    assert change.booking is answered
    assert change.version == Version(7, 1)
    assert answered == codec.booking_of("id", codec.record_of(raw, "id"), left)
