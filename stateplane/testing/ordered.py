"""Ordered: changes are numbered without a gap, and one who misses some is told."""

from __future__ import annotations

import asyncio

from stateplane.booking import Amount, Booked, Cause, Gap, Gone, Version
from stateplane.plane import StatePlane
from stateplane.testing.world import RULES, Case, World, booking, fold, timeless, watched


async def changes_are_numbered_without_a_gap(world: World) -> None:
    """Book, adjust, drain, end: one number each."""
    a = await world.join("a")
    before = (await a.snapshot()).version
    await a.book(booking("1"))
    await a.adjust("1", term=1, op=1, amount=Amount(0, 10))
    await a.drain("1", term=1, op=2, cause=Cause.BROKEN)
    last = (await a.release("1", Cause.ENDED)).version
    assert last is not None
    changes = await watched(a, before, until=last)
    assert [type(change) for change in changes] == [Booked, Booked, Booked, Gone]
    numbers = [change.version.number for change in changes if not isinstance(change, Gap)]
    assert numbers == list(range(before.number + 1, before.number + 5))


async def a_change_carries_the_version_that_its_outcome_told(world: World) -> None:
    """So that a writer knows its own among the changes."""
    a, b = await world.join("a"), await world.join("b")
    before = (await a.snapshot()).version
    outcome = await a.book(booking("1"))
    assert outcome.version is not None
    (change,) = await watched(b, before, until=outcome.version)
    assert isinstance(change, Booked)
    assert (change.version, change.booking) == (outcome.version, outcome.booking)


async def a_watcher_hears_of_what_comes_later(world: World) -> None:
    """It waits at the end of the history."""
    a, b = await world.join("a"), await world.join("b")
    before = (await b.snapshot()).version
    waiting = asyncio.create_task(watched(b, before, until=Version(before.epoch, before.number + 2)))
    await asyncio.sleep(0.02)
    await a.book(booking("1"))
    await a.release("1", Cause.ENDED)
    assert [type(change) for change in await waiting] == [Booked, Gone]


async def a_snapshot_and_the_changes_after_it_give_the_next(world: World) -> None:
    """Under writers that do not pause, from any point on."""
    a, b = await world.join("a"), await world.join("b")

    async def churn(plane: StatePlane, name: str) -> None:
        for n in range(60):
            await plane.book(booking(f"{name}{n}", key=f"k{n}", worker=f"w{n % 3}"))
            if n % 3 == 0:
                await plane.drain(f"{name}{n}", term=1, op=1, cause=Cause.BROKEN)
            if n % 4 == 1:
                await plane.release(f"{name}{n - 1}", Cause.ENDED)

    writers = [asyncio.create_task(churn(plane, name)) for plane, name in ((a, "a"), (b, "b"))]
    early = [await b.snapshot() for _ in range(4)]
    await asyncio.gather(*writers)
    await world.live(RULES.lease + RULES.heartbeat, b)
    last = await b.snapshot()
    for snapshot in early:
        changes = await watched(b, snapshot.version, until=last.version)
        folded = fold({one.id: one for one in snapshot.bookings}, changes)
        assert timeless(folded) == timeless({one.id: one for one in last.bookings})


async def a_watcher_of_another_epoch_gets_a_gap(world: World) -> None:
    """And nothing else."""
    a = await world.join("a")
    epoch = (await a.snapshot()).version.epoch
    await a.book(booking("1"))
    (change,) = await watched(a, Version(epoch - 1, 0), until=Version(epoch, 99))
    assert isinstance(change, Gap)


async def a_watcher_too_far_behind_gets_a_gap(world: World) -> None:
    """The history is bounded."""
    a = await world.join("a")
    before = (await a.snapshot()).version
    await a.book(booking("1"))
    await world.harness.forget_history()
    last = (await a.book(booking("2"))).version
    assert last is not None
    changes = await watched(a, before, until=last)
    assert isinstance(changes[0], Gap)
    assert len(changes) == 1


async def a_snapshot_tells_members_and_what_they_say(world: World) -> None:
    """Whoever has joined and not lapsed."""
    a, b = await world.join("a"), await world.join("b")
    await a.beat({"digest": "abc", "log": "yes"})
    members = {member.owner.name: member.info for member in (await b.snapshot()).members}
    assert sorted(members) == ["a", "b"]
    assert members["a"].items() >= {"digest": "abc", "log": "yes"}.items()
    assert members["b"].items() >= {"schema": "1"}.items()
    assert {member.owner.name for member in (await b.beat({})).members} == {"a", "b"}


CASES: tuple[Case, ...] = (
    changes_are_numbered_without_a_gap,
    a_change_carries_the_version_that_its_outcome_told,
    a_watcher_hears_of_what_comes_later,
    a_snapshot_and_the_changes_after_it_give_the_next,
    a_watcher_of_another_epoch_gets_a_gap,
    a_watcher_too_far_behind_gets_a_gap,
    a_snapshot_tells_members_and_what_they_say,
)
