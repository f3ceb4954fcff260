"""Life of a booking: attempts, draining, reclaiming, adopting, moving, ending."""

from __future__ import annotations

from stateplane.booking import Amount, Cause, State, Status
from stateplane.testing.world import RULES, Case, World, absent, booking, standing, stands


async def a_booking_is_seen_whole_by_every_plane(world: World) -> None:
    """What one books, another finds, every field of it."""
    a, b = await world.join("a"), await world.join("b")
    booked = stands(await a.book(booking("1", key="k", worker="w", tokens=7, blocks=3)))
    assert (booked.owner.name, booked.attempt, booked.term, booked.state) == ("a", 1, 1, State.ACTIVE)
    assert await standing(b, "1") == booked
    assert await b.sums() == {"w": Amount(7, 3, 1)}


async def names_may_hold_any_printable_character(world: World) -> None:
    """No separator of the backend's own shows through."""
    a = await world.join("a|b:c/ü{}", incarnation="1|~#")
    for name in ["a|b", "x:y z", "{t}", "1-2", "ü😀", "a~1", "'\"\\", "%00", "[::1]:8000#0"]:
        booked = stands(await a.book(booking(name, key=f"k {name}", worker=f"w {name}")))
        assert (booked.id, booked.key, booked.worker) == (name, f"k {name}", f"w {name}")
        assert await standing(a, name) == booked
        assert (await a.release(name, Cause.ENDED)).status is Status.DONE
    assert await a.sums() == {}


async def amounts_are_adjusted_inside_the_term(world: World) -> None:
    """Prefill ends, decode grows; the term stays."""
    a = await world.join("a")
    await a.book(booking("1"))
    adjusted = stands(await a.adjust("1", term=1, op=1, amount=Amount(0, 25)))
    assert (adjusted.term, adjusted.op, adjusted.amount) == (1, 1, Amount(0, 25))
    assert await a.sums() == {"w1": Amount(0, 25, 1)}


async def attempts_of_one_key_are_counted_while_known(world: World) -> None:
    """The number rises over owners, and begins anew once no attempt is known."""
    a, b = await world.join("a"), await world.join("b")
    assert stands(await a.book(booking("1", key="k"))).attempt == 1
    assert stands(await b.book(booking("2", key="k"))).attempt == 2
    await a.release("1", Cause.ENDED)
    assert stands(await a.book(booking("3", key="k"))).attempt == 3
    for booking_id in ("2", "3"):
        await b.release(booking_id, Cause.ENDED)
    assert stands(await a.book(booking("4", key="k"))).attempt == 1


async def bookings_without_a_key_never_join(world: World) -> None:
    """An empty key recognises nothing."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    second = await a.book(booking("2"))
    assert (stands(second).attempt, second.superseded) == (1, ())
    assert not (await standing(a, "1")).superseded


async def a_retry_supersedes_the_draining_attempt(world: World) -> None:
    """It drains on, still counted, and the outcome names it."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k", worker="w1"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    retry = await b.book(booking("2", key="k", worker="w2"))
    assert (stands(retry).attempt, retry.superseded) == (2, ("1",))
    older = await standing(b, "1")
    assert (older.superseded, older.state, older.cause) == (True, State.DRAINING, Cause.BROKEN)
    assert await b.sums() == {"w1": Amount(100, 10, 1), "w2": Amount(100, 10, 1)}


async def a_retry_leaves_the_active_attempt_alone(world: World) -> None:
    """Hedging, or ids used twice: both stand, each ends by its own proof."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    retry = await b.book(booking("2", key="k"))
    assert retry.superseded == ()
    older = await standing(b, "1")
    assert (older.state, older.superseded, older.outrun) == (State.ACTIVE, False, True)
    await b.release("2", Cause.ENDED)
    assert (await standing(b, "1")).state is State.ACTIVE


async def an_outrun_attempt_is_superseded_when_its_owner_lapses(world: World) -> None:
    """At that moment, and not before."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    await b.book(booking("2", key="k"))
    await world.live(RULES.lease + RULES.heartbeat, b)
    older = await standing(b, "1")
    assert (older.state, older.cause, older.superseded) == (State.DRAINING, Cause.LEASE, True)
    assert stands(await b.reclaim("1"), Status.SAME).owner.name == "a"


