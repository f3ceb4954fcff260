"""One replica's hand in the plane: whose a booking is when replicas freeze, die, retry or leave."""

from __future__ import annotations

import asyncio
import time

import pytest

from stateplane.booking import (
    NOTHING,
    Amount,
    Cause,
    State,
)
from tests.unit.stateplane.desks import SMALL, Lowest, Pool, book, until

# leases


@pytest.mark.parametrize("seconds", [0.8, 2.0], ids=["draining", "gone at the drain deadline"])
async def test_a_frozen_owner_takes_back_what_it_still_streams_and_none_is_counted_twice(
    pool: Pool, seconds: float
) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    ids = [book(a) for _ in range(10)]
    await pool.agree(a, b)
    await pool.stop(a)
    await until(lambda: all(one.state is State.DRAINING for one in b.view.bookings().values()))
    most = 0
    b.view.listen(lambda worker, requests, blocks, now: nonlocal_most(requests))

    def nonlocal_most(requests: int) -> None:
        nonlocal most
        most = max(most, requests)

    await asyncio.sleep(seconds - 0.5)
    low = Lowest(a)
    pool.run(a)
    a.end(ids[0], Cause.ENDED)
    await until(lambda: len(b.view.bookings()) == 9 and all(
        one.state is State.ACTIVE for one in b.view.bookings().values()))  # fmt: skip
    await pool.agree(a, b)
    assert a.counts.bookings.reclaimed == 9
    assert low.requests == 9
    assert most <= 10


async def test_a_dead_replicas_booking_is_adopted_by_who_sees_it_alive_and_ended_by_who_sees_it_end(
    pool: Pool,
) -> None:
    a, b, c = await pool.join("a"), await pool.join("b"), await pool.join("c")
    book(a, "x")
    await pool.agree(a, b, c)
    b.alive(["x"])
    await asyncio.sleep(0.05)
    assert b.view.bookings()["x"].owner == a.owner
    await pool.stop(a)
    await until(lambda: b.view.bookings()["x"].state is State.DRAINING)
    b.alive(["x"])
    await until(lambda: b.owns("x") and b.view.bookings()["x"].state is State.ACTIVE)
    await pool.agree(b, c)
    assert (c.view.bookings()["x"].owner, c.view.bookings()["x"].state) == (b.owner, State.ACTIVE)
    assert b.owns("x")
    assert b.counts.bookings.adopted == 1
    await asyncio.sleep(1.2)
    assert c.view.load("w1").requests == 1
    c.end_foreign("x", Cause.LOGGED)
    assert c.view.load("w1") == NOTHING
    await pool.agree(b, c)
    assert not b.owns("x")


async def test_a_former_owner_may_only_end_what_was_adopted(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x")
    await pool.agree(a, b)
    await pool.stop(a)
    await until(lambda: b.view.bookings()["x"].state is State.DRAINING)
    b.alive(["x"])
    await until(lambda: b.owns("x") and b.view.bookings()["x"].state is State.ACTIVE)
    pool.run(a)
    await until(lambda: not a.owns("x"))
    a.adjust("x", Amount(1, 1))
    a.lose("x", Cause.BROKEN)
    await pool.agree(a, b)
    assert b.view.bookings()["x"].owner == b.owner
    assert b.view.load("w1") == SMALL
    a.end("x", Cause.ENDED)
    await pool.agree(a, b)
    assert pool.store.ledger.sums() == {}


async def test_a_booking_lost_from_sight_drains_and_goes_or_comes_back_on_proof_of_life(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x")
    book(a, "y")
    await pool.agree(a, b)
    a.lose("x", Cause.BROKEN)
    a.lose("y", Cause.BROKEN)
    await pool.agree(a, b)
    assert b.view.load("w1").requests == 2
    assert b.view.bookings()["x"].cause is Cause.BROKEN
    a.alive(["y"])
    await until(lambda: sorted(b.view.bookings()) == ["y"])
    await pool.agree(a, b)
    assert a.view.bookings()["y"].state is State.ACTIVE


async def test_an_older_attempt_that_drains_is_superseded_by_its_retry_on_another_replica(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x", key="k")
    await pool.agree(a, b)
    a.lose("x", Cause.BROKEN)
    await pool.agree(a, b)
    book(b, "y", key="k", worker="w2")
    assert b.view.bookings()["y"].attempt == 2
    await pool.agree(a, b)
    assert a.view.bookings()["x"].superseded
    assert not a.owns("x")
    a.alive(["x"])
    await pool.agree(a, b)
    assert a.view.bookings()["x"].state is State.DRAINING


async def test_another_worker_served_moves_the_booking_and_the_first_one_counts_on(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    pool.planes[0].hold = asyncio.Event()
    book(a, "x", worker="w1")
    low = Lowest(a)
    a.serve("x", "w2", Amount(50, 7))
    a.serve("x", "w2", Amount(50, 7))
    assert (a.view.load("w1"), a.view.load("w2")) == (Amount(100, 7), Amount(50, 7))
    pool.planes[0].hold.set()
    await pool.agree(a, b)
    assert (b.view.load("w1"), b.view.load("w2")) == (Amount(100, 7), Amount(50, 7))
    assert (b.view.bookings()["x~1"].superseded, b.view.bookings()["x~1"].state) == (True, State.DRAINING)
    a.end("x", Cause.ENDED)
    await pool.agree(a, b)
    assert low.requests == 1
    await until(lambda: not a.view.bookings() and not b.view.bookings())


async def test_leaving_hands_own_bookings_over_as_draining_after_telling_the_rest(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    first = book(a)
    await pool.agree(a, b)
    book(a, "x")
    a.end(first, Cause.ENDED)
    await a.leave()
    await pool.agree(b)
    handed = b.view.bookings()["x"]
    assert (handed.state, handed.cause) == (State.DRAINING, Cause.HANDED)
    assert [member.owner for member in b.members if member.owner == b.owner]
    await asyncio.sleep(0.3)
    assert a.owner not in [member.owner for member in pool.store.ledger.members()]
    assert a.counts.calls.handed == 1
    book(a)
    assert not pool.tasks[a].done()


async def test_leaving_a_plane_that_is_away_takes_no_longer_than_its_bound(pool: Pool) -> None:
    a = await pool.join("a")
    book(a)
    pool.store.freeze()
    began = time.monotonic()
    await a.leave(within=0.3)
    assert time.monotonic() - began < 1.5
