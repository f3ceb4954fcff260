"""One replica's hand in a plane that is away, has lost everything, or whose feed breaks off."""

from __future__ import annotations

import asyncio
import time

import pytest

from stateplane.booking import (
    NOTHING,
    Amount,
    Booking,
    Cause,
    Owner,
    State,
)
from stateplane.breaker import Health
from tests.unit.stateplane.desks import SMALL, Lowest, Pool, book, pool_of, until

# the plane away


async def test_a_plane_that_is_away_at_the_start_is_joined_later(pool: Pool) -> None:
    pool.store.away = True
    a = pool.desk("a")
    began = time.monotonic()
    assert not await a.start(within=0.2)
    assert time.monotonic() - began < 1.0
    pool.run(a)
    book(a, "x")
    assert (a.degraded, a.joined, a.status().state) == (True, False, Health.AWAY)
    assert a.view.load("w1").requests == 1
    pool.store.away = False
    await until(lambda: a.joined)
    await pool.agree(a)
    assert (a.degraded, a.status().state) == (False, Health.HEALTHY)


@pytest.mark.parametrize("fault", ["away", "frozen"])
async def test_a_plane_away_under_load_raises_nothing_reads_never_zero_and_is_caught_up_on_return(
    pool: Pool, fault: str
) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    ids = [book(a) for _ in range(30)]
    book(b)
    await pool.agree(a, b)
    low_a, low_b = Lowest(a), Lowest(b)
    if fault == "away":
        pool.store.away = True
    else:
        pool.store.freeze()
    for id_ in ids[:10]:
        a.end(id_, Cause.ENDED)
    for _ in range(10):
        ids.append(book(a))
        await asyncio.sleep(0.02)
    a.adjust(ids[12], Amount(0, 7))
    await until(lambda: a.status().state is Health.AWAY)
    assert a.view.load("w1").requests == 31
    assert b.view.load("w1").requests >= 31
    assert a.status().lag > 0
    pool.store.away = False
    pool.store.thaw()
    await pool.agree(a, b, within=2.0)
    assert pool.store.ledger.sums()["w1"].requests == 31
    assert all(one.state is State.ACTIVE for one in a.view.bookings().values())
    assert min(low_a.requests, low_b.requests) >= 21
    assert a.status().outbox == 0


async def test_the_outbox_is_bounded_and_what_it_dropped_is_told_all_the_same(pool: Pool) -> None:
    a = await pool.join("a", capacity=16)
    b = await pool.join("b")
    kept = [book(a) for _ in range(40)]
    await pool.agree(a, b)
    pool.store.away = True
    await until(lambda: a.status().state is Health.AWAY)
    for _ in range(60):
        book(a)
    for id_ in kept:
        a.end(id_, Cause.ENDED)
    assert a.status().outbox <= 16
    assert a.counts.bookings.dropped >= 60
    assert a.view.load("w1").requests == 60
    pool.store.away = False
    await until(lambda: pool.store.ledger.sums()["w1"].requests == 60)
    await pool.agree(a, b)


# a new epoch


async def test_a_plane_that_lost_everything_is_told_again_and_no_view_reads_low_meanwhile(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    for _ in range(25):
        book(a)
        book(b)
    lost = book(a, worker="w2")
    a.lose(lost, Cause.BROKEN)
    await pool.agree(a, b)
    low = [Lowest(a), Lowest(b), Lowest(a, "w2"), Lowest(b, "w2")]
    pool.store.restart(lose=True)
    await until(lambda: a.view.version.epoch == b.view.version.epoch == 2 and not a.status().owing, 2.0)
    await pool.agree(a, b, within=2.0)
    assert [one.requests for one in low] == [50, 50, 1, 1]
    await until(lambda: not a.status().kept and not b.status().kept)
    await until(lambda: all(member.rebooked for member in a.members))


async def test_an_end_during_the_loss_of_everything_stays_an_end(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    ids = [book(a) for _ in range(10)]
    await pool.agree(a, b)
    pool.store.restart(lose=True)
    for id_ in ids[:5]:
        a.end(id_, Cause.ENDED)
    assert a.view.load("w1").requests == 5
    await until(lambda: b.view.version.epoch == 2)
    await pool.agree(a, b)
    assert sorted(b.view.bookings()) == sorted(ids[5:])


async def test_the_dead_of_an_old_epoch_are_believed_for_a_lease_and_no_longer(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a)
    book(b, worker="w2")
    await pool.agree(a, b)
    await pool.stop(a)
    pool.store.restart(lose=True)
    await until(lambda: b.view.version.epoch == 2)
    assert b.view.load("w1").requests == 1
    await until(lambda: b.view.load("w1") == NOTHING)
    await pool.agree(b)


# the feed


async def test_a_gap_in_the_feed_is_filled_by_a_picture() -> None:
    async with pool_of(history=4) as pool:
        a = await pool.join("a")
        ledger, other = pool.store.ledger, Owner("b", "1")
        ledger.join(other, {}, now=pool.store.now())
        for n in range(20):
            ledger.book(other, Booking(f"b{n}", "", "w1", other, SMALL), now=pool.store.now())
        pool.store.publish()
        await pool.agree(a)
        assert a.view.load("w1").requests == 20
        assert a.counts.calls.gaps == 1


async def test_a_feed_that_falls_silent_while_the_plane_moves_on_is_noticed(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    pool.planes[1].mute = True
    for _ in range(5):
        book(a)
    await until(lambda: b.status().lag > 0)
    await until(lambda: b.view.load("w1").requests == 5)
    assert b.counts.calls.stalls >= 1


async def test_a_late_joiner_is_equal_before_it_has_started(pool: Pool) -> None:
    a = await pool.join("a")
    for n in range(50):
        book(a, worker=f"w{n % 3}")
    await pool.agree(a)
    late = pool.desk("late")
    assert await late.start()
    assert dict(late.view.bookings()) == dict(a.view.bookings())
    assert dict(late.view.loads()) == pool.store.ledger.sums()
