from __future__ import annotations

from picker.events.bridge.continuity import Position, contiguous
from picker.events.bridge.dialect import Frames
from picker.events.bridge.sources import Replay


def batch(number: int, life: str = "a") -> Frames:
    return Frames(number, f"{life}{number}".encode())


def at(number: int) -> Position:
    position = Position()
    position.advance(batch(number))
    return position


def test_the_live_stream_is_judged_by_its_numbers() -> None:
    position = at(4)
    assert position.judge(batch(4)) == "old"
    assert position.judge(batch(5)) == "next"
    position.advance(batch(5))
    assert position.judge(batch(8)) == "gap"
    assert position.judge(batch(0)) == "restart"


def test_a_number_seen_twice_in_the_live_stream_is_a_restart() -> None:
    position = Position()
    assert position.judge(batch(0)) == "first"
    position.advance(batch(0))
    assert position.judge(batch(0, "b")) == "restart"


def test_a_replay_of_the_same_life_starts_with_the_last_applied_batch() -> None:
    joined = at(4).join(Replay([batch(4), batch(5), batch(6)], ended=True))
    assert (joined.life, joined.batches, joined.whole) == ("same", [batch(5), batch(6)], True)


def test_a_hole_or_a_missing_end_is_not_whole() -> None:
    assert not at(4).join(Replay([batch(4), batch(6)], ended=True)).whole
    assert not at(4).join(Replay([batch(4), batch(5)], ended=False)).whole


def test_equal_numbers_with_other_bytes_are_another_life() -> None:
    assert at(4).join(Replay([batch(4, "b"), batch(5, "b")], ended=True)).life == "other"


def test_a_replay_that_begins_later_is_another_life() -> None:
    assert at(4).join(Replay([batch(7)], ended=True)).life == "other"


def test_an_empty_buffer_is_another_life_and_silence_is_unknown() -> None:
    assert at(4).join(Replay([], ended=True)).life == "other"
    assert at(4).join(Replay([], ended=False)).life == "unknown"


def test_contiguous_stops_at_the_hole() -> None:
    assert contiguous([batch(3), batch(4), batch(6)], 3) == [batch(3), batch(4)]
    assert contiguous([batch(4)], 3) == []


def test_a_disowned_message_leaves_no_trace() -> None:
    position = at(4)
    assert position.judge(batch(90, "dead")) == "gap"
    position.disown()
    assert position.judge(batch(5)) == "next"
