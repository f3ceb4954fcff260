"""Fenced: terms and operation numbers decide, never the order of arrival."""

from __future__ import annotations

from stateplane.booking import Amount, Cause, State, Status
from stateplane.testing.world import RULES, Case, World, booking, standing, stands


async def an_older_operation_after_its_successor_does_nothing(world: World) -> None:
    """Number 1 arrives after number 2."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.adjust("1", term=1, op=2, amount=Amount(0, 20))
    assert stands(await a.adjust("1", term=1, op=1, amount=Amount(9, 9)), Status.STALE).amount == Amount(
        0, 20
    )
    assert await a.sums() == {"w1": Amount(0, 20, 1)}


async def an_operation_of_an_older_term_does_nothing(world: World) -> None:
    """However high its number."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    await a.reclaim("1")
    for late in (
        await a.adjust("1", term=1, op=99, amount=Amount(9, 9)),
        await a.move("1", term=1, op=99, worker="w9", amount=Amount(9, 9)),
        await a.drain("1", term=1, op=99, cause=Cause.BROKEN),
        await a.drain("1", term=1, op=1, cause=Cause.BROKEN),
    ):
        assert (stands(late, Status.STALE).state, late.version) == (State.ACTIVE, None)


async def an_operation_of_another_replica_does_nothing(world: World) -> None:
    """Only the owner's change a booking, ends apart."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    assert (await b.adjust("1", term=1, op=1, amount=Amount(9, 9))).status is Status.STALE
    assert (await b.drain("1", term=1, op=1, cause=Cause.BROKEN)).status is Status.STALE
    assert (await b.move("1", term=1, op=1, worker="w9", amount=Amount(9, 9))).status is Status.STALE
    assert (await b.book(booking("1"))).status is Status.STALE
    assert (await standing(b, "1")).owner.name == "a"


async def a_release_before_its_book_wins(world: World) -> None:
    """The end was proven; the book comes too late."""
    a, b = await world.join("a"), await world.join("b")
    assert (await b.release("1", Cause.LOGGED)).status is Status.UNKNOWN
    late = await a.book(booking("1"))
    assert (late.status, late.cause) == (Status.GONE, Cause.LOGGED)
    assert await a.sums() == {}


async def a_late_book_after_its_release_does_nothing(world: World) -> None:
    """A booking that has ended stays ended."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.release("1", Cause.ENDED)
    assert (await a.book(booking("1"))).status is Status.GONE
    assert (await a.adjust("1", term=1, op=1, amount=Amount(1, 1))).status is Status.GONE
    assert await a.sums() == {}


async def a_proven_end_is_final_in_any_term_from_any_replica(world: World) -> None:
    """Even after the booking was moved and adopted."""
    a, b, c = await world.join("a"), await world.join("b"), await world.join("c")
    await a.book(booking("1"))
    await a.move("1", term=1, op=1, worker="w2", amount=Amount(1, 1))
    await world.live(RULES.lease + RULES.heartbeat, b, c)
    await b.reclaim("1")
    assert (await c.release("1", Cause.LOGGED, term=1)).status is Status.DONE
    assert "w2" not in await b.sums()


async def evidence_of_an_older_term_does_nothing(world: World) -> None:
    """What was reclaimed since it was judged lives."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    drained = stands(await a.drain("1", term=1, op=1, cause=Cause.BROKEN))
    await a.reclaim("1")
    assert (await b.release("1", Cause.EVIDENCE, term=drained.term)).status is Status.STALE
    assert (await standing(a, "1")).state is State.ACTIVE


async def evidence_never_ends_an_active_booking(world: World) -> None:
    """Its owner lives and has no proof of the end."""
    a, b = await world.join("a"), await world.join("b")
    booked = stands(await a.book(booking("1")))
    assert (await b.release("1", Cause.EVIDENCE, term=booked.term)).status is Status.STALE


async def a_former_owner_may_only_end_what_was_adopted(world: World) -> None:
    """It was silent for too long; its proof counts all the same."""
    a, b = await world.join("a"), await world.join("b")
    first = stands(await a.book(booking("1")))
    await world.live(RULES.lease + RULES.heartbeat, b)
    adopted = stands(await b.reclaim("1"))
    await a.beat({})
    assert (await a.adjust("1", term=1, op=1, amount=Amount(9, 9))).status is Status.STALE
    assert (await a.adjust("1", term=2, op=1, amount=Amount(9, 9))).status is Status.STALE
    assert (await a.book(first)).status is Status.STALE
    assert (await a.reclaim("1")).status is Status.STALE
    assert await standing(a, "1") == adopted
    assert (await a.release("1", Cause.ENDED)).status is Status.DONE


async def a_replica_restarted_under_its_name_is_somebody_else(world: World) -> None:
    """The incarnation decides: it does not inherit, it adopts like any other."""
    first, second = await world.join("a", incarnation="1"), await world.join("a", incarnation="2")
    await first.book(booking("1"))
    assert (await second.adjust("1", term=1, op=1, amount=Amount(9, 9))).status is Status.STALE
    await world.live(RULES.lease + RULES.heartbeat, second)
    assert (await standing(second, "1")).state is State.DRAINING
    assert stands(await second.reclaim("1")).owner.incarnation == "2"


async def a_release_of_the_first_attempt_spares_the_second(world: World) -> None:
    """Ids name attempts, keys only join them."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    await b.book(booking("2", key="k"))
    await a.release("1", Cause.ENDED)
    assert (await standing(b, "2")).state is State.ACTIVE
    assert await b.sums() == {"w1": Amount(100, 10, 1)}


async def an_unknown_booking_is_said_to_be_unknown(world: World) -> None:
    """No operation brings one about but a book."""
    a = await world.join("a")
    for outcome in (
        await a.adjust("1", term=1, op=1, amount=Amount(1, 1)),
        await a.move("1", term=1, op=1, worker="w", amount=Amount(1, 1)),
        await a.drain("1", term=1, op=1, cause=Cause.BROKEN),
        await a.reclaim("1"),
        await a.release("1", Cause.EVIDENCE, term=1),
    ):
        assert outcome.status is Status.UNKNOWN
    assert (await a.snapshot()).bookings == ()


CASES: tuple[Case, ...] = (
    an_older_operation_after_its_successor_does_nothing,
    an_operation_of_an_older_term_does_nothing,
    an_operation_of_another_replica_does_nothing,
    a_release_before_its_book_wins,
    a_late_book_after_its_release_does_nothing,
    a_proven_end_is_final_in_any_term_from_any_replica,
    evidence_of_an_older_term_does_nothing,
    evidence_never_ends_an_active_booking,
    a_former_owner_may_only_end_what_was_adopted,
    a_replica_restarted_under_its_name_is_somebody_else,
    a_release_of_the_first_attempt_spares_the_second,
    an_unknown_booking_is_said_to_be_unknown,
)
