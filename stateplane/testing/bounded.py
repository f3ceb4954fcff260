"""Bounded: a silent owner's bookings drain in time and go in time; a living one's never do."""

from __future__ import annotations

from stateplane.booking import Booked, Cause, Gone, OwnerLapsed, State
from stateplane.testing.world import RULES, Case, World, absent, booking, standing, watched


async def a_silent_owners_bookings_drain_within_lease_and_heartbeat(world: World) -> None:
    """Not before the lease, and all of them."""
    a, b = await world.join("a"), await world.join("b")
    for booking_id in ("1", "2"):
        await a.book(booking(booking_id))
    await world.live(RULES.lease - RULES.heartbeat, b)
    assert (await standing(b, "1")).state is State.ACTIVE
    await world.live(2 * RULES.heartbeat, b)
    for booking_id in ("1", "2"):
        drained = await standing(b, booking_id)
        assert (drained.state, drained.cause) == (State.DRAINING, Cause.LEASE)
    assert [member.owner.name for member in (await b.snapshot()).members] == ["b"]


async def a_lapse_is_one_change_however_many_bookings(world: World) -> None:
    """Three hundred bookings, one entry."""
    a, b = await world.join("a"), await world.join("b")
    for n in range(300):
        await a.book(booking(str(n)))
    before = (await b.snapshot()).version
    await world.live(RULES.lease + RULES.heartbeat, b)
    after = (await b.snapshot()).version
    (change,) = await watched(b, before, until=after)
    assert isinstance(change, OwnerLapsed)
    assert (change.owner.name, change.cause) == ("a", Cause.LEASE)


async def a_lapsed_owners_bookings_are_gone_by_their_deadline(world: World) -> None:
    """Each with a versioned end, however many there are."""
    a, b = await world.join("a"), await world.join("b")
    for n in range(300):
        await a.book(booking(str(n)))
    await world.live(RULES.lease + RULES.heartbeat, b)
    before = (await b.snapshot()).version
    await world.live(RULES.drain - 2, b)
    assert (await b.sums())["w1"].requests == 300
    await world.live(4, b)
    assert await b.sums() == {}
    changes = await watched(b, before, until=(await b.snapshot()).version)
    assert {c.id for c in changes if isinstance(c, Gone) and c.cause is Cause.DEADLINE} == {
        str(n) for n in range(300)
    }


async def a_living_owners_booking_never_expires(world: World) -> None:
    """Twenty minutes under a lease of three seconds."""
    a = await world.join("a")
    await a.book(booking("1"))
    await world.live(1200, a)
    assert (await standing(a, "1")).state is State.ACTIVE


async def a_returned_owner_is_told_that_its_lease_fell(world: World) -> None:
    """Its old bookings drain until reclaimed, its new ones are active."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert (await a.beat({})).returned
    assert not (await a.beat({})).returned
    await a.book(booking("2"))
    assert (await standing(b, "1")).state is State.DRAINING
    assert (await standing(b, "2")).state is State.ACTIVE
    await a.reclaim("1")
    assert (await standing(b, "1")).state is State.ACTIVE


async def an_owner_may_lapse_again_and_again(world: World) -> None:
    """Each lapse takes what was active then, with its own deadline."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await world.live(RULES.lease + RULES.heartbeat, b)
    await a.beat({})
    await a.book(booking("2"))
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert (await standing(b, "2")).state is State.DRAINING
    await world.live(RULES.drain - RULES.lease - RULES.heartbeat + 1, b)
    await absent(b, "1")
    await standing(b, "2")
    await world.live(RULES.lease + RULES.heartbeat, b)
    await absent(b, "2")


async def an_operation_of_a_lapsed_owner_counts_as_a_sign_of_life_once(world: World) -> None:
    """A book that comes after the lapse is under a new lease, which falls in its turn."""
    a, b = await world.join("a"), await world.join("b")
    await world.live(RULES.lease + RULES.heartbeat, b)
    await a.book(booking("1"))
    assert (await standing(b, "1")).state is State.ACTIVE
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert (await standing(b, "1")).state is State.DRAINING


async def one_that_leaves_hands_its_bookings_over(world: World) -> None:
    """In one change, with the cause, and at once."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await a.book(booking("2"))
    before = (await b.snapshot()).version
    await a.leave()
    after = (await b.snapshot()).version
    (change,) = await watched(b, before, until=after)
    assert isinstance(change, OwnerLapsed)
    assert change.cause is Cause.HANDED
    assert (await standing(b, "1")).cause is Cause.HANDED
    assert (await b.reclaim("2")).booking is not None
    assert [member.owner.name for member in (await b.snapshot()).members] == ["b"]


async def drained_bookings_go_one_by_one_in_versions(world: World) -> None:
    """Deadlines of their own, each end a change."""
    a = await world.join("a")
    for n in (1, 2, 3):
        await a.book(booking(str(n)))
        await a.drain(str(n), term=1, op=1, cause=Cause.BROKEN, seconds=2 * n)
    before = (await a.snapshot()).version
    await world.live(9, a)
    changes = await watched(a, before, until=(await a.snapshot()).version)
    assert [c.id for c in changes if isinstance(c, Gone)] == ["1", "2", "3"]
    assert not any(isinstance(c, Booked) for c in changes)


CASES: tuple[Case, ...] = (
    a_silent_owners_bookings_drain_within_lease_and_heartbeat,
    a_lapse_is_one_change_however_many_bookings,
    a_lapsed_owners_bookings_are_gone_by_their_deadline,
    a_living_owners_booking_never_expires,
    a_returned_owner_is_told_that_its_lease_fell,
    an_owner_may_lapse_again_and_again,
    an_operation_of_a_lapsed_owner_counts_as_a_sign_of_life_once,
    one_that_leaves_hands_its_bookings_over,
    drained_bookings_go_one_by_one_in_versions,
)
