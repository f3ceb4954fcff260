"""Repeatable: an operation sent twice does no more than once, and says so."""

from __future__ import annotations

from stateplane.booking import Amount, Cause, Outcome, Status
from stateplane.plane import StatePlane
from stateplane.testing.world import Case, World, booking, stands


async def _unchanged(plane: StatePlane, repeated: Outcome, first: Outcome) -> None:
    assert repeated.status is Status.SAME, repeated
    assert (repeated.booking, repeated.version) == (first.booking, None)


async def a_book_sent_twice_is_one_booking(world: World) -> None:
    """A lost reply."""
    a = await world.join("a")
    first = await a.book(booking("1", key="k"))
    before = (await a.snapshot()).version
    await _unchanged(a, await a.book(booking("1", key="k")), first)
    assert (await a.snapshot()).version == before
    assert await a.sums() == {"w1": Amount(100, 10, 1)}


async def a_move_sent_twice_moves_once(world: World) -> None:
    """The second is told the term that the first began."""
    a = await world.join("a")
    await a.book(booking("1"))
    first = await a.move("1", term=1, op=1, worker="w2", amount=Amount(1, 1))
    await _unchanged(a, await a.move("1", term=1, op=1, worker="w2", amount=Amount(1, 1)), first)
    assert len((await a.snapshot()).bookings) == 2


async def an_adjust_sent_twice_counts_once(world: World) -> None:
    """Amounts are set, never added."""
    a = await world.join("a")
    await a.book(booking("1"))
    first = await a.adjust("1", term=1, op=1, amount=Amount(0, 12))
    await _unchanged(a, await a.adjust("1", term=1, op=1, amount=Amount(0, 12)), first)
    assert await a.sums() == {"w1": Amount(0, 12, 1)}


async def a_drain_sent_twice_keeps_its_deadline(world: World) -> None:
    """The second does not buy time."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=10)
    await world.live(5, a)
    again = stands(await a.drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=10), Status.SAME)
    assert again.drain_left is not None
    assert again.drain_left < 6
    assert again.term == 2


async def a_reclaim_sent_twice_takes_one_term(world: World) -> None:
    """The second finds its own."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    first = await a.reclaim("1")
    await _unchanged(a, await a.reclaim("1"), first)


async def a_release_sent_twice_ends_once(world: World) -> None:
    """The first cause stays."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    assert (await a.release("1", Cause.ENDED)).status is Status.DONE
    before = (await a.snapshot()).version
    again = await b.release("1", Cause.LOGGED)
    assert (again.status, again.cause) == (Status.SAME, Cause.ENDED)
    assert (await a.snapshot()).version == before
    assert await a.sums() == {}


async def rebooked_said_twice_is_one_change(world: World) -> None:
    """The second changes nothing."""
    a = world.open("a")
    await a.start({})
    assert (await a.rebooked()).status is Status.DONE
    before = (await a.snapshot()).version
    assert (await a.rebooked()).status is Status.SAME
    assert (await a.snapshot()).version == before


async def a_start_repeated_is_one_member(world: World) -> None:
    """Joining again is a heartbeat."""
    a = await world.join("a")
    await a.book(booking("1"))
    beat = await a.start({"round": "2"})
    assert [member.info["round"] for member in beat.members] == ["2"]
    assert await a.sums() == {"w1": Amount(100, 10, 1)}


CASES: tuple[Case, ...] = (
    a_book_sent_twice_is_one_booking,
    a_move_sent_twice_moves_once,
    an_adjust_sent_twice_counts_once,
    a_drain_sent_twice_keeps_its_deadline,
    a_reclaim_sent_twice_takes_one_term,
    a_release_sent_twice_ends_once,
    rebooked_said_twice_is_one_change,
    a_start_repeated_is_one_member,
)