async def an_outrun_attempt_is_superseded_when_it_turns_draining(world: World) -> None:
    """Whether the retry or the broken stream is heard of first makes no difference."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    await b.book(booking("2", key="k"))
    assert stands(await a.drain("1", term=1, op=1, cause=Cause.BROKEN)).superseded


async def a_superseded_booking_is_only_prolonged(world: World) -> None:
    """Neither its owner nor another gets it back; proof of life moves its deadline."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    await b.book(booking("2", key="k"))
    await world.live(RULES.drain - 5, a, b)
    for plane in (a, b):
        kept = stands(await plane.reclaim("1"), Status.SAME)
        assert (kept.owner.name, kept.state, kept.superseded) == ("a", State.DRAINING, True)
        assert kept.drain_left is not None
        assert kept.drain_left > RULES.drain - 1
    await world.live(RULES.drain - 5, a, b)
    await standing(a, "1")
    await world.live(10, a, b)
    await absent(a, "1")
    assert (await a.reclaim("1")).status is Status.GONE


async def a_move_leaves_what_may_still_run_behind(world: World) -> None:
    """Same id under a new term on the new worker; a superseded draining booking on the first."""
    a = await world.join("a")
    await a.book(booking("1", key="k", worker="w1"))
    moved = stands(await a.move("1", term=1, op=1, worker="w2", amount=Amount(50, 5)))
    assert (moved.worker, moved.term, moved.state) == ("w2", 2, State.ACTIVE)
    left = await standing(a, "1~1")
    assert (left.worker, left.state, left.cause, left.superseded) == ("w1", State.DRAINING, Cause.MOVED, True)
    assert await a.sums() == {"w1": Amount(100, 10, 1), "w2": Amount(50, 5, 1)}
    await a.move("1", term=2, op=1, worker="w3", amount=Amount(50, 5))
    assert (await standing(a, "1~2")).worker == "w2"
    await a.release("1", Cause.ENDED)
    await world.live(RULES.drain + 1, a)
    assert await a.sums() == {}


async def a_move_to_the_same_worker_changes_nothing(world: World) -> None:
    """The gateway tried the same endpoint again."""
    a = await world.join("a")
    before = stands(await a.book(booking("1")))
    assert stands(await a.move("1", term=1, op=1, worker="w1", amount=Amount(1, 1)), Status.SAME) == before
    await absent(a, "1~1")


async def a_draining_booking_counts_until_its_deadline(world: World) -> None:
    """Its own seconds if given, and it leaves a tombstone with the cause."""
    a = await world.join("a")
    await a.book(booking("1"))
    drained = stands(await a.drain("1", term=1, op=1, cause=Cause.SILENT, seconds=10))
    assert (drained.term, drained.state, drained.cause, drained.drain_left) == (
        2,
        State.DRAINING,
        Cause.SILENT,
        10,
    )
    await world.live(8, a)
    assert await a.sums() == {"w1": Amount(100, 10, 1)}
    await world.live(4, a)
    assert await a.sums() == {}
    late = await a.book(booking("1"))
    assert (late.status, late.cause) == (Status.GONE, Cause.DEADLINE)


async def the_same_owner_reclaims_under_a_new_term(world: World) -> None:
    """Draining is not the end."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.drain("1", term=1, op=1, cause=Cause.SILENT)
    back = stands(await a.reclaim("1"))
    assert (back.state, back.term, back.cause, back.owner.name) == (State.ACTIVE, 3, None, "a")
    await world.live(RULES.drain * 2, a)
    await standing(a, "1")


async def another_replica_adopts_what_it_sees_alive(world: World) -> None:
    """It becomes the owner, and its heartbeat carries the booking on."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await world.live(RULES.lease + RULES.heartbeat, b)
    adopted = stands(await b.reclaim("1"))
    assert (adopted.owner.name, adopted.state, adopted.term) == ("b", State.ACTIVE, 2)
    await world.live(RULES.drain * 2, b)
    assert await standing(b, "1") == adopted


