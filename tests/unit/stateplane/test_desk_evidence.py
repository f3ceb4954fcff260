"""Evidence against another replica's draining booking: fenced by its term, undone by proof of life."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from stateplane.booking import Cause, Outcome, State
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane
from tests.unit.stateplane.choosing import SMALL, ChoosingPlane, pool, standing, until


async def draining(a: Desk, b: Desk, booking_id: str = "x") -> None:
    """A booking of a's that b sees draining."""
    a.book(booking_id, key="", worker="w1", amount=SMALL, now=0.0)
    await until(lambda: state(b, booking_id) is State.ACTIVE)
    a.lose(booking_id, Cause.BROKEN)
    await until(lambda: state(b, booking_id) is State.DRAINING)


def state(desk: Desk, booking_id: str = "x") -> State | None:
    booking = desk.view.booking(booking_id)
    return None if booking is None else booking.state


@contextmanager
def releases_held(plane: ChoosingPlane) -> Iterator[asyncio.Event]:
    """Releases of that replica reach the plane only once the event is set."""
    go = asyncio.Event()

    async def late(booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        await go.wait()
        return await MemoryPlane.release(plane, booking_id, cause, term=term)

    plane.release = late  # type: ignore[method-assign]
    yield go
    go.set()


async def test_a_draining_booking_of_another_replica_is_ended_in_all_views() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        await draining(a, b)
        b.end_foreign("x", Cause.EVIDENCE)
        assert state(b) is None
        await until(lambda: not standing(store) and state(a) is None)
        await asyncio.sleep(0.25)
        assert (state(a), state(b)) == (None, None)
        assert not a.owns("x")


async def test_proof_of_life_after_the_evidence_brings_it_back() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        await draining(a, b)
        b.end_foreign("x", Cause.EVIDENCE)
        await until(lambda: not standing(store) and state(a) is None)
        a.alive(["x"])
        await until(lambda: state(b) is State.ACTIVE and state(a) is State.ACTIVE)
        assert a.owns("x")
        assert a.view.load("w1") == b.view.load("w1") == SMALL


async def test_evidence_that_comes_after_the_owner_took_it_back_is_stale() -> None:
    async with pool("ab") as (store, [(a, _), (b, other)]):
        await draining(a, b)
        with releases_held(other) as go:
            b.end_foreign("x", Cause.EVIDENCE)
            a.alive(["x"])
            await until(lambda: a.view.standing("x") is not None and state(a) is State.ACTIVE)
            await until(lambda: "x" in standing(store) and a.status().outbox == 0)
            go.set()
            await until(lambda: b.counts.bookings.stale == 1)
            await until(lambda: state(b) is State.ACTIVE)
        assert standing(store) == {"x": "w1"}
        assert not b.owns("x")
        await asyncio.sleep(0.25)
        assert (state(a), state(b)) == (State.ACTIVE, State.ACTIVE)


async def test_a_refuted_evidence_is_seen_at_once_and_not_at_the_next_heartbeat() -> None:
    async with pool("ab") as (_, [(a, _), (b, other)]):
        await draining(a, b)
        with releases_held(other) as go:
            b.end_foreign("x", Cause.EVIDENCE)
            a.alive(["x"])
            await until(lambda: (found := b.view.standing("x")) is not None and found.state is State.ACTIVE)
            assert state(b) is None
            go.set()
            await until(lambda: not b.owns("x"))
            assert state(b) is State.ACTIVE


async def test_own_evidence_right_after_the_drain_ends_it_too() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        a.book("x", key="", worker="w1", amount=SMALL, now=0.0)
        await until(lambda: state(b) is State.ACTIVE)
        a.lose("x", Cause.BROKEN)
        a.end_foreign("x", Cause.EVIDENCE)  # the plane has not heard of the draining yet
        await until(lambda: not standing(store))
        await until(lambda: (state(a), state(b)) == (None, None))
        assert a.counts.bookings.strays == 0
        assert "x" in a._table.faded


async def test_evidence_found_in_one_term_does_not_end_the_next_draining() -> None:
    async with pool("ab") as (store, [(a, _), (b, other)]):
        await draining(a, b)
        with releases_held(other) as go:
            b.end_foreign("x", Cause.EVIDENCE)
            await asyncio.sleep(0.05)
            a.alive(["x"])
            await until(lambda: (one := b.view.standing("x")) is not None and one.state is State.ACTIVE)
            a.lose("x", Cause.BROKEN, seconds=30.0)
            await until(lambda: (one := b.view.standing("x")) is not None and one.state is State.DRAINING)
            go.set()
            await until(lambda: not b.owns("x"))
        assert standing(store) == {"x": "w1"}
        assert (state(a), state(b)) == (State.DRAINING, State.DRAINING)


async def test_a_proof_that_follows_the_evidence_is_not_lost_with_it() -> None:
    async with pool("ab") as (store, [(a, _), (b, other)]):
        await draining(a, b)
        with releases_held(other) as go:
            b.end_foreign("x", Cause.EVIDENCE)
            await asyncio.sleep(0.05)
            a.alive(["x"])
            await until(lambda: a.status().outbox == 0 and state(a) is State.ACTIVE)
            b.end_foreign("x", Cause.LOGGED)
            go.set()
            await until(lambda: not standing(store) and state(a) is None)
        await until(lambda: state(b) is None and not b.owns("x"))


async def test_evidence_twice_and_of_what_nobody_knows_does_no_harm() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        await draining(a, b)
        for _ in range(3):
            b.end_foreign("x", Cause.EVIDENCE)
        b.end_foreign("never-heard-of", Cause.EVIDENCE)
        await until(lambda: not standing(store) and b.status().outbox == 0)
        await until(lambda: not b.owns("x") and not b.owns("never-heard-of"))
        a.book("y", key="", worker="w1", amount=SMALL, now=0.0)
        await until(lambda: state(b, "y") is State.ACTIVE)
