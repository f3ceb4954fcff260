"""Rebuildable: the plane may lose everything; its members put it together again."""

from __future__ import annotations

import asyncio

from stateplane.booking import Amount, Cause, Gap, Rebooked, State, Status, Version
from stateplane.errors import PlaneEpochError, PlaneUnavailableError
from stateplane.plane import StatePlane
from stateplane.testing.world import Case, World, booking, found, standing, stands, watched


async def _refused(plane: StatePlane) -> None:
    """Every call says that the epoch is another; a connection that broke may say so first."""
    for _ in range(20):
        try:
            await plane.beat({})
        except PlaneEpochError:
            return
        except PlaneUnavailableError:
            await asyncio.sleep(0.02)
    raise AssertionError("no PlaneEpochError after a restart")


async def every_caller_is_told_of_a_new_epoch(world: World) -> None:
    """Until it joins again, nothing that it says counts."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    before = (await a.snapshot()).version
    await world.harness.restart(lose=True)
    await _refused(a)
    await _refused(b)
    beat = await a.start({})
    assert beat.version.epoch != before.epoch
    assert (await a.snapshot()).bookings == ()


async def a_restart_that_lost_nothing_is_a_new_epoch_too(world: World) -> None:
    """Writes may have been lost: owners say again what is live."""
    a = await world.join("a")
    await a.book(booking("1"))
    await world.harness.restart(lose=False)
    await _refused(a)
    await a.start({})
    assert (await a.snapshot()).bookings == ()
    assert await a.sums() == {}


async def a_watcher_is_told_of_a_new_epoch(world: World) -> None:
    """By a gap, or by its connection breaking and a gap on return."""
    a = await world.join("a")
    version = (await a.snapshot()).version
    await world.harness.restart(lose=True)
    await a.start({})
    (change,) = await watched(a, version, until=Version(version.epoch, version.number + 1))
    assert isinstance(change, Gap)


async def owners_book_again_what_is_live(world: World) -> None:
    """With their terms and numbers; then say that they have."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    kept = stands(await a.move("1", term=1, op=1, worker="w2", amount=Amount(5, 5)))
    kept = stands(await a.adjust("1", term=2, op=3, amount=Amount(0, 6)))
    await world.harness.restart(lose=True)
    for plane in (a, b):
        await plane.start({})
    members = {one.owner.name: one.rebooked for one in (await b.snapshot()).members}
    assert members == {"a": False, "b": False}
    assert stands(await a.book(kept)) == kept
    before = (await b.snapshot()).version
    done = await a.rebooked()
    assert done.version is not None
    (change,) = await watched(b, before, until=done.version)
    assert isinstance(change, Rebooked)
    members = {one.owner.name: one.rebooked for one in (await b.snapshot()).members}
    assert members == {"a": True, "b": False}
    assert stands(await a.adjust("1", term=2, op=2, amount=Amount(9, 9)), Status.STALE).amount == Amount(0, 6)
    assert stands(await a.adjust("1", term=2, op=4, amount=Amount(0, 7))).amount == Amount(0, 7)


async def booking_again_twice_is_one_booking(world: World) -> None:
    """A lost reply after a loss."""
    a = await world.join("a")
    kept = stands(await a.book(booking("1")))
    await world.harness.restart(lose=True)
    await a.start({})
    await a.book(kept)
    assert (await a.book(kept)).status is Status.SAME
    assert await a.sums() == {"w1": Amount(100, 10, 1)}


async def the_higher_term_wins_whoever_books_again_first(world: World) -> None:
    """A former owner that did not hear of the adoption loses, early or late."""
    for order in ("former first", "adopter first"):
        name = f"b {order}"
        a, b = await world.join("a", incarnation=order), await world.join("b", incarnation=order)
        old = stands(await a.book(booking(name)))
        await world.live(4, b)
        new = stands(await b.reclaim(name))
        await world.harness.restart(lose=True)
        for plane in (a, b):
            await plane.start({})
        pairs = [(a, old), (b, new)]
        for plane, kept in pairs if order == "former first" else reversed(pairs):
            await plane.book(kept)
        assert await standing(a, name) == new
        assert (await a.book(old)).status is Status.STALE
        assert (await a.sums())["w1"].requests == 1


async def a_draining_booking_is_booked_again_as_draining(world: World) -> None:
    """With what was left of its time."""
    a = await world.join("a")
    await a.book(booking("1"))
    kept = stands(await a.drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=10))
    await world.harness.restart(lose=True)
    await a.start({})
    await a.rebooked()
    again = stands(await a.book(kept))
    assert (again.state, again.cause, again.term) == (State.DRAINING, Cause.BROKEN, kept.term)
    await world.live(8, a)
    assert found(await a.snapshot(), "1") is not None
    await world.live(4, a)
    assert found(await a.snapshot(), "1") is None


async def attempts_keep_their_order_when_booked_again(world: World) -> None:
    """The older stays outrun, in whichever order they come."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    second = stands(await b.book(booking("2", key="k")))
    first = await standing(a, "1")
    await world.harness.restart(lose=True)
    for plane in (a, b):
        await plane.start({})
    await b.book(second)
    await a.book(first)
    assert (await standing(a, "1")).outrun
    assert not (await standing(a, "2")).outrun
    assert stands(await a.book(booking("3", key="k"))).attempt == 3


async def a_proven_end_outlives_a_restart_that_lost_nothing(world: World) -> None:
    """Final is final."""
    a = await world.join("a")
    kept = stands(await a.book(booking("1")))
    await a.release("1", Cause.ENDED)
    await world.harness.restart(lose=False)
    await a.start({})
    assert (await a.book(kept)).status is Status.GONE


CASES: tuple[Case, ...] = (
    every_caller_is_told_of_a_new_epoch,
    a_restart_that_lost_nothing_is_a_new_epoch_too,
    a_watcher_is_told_of_a_new_epoch,
    owners_book_again_what_is_live,
    booking_again_twice_is_one_booking,
    the_higher_term_wins_whoever_books_again_first,
    a_draining_booking_is_booked_again_as_draining,
    attempts_keep_their_order_when_booked_again,
    a_proven_end_outlives_a_restart_that_lost_nothing,
)
