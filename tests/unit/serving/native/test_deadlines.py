"""Very many deadlines by one timer."""

from __future__ import annotations

import asyncio

from picker.serving.native.deadlines import SLOT_SECONDS, Deadlines


class One:
    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.slot = 0
        self.told: list[float] = []
        self.raises = False

    def due(self, now: float) -> None:
        self.told.append(now)
        self.deadline = None
        if self.raises:
            raise RuntimeError("a defect")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Deadlines, Clock, list[Exception]]:
    clock, defects = Clock(), list[Exception]()
    return Deadlines(clock, defects.append), clock, defects


async def test_each_is_told_after_its_deadline_and_not_before() -> None:
    deadlines, clock, _ = made()
    ones = [One(1000.0 + after) for after in (0.3, 0.1, 0.2, 60.0)]
    for one in ones:
        assert one.deadline
        deadlines.put(one, one.deadline)
    for _ in range(6):
        clock.now += 0.1
        deadlines._fire()
    assert [len(one.told) for one in ones] == [1, 1, 1, 0]
    for one, after in zip(ones, (0.3, 0.1, 0.2), strict=False):
        assert 0 <= one.told[0] - 1000.0 - after <= 0.1 + SLOT_SECONDS
    deadlines.close()


async def test_a_deadline_that_moved_later_is_not_told_early() -> None:
    deadlines, clock, _ = made()
    one = One(1000.1)
    deadlines.put(one, 1000.1)
    one.deadline = 1005.0
    deadlines.put(one, 1005.0)
    clock.now = 1001.0
    deadlines._fire()
    assert one.told == []
    clock.now = 1005.1
    deadlines._fire()
    assert len(one.told) == 1


async def test_a_deadline_that_moved_earlier_is_told_early() -> None:
    deadlines, clock, _ = made()
    one = One(1060.0)
    deadlines.put(one, 1060.0)
    one.deadline = 1001.0
    deadlines.put(one, 1001.0)
    clock.now = 1001.1
    deadlines._fire()
    assert len(one.told) == 1
    clock.now = 1061.0
    deadlines._fire()
    assert len(one.told) == 1


async def test_what_is_dropped_is_never_told_and_one_that_raises_holds_up_no_other() -> None:
    deadlines, clock, defects = made()
    ones = [One(1000.1) for _ in range(4)]
    ones[1].raises = True
    for one in ones:
        deadlines.put(one, 1000.1)
    deadlines.drop(ones[0])
    deadlines.drop(ones[0])
    clock.now = 1001.0
    deadlines._fire()
    assert [len(one.told) for one in ones] == [0, 1, 1, 1]
    assert len(defects) == 1


async def test_the_timer_runs_by_itself() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop.time, lambda _: None)
    late, early = One(loop.time() + 0.3), One(loop.time() + 0.1)
    for one in (late, early):
        assert one.deadline
        deadlines.put(one, one.deadline)
    async with asyncio.timeout(5):
        while not late.told:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)
    assert early.told[0] < late.told[0]
    deadlines.close()
