"""Threads on which long work lets short work through."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError

import pytest

from picker.requests.turns import SHORT, Turn, Turns

PATIENT = 30.0


class Steps:
    """Work whose steps are held at a door each."""

    def __init__(self, sizes: list[int], order: list[str], name: str) -> None:
        self.sizes, self.order, self.name = sizes, order, name
        self.door = threading.Semaphore(0)
        self.came = threading.Semaphore(0)

    def work(self) -> Generator[int, None, str]:
        for size in self.sizes:
            yield size
            self.order.append(self.name)
            self.came.release()
            assert self.door.acquire(timeout=PATIENT)
        return self.name

    def at_door(self) -> None:
        assert self.came.acquire(timeout=PATIENT)


@pytest.fixture
def order() -> list[str]:
    return []


@pytest.fixture
def opened() -> Iterator[list[Turns]]:
    mine: list[Turns] = []
    yield mine
    for turns in mine:
        turns.close()


def pool(opened: list[Turns], threads: int, waiting: int = 100) -> Turns:
    opened.append(Turns(threads, waiting))
    return opened[0]


def begin(turns: Turns, steps: Steps, size: int = 0) -> Turn[str]:
    turn = turns.begin(steps.work(), size)
    assert turn is not None
    return turn


def at_once() -> Generator[int, None, str]:
    yield 1
    return "done"


def test_long_work_leaves_a_thread_to_short_work(opened: list[Turns], order: list[str]) -> None:
    turns = pool(opened, 2)
    long = [Steps([SHORT + 1], order, f"long {n}") for n in range(3)]
    first = begin(turns, long[0])
    long[0].at_door()
    others = [begin(turns, steps) for steps in long[1:]]
    for _ in range(20):
        turn = turns.begin(at_once(), 1)
        assert turn is not None
        assert turn.future.result(PATIENT) == "done"
    assert order == ["long 0"]
    for steps in long:
        steps.door.release()
    assert [turn.future.result(PATIENT) for turn in (first, *others)] == ["long 0", "long 1", "long 2"]


def test_on_one_thread_short_work_waits_for_a_step_and_not_for_the_whole(
    opened: list[Turns], order: list[str]
) -> None:
    turns = pool(opened, 1)
    long, short = Steps([SHORT] * 5, order, "long"), Steps([1], order, "short")
    slow = begin(turns, long)
    for _ in range(2):
        long.at_door()
        if order.count("long") < 2:
            long.door.release()
    quick = begin(turns, short)
    long.door.release()
    short.at_door()
    assert order == ["long", "long", "short"]
    short.door.release()
    assert quick.future.result(PATIENT) == "short"
    long.door.release(5)
    assert slow.future.result(PATIENT) == "long"


def test_what_was_begun_first_is_finished_first(opened: list[Turns], order: list[str]) -> None:
    turns = pool(opened, 1)
    work = [Steps([SHORT + 1] * 3, order, str(n)) for n in range(3)]
    for steps in work:
        steps.door.release(3)
    done = [begin(turns, steps) for steps in work]
    assert [turn.future.result(PATIENT) for turn in done] == ["0", "1", "2"]
    assert order == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


def test_long_work_may_take_half_of_the_room(opened: list[Turns], order: list[str]) -> None:
    turns = pool(opened, 1, waiting=7)
    held = Steps([1], order, "held")
    begin(turns, held)
    held.at_door()
    assert [turns.begin(at_once(), SHORT + 1) is not None for _ in range(5)] == [True] * 3 + [False] * 2
    assert [turns.begin(at_once(), 1) is not None for _ in range(5)] == [True] * 4 + [False]
    assert turns.held == turns.limit
    held.door.release()


def test_abandoned_work_goes_on_while_nothing_waits(opened: list[Turns], order: list[str]) -> None:
    turns = pool(opened, 1)
    steps = Steps([1, 1], order, "abandoned")
    turn = begin(turns, steps)
    steps.at_door()
    turns.abandon(turn)
    steps.door.release(2)
    assert turn.future.result(PATIENT) == "abandoned"


def test_abandoned_work_is_dropped_once_something_waits(opened: list[Turns], order: list[str]) -> None:
    turns = pool(opened, 1)
    steps = Steps([1, 1], order, "abandoned")
    turn = begin(turns, steps)
    steps.at_door()
    turns.abandon(turn)
    waiting = turns.begin(at_once(), 1)
    assert waiting is not None
    steps.door.release()
    assert waiting.future.result(PATIENT) == "done"
    assert turn.future.cancelled()
    assert order == ["abandoned"]
    assert turns.held == 0


def test_what_waits_and_is_abandoned_gives_up_its_place_and_its_body_at_once(
    opened: list[Turns], order: list[str]
) -> None:
    turns = pool(opened, 1)
    steps, never = Steps([1], order, "running"), Steps([1], order, "never begun")
    running = begin(turns, steps)
    steps.at_door()
    waiting = begin(turns, never)
    kept = weakref.ref(never)
    del never
    turns.abandon(waiting)
    assert kept() is None
    assert turns.held == 1
    steps.door.release()
    assert running.future.result(PATIENT) == "running"
    assert order == ["running"]
    assert turns.held == 0


def test_long_work_that_waits_begun_and_is_abandoned_makes_room(
    opened: list[Turns], order: list[str]
) -> None:
    turns = pool(opened, 1)
    gate = Steps([1], order, "gate")
    begin(turns, gate)
    gate.at_door()
    first, second = (Steps([SHORT + 1] * 2, order, name) for name in ("first", "second"))
    running, waiting = begin(turns, first), begin(turns, second)
    gate.door.release()
    first.at_door()  # both have begun: what has not comes before what is long
    turns.abandon(waiting)
    assert turns.held == 2  # it has begun, and is all that waits
    third = begin(turns, Steps([1], order, "third"))
    turns.abandon(third)
    turns.abandon(waiting)
    first.door.release(2)
    second.door.release(2)
    assert running.future.result(PATIENT) == "first"
    assert waiting.future.result(PATIENT) == "second"
    assert third.future.cancelled()
    assert "third" not in order


def test_an_error_belongs_to_whoever_waits(opened: list[Turns]) -> None:
    class _PanicError(BaseException):
        pass

    def failing() -> Generator[int, None, str]:
        yield 1
        raise _PanicError

    turns = pool(opened, 1)
    turn = turns.begin(failing(), 1)
    assert turn is not None
    assert isinstance(turn.future.exception(PATIENT), _PanicError)
    after = turns.begin(at_once(), 1)
    assert after is not None
    assert after.future.result(PATIENT) == "done"
    assert turns.held == 0


def test_once_closed_what_waits_is_cancelled_and_nothing_is_taken(
    opened: list[Turns], order: list[str]
) -> None:
    turns = pool(opened, 1)
    steps = Steps([1, 1], order, "running")
    running = begin(turns, steps)
    steps.at_door()
    waiting = turns.begin(at_once(), 1)
    assert waiting is not None
    turns.close()
    assert waiting.future.cancelled()
    assert turns.begin(at_once(), 1) is None
    steps.door.release(2)
    with pytest.raises(CancelledError):
        running.future.result(PATIENT)
    assert running.future.cancelled()
    assert order == ["running"]
