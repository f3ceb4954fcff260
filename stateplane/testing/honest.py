"""Honest: every failure is one of our errors, in time; a plane that returns is used again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stateplane.booking import Amount, Cause, Status
from stateplane.errors import (
    PlaneClosedError,
    PlaneEpochError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.plane import StatePlane
from stateplane.testing.world import Case, World, booking, stands

T = TypeVar("T")


def _calls(plane: StatePlane) -> tuple[Callable[[], Awaitable[object]], ...]:
    return (
        lambda: plane.start({}),
        lambda: plane.book(booking("1")),
        lambda: plane.move("1", term=1, op=1, worker="w", amount=Amount(1, 1)),
        lambda: plane.adjust("1", term=1, op=1, amount=Amount(1, 1)),
        lambda: plane.drain("1", term=1, op=1, cause=Cause.BROKEN),
        lambda: plane.reclaim("1"),
        lambda: plane.release("1", Cause.ENDED),
        plane.rebooked,
        lambda: plane.beat({}),
        plane.snapshot,
        plane.sums,
    )


async def _raises(kind: type[StatePlaneError], call: Callable[[], Awaitable[object]]) -> None:
    try:
        given = await call()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, got {given!r}")


async def a_frozen_plane_answers_every_call_with_a_timeout(world: World) -> None:
    """Within the deadline, with room for a busy machine."""
    a = await world.join("a")
    await world.harness.freeze()
    try:
        for call in _calls(a):
            began = time.monotonic()
            await _raises(PlaneUnavailableError, call)
            assert time.monotonic() - began < world.harness.timeout * 4 + 1
        await _raises(PlaneTimeoutError, lambda: a.beat({}))
    finally:
        await world.harness.thaw()


async def a_plane_that_was_frozen_is_used_again(world: World) -> None:
    """Without a restart of the caller, and with what stood before."""
    a = await world.join("a")
    await a.book(booking("1"))
    await world.harness.freeze()
    try:
        await _raises(PlaneUnavailableError, lambda: a.book(booking("2")))
    finally:
        await world.harness.thaw()
    outcome = await _eventually(lambda: a.book(booking("2")))
    assert outcome.status in (Status.DONE, Status.SAME)
    assert (await a.sums())["w1"].requests == 2


async def a_plane_that_is_away_answers_every_call_with_an_error(world: World) -> None:
    """Ours, and soon."""
    a = await world.join("a")
    await world.harness.stop()
    try:
        for call in _calls(a):
            await _raises(PlaneUnavailableError, call)
        await a.leave()
    finally:
        await world.harness.restart(lose=True)


async def a_plane_that_came_back_is_joined_anew(world: World) -> None:
    """Start is all that it takes."""
    a = await world.join("a")
    await world.harness.stop()
    await _raises(PlaneUnavailableError, lambda: a.beat({}))
    await world.harness.restart(lose=True)
    await _eventually(lambda: a.start({}))
    assert stands(await a.book(booking("1"))).term == 1


async def a_feed_breaks_with_an_error_when_the_plane_goes(world: World) -> None:
    """Or ends in a gap; it never hangs silently."""
    a = await world.join("a")
    version = (await a.snapshot()).version

    async def follow() -> list[object]:
        return [change async for change in a.changes(version)]

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await world.harness.restart(lose=True)
    try:
        async with asyncio.timeout(world.harness.timeout + 5):
            changes = await following
        assert len(changes) == 1
    except PlaneUnavailableError:
        pass
    await _eventually(lambda: a.start({}))


async def a_plane_that_was_not_started_says_so(world: World) -> None:
    """No call works before the epoch is known."""
    a = world.open("a")
    await _raises(PlaneEpochError, lambda: a.book(booking("1")))
    await _raises(PlaneEpochError, a.snapshot)
    await a.leave()


async def a_closed_plane_says_so(world: World) -> None:
    """To every call; closing twice is fine."""
    a = await world.join("a")
    await a.close()
    await a.close()
    for call in _calls(a):
        await _raises(PlaneClosedError, call)
    await a.leave()


async def values_out_of_range_are_refused_before_any_call(world: World) -> None:
    """They are faults of the program, not of the plane."""
    a = await world.join("a")
    for wrong in (
        lambda: a.book(booking("")),
        lambda: a.book(booking("x" * 10_000)),
        lambda: a.book(booking("1", tokens=-1)),
        lambda: a.book(booking("1", blocks=1 << 60)),
        lambda: a.book(booking("a\0b")),
        lambda: a.adjust("1", term=1, op=0, amount=Amount(1, 1)),
        lambda: a.drain("1", term=1, op=1, cause=Cause.ENDED),
        lambda: a.release("1", Cause.EVIDENCE),
        lambda: a.release("1", Cause.BROKEN),
        lambda: a.beat({"x": "y" * 100_000}),
    ):
        try:
            await wrong()
        except ValueError:
            continue
        raise AssertionError("a value out of range was taken")
    assert (await a.snapshot()).bookings == ()


async def many_calls_at_once_are_each_answered(world: World) -> None:
    """Each by its own reply."""
    a = await world.join("a")
    outcomes = await asyncio.gather(*(a.book(booking(str(n), worker=f"w{n}")) for n in range(300)))
    assert [stands(outcome).worker for outcome in outcomes] == [f"w{n}" for n in range(300)]


async def _eventually(call: Callable[[], Awaitable[T]]) -> T:
    for _ in range(100):
        try:
            return await call()
        except PlaneUnavailableError:
            await asyncio.sleep(0.02)
    return await call()


CASES: tuple[Case, ...] = (
    a_frozen_plane_answers_every_call_with_a_timeout,
    a_plane_that_was_frozen_is_used_again,
    a_plane_that_is_away_answers_every_call_with_an_error,
    a_plane_that_came_back_is_joined_anew,
    a_feed_breaks_with_an_error_when_the_plane_goes,
    a_plane_that_was_not_started_says_so,
    a_closed_plane_says_so,
    values_out_of_range_are_refused_before_any_call,
    many_calls_at_once_are_each_answered,
)