async def an_active_booking_is_not_adopted(world: World) -> None:
    """Its owner lives: it judges."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    assert stands(await b.reclaim("1"), Status.STALE).owner.name == "a"


async def one_gone_at_its_deadline_comes_back_on_proof_of_life(world: World) -> None:
    """Under a higher term, with all that it occupied."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1", key="k"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=1)
    await world.live(3, a, b)
    await absent(b, "1")
    back = stands(await b.reclaim("1"))
    assert (back.owner.name, back.term, back.amount) == ("b", 3, Amount(100, 10, 1))
    assert await b.sums() == {"w1": Amount(100, 10, 1)}


async def one_gone_by_evidence_comes_back_from_its_living_owner(world: World) -> None:
    """By booking it again with the term that its owner knows."""
    a, b = await world.join("a"), await world.join("b")
    first = stands(await a.book(booking("1")))
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert (await b.release("1", Cause.EVIDENCE, term=first.term)).status is Status.DONE
    back = stands(await a.book(first))
    assert (back.owner.name, back.state, back.term) == ("a", State.ACTIVE, 2)


async def one_proven_ended_never_comes_back(world: World) -> None:
    """Neither by proof of life, nor by its owner, in any term."""
    a, b = await world.join("a"), await world.join("b")
    first = stands(await a.book(booking("1")))
    await b.release("1", Cause.LOGGED)
    for plane in (a, b):
        assert (await plane.reclaim("1")).cause is Cause.LOGGED
        assert (await plane.book(first)).status is Status.GONE
    assert await a.sums() == {}


async def a_proof_makes_an_assumed_end_final(world: World) -> None:
    """What went by evidence and is then proven ended stays away."""
    a = await world.join("a")
    await a.book(booking("1"))
    drained = stands(await a.drain("1", term=1, op=1, cause=Cause.BROKEN))
    await a.release("1", Cause.EVIDENCE, term=drained.term)
    await a.release("1", Cause.ENDED)
    assert (await a.reclaim("1")).cause is Cause.ENDED


async def a_tombstone_is_kept_for_its_time_only(world: World) -> None:
    """Nothing is remembered for ever."""
    a = await world.join("a")
    await a.book(booking("1"))
    await a.release("1", Cause.ENDED)
    await world.live(RULES.tombstone - 5, a)
    assert (await a.book(booking("1"))).status is Status.GONE
    await world.live(10, a)
    assert (await a.reclaim("1")).status is Status.UNKNOWN


CASES: tuple[Case, ...] = (
    a_booking_is_seen_whole_by_every_plane,
    names_may_hold_any_printable_character,
    amounts_are_adjusted_inside_the_term,
    attempts_of_one_key_are_counted_while_known,
    bookings_without_a_key_never_join,
    a_retry_supersedes_the_draining_attempt,
    a_retry_leaves_the_active_attempt_alone,
    an_outrun_attempt_is_superseded_when_its_owner_lapses,
    an_outrun_attempt_is_superseded_when_it_turns_draining,
    a_superseded_booking_is_only_prolonged,
    a_move_leaves_what_may_still_run_behind,
    a_move_to_the_same_worker_changes_nothing,
    a_draining_booking_counts_until_its_deadline,
    the_same_owner_reclaims_under_a_new_term,
    another_replica_adopts_what_it_sees_alive,
    an_active_booking_is_not_adopted,
    one_gone_at_its_deadline_comes_back_on_proof_of_life,
    one_gone_by_evidence_comes_back_from_its_living_owner,
    one_proven_ended_never_comes_back,
    a_proof_makes_an_assumed_end_final,
    a_tombstone_is_kept_for_its_time_only,
)
