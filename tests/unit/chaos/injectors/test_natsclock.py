"""Whoever is told of a message of the log is told the same time of it, and a step counts from the next message on."""

from __future__ import annotations

import pytest

from chaos.injectors.frames import Frame, Frames
from chaos.injectors.natsclock import ServerClock

SECOND = 1_000_000_000
STAMP = 1_700_000_000 * SECOND


def message(sequence: int, *, stream: str = "PICKER_PLANE_p", newer: bool = False) -> Frame:
    middle = "_.hash." if newer else ""
    reply = f"$JS.ACK.{middle}{stream}.consumer.1.{sequence}.{sequence}.{STAMP + sequence}.0"
    (frame,) = Frames().feed(f"MSG picker.v1.p.plane.log 1 {reply} 5\r\nhello\r\n".encode())
    return frame


def stamp(frame: Frame, *, newer: bool = False) -> int:
    return int(frame.reply.split(".")[9 if newer else 7])


@pytest.mark.parametrize("newer", [False, True])
def test_a_step_moves_the_next_message_and_never_one_that_was_told(newer: bool) -> None:
    clock = ServerClock("PICKER_PLANE_")
    assert clock.told(message(1, newer=newer)) == message(1, newer=newer)
    clock.set(300)
    moved = clock.told(message(2, newer=newer))
    assert stamp(moved, newer=newer) == STAMP + 2 + 300 * SECOND
    assert moved.raw.endswith(b" 5\r\nhello\r\n")
    assert clock.told(message(1, newer=newer)) == message(1, newer=newer)
    clock.set(0)
    assert clock.told(message(3, newer=newer)) == message(3, newer=newer)
    assert clock.told(message(2, newer=newer)) == moved
    assert (clock.stamped, clock.plain) == (2, 3)


def test_a_clock_set_before_the_first_message_counts_from_it_on() -> None:
    clock = ServerClock("PICKER_PLANE_")
    clock.set(-5)
    assert stamp(clock.told(message(7))) == STAMP + 7 - 5 * SECOND
    assert clock.ahead == -5


@pytest.mark.parametrize("reply", ["", "_INBOX.a.b", "$JS.ACK.x", "$JS.ACK.PICKER_PLANE_p.c.1.x.1.y.0"])
def test_what_is_no_delivery_of_the_log_is_left_alone(reply: str) -> None:
    clock = ServerClock("PICKER_PLANE_")
    clock.set(5)
    (frame,) = Frames().feed(f"MSG a 1 {reply} 0\r\n\r\n".encode())
    assert clock.told(frame) is frame


def test_other_streams_keep_their_time() -> None:
    clock = ServerClock("PICKER_PLANE_")
    clock.set(5)
    other = message(1, stream="KV_other")
    assert clock.told(other) is other
