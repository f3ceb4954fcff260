"""One replica's hand in the plane: what it says counts at once, and is told behind; modes, status, leaving."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from stateplane.booking import (
    NOTHING,
    Amount,
    Cause,
    Owner,
    State,
)
from stateplane.breaker import Health
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane
from tests.unit.stateplane.desks import RULES, SMALL, Lowest, Pool, book, until

# seen at once, told behind


async def test_an_own_booking_counts_at_once_and_with_the_others_soon(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x")
    assert a.view.load("w1") == Amount(100, 7, 1)
    await until(lambda: b.view.load("w1") == Amount(100, 7, 1))
    a.adjust("x", Amount(0, 9))
    assert a.view.load("w1") == Amount(0, 9, 1)
    await pool.agree(a, b)
    a.end("x", Cause.ENDED)
    assert a.view.load("w1") == NOTHING
    await pool.agree(a, b)
    assert pool.store.ledger.sums() == {}


async def test_ids_are_unguessable_short_and_safe_in_headers(pool: Pool) -> None:
    desk = pool.desk("a")
    ids = {desk.new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(id_) == 16 and id_.isascii() and "~" not in id_ for id_ in ids)


async def test_the_same_booking_said_twice_counts_once(pool: Pool) -> None:
    a = await pool.join("a")
    book(a, "x")
    again = a.book("x", key="", worker="w2", amount=SMALL, now=time.monotonic())
    assert again.worker == "w1"
    await pool.agree(a)
    assert pool.store.ledger.sums() == {"w1": Amount(100, 7, 1)}


async def test_a_booking_that_ended_before_it_was_sent_never_reaches_the_plane(pool: Pool) -> None:
    a = await pool.join("a")
    book(a, "x")
    a.end("x", Cause.ENDED)
    await asyncio.sleep(0.05)
    assert pool.planes[0].asked == []
    assert a.counts.bookings.cancelled == 1
    assert a.view.bookings() == {}


async def test_an_end_before_the_answer_to_its_book_leaves_nothing(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    plane = pool.planes[0]
    plane.hold = asyncio.Event()
    book(a, "x")
    await until(lambda: plane.asked == ["book"])
    lowest = Lowest(b)
    a.adjust("x", Amount(0, 7))
    a.end("x", Cause.ENDED)
    assert a.view.load("w1") == NOTHING
    plane.hold.set()
    await until(lambda: "release" in plane.asked)
    await pool.agree(a, b)
    assert plane.asked == ["book", "release"]
    assert pool.store.ledger.sums() == {}
    assert lowest.requests == 0


async def test_an_end_after_a_lost_answer_to_its_book_leaves_no_ghost(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    plane = pool.planes[0]
    plane.lose = True
    book(a, "x")
    await until(lambda: plane.asked == ["book"])
    a.end("x", Cause.ENDED)
    await until(lambda: a.counts.calls.failed > 0)
    plane.lose = False
    await until(lambda: pool.store.ledger.sums() == {})
    await pool.agree(a, b)


async def test_operations_that_raced_with_the_book_wait_for_its_term_and_only_the_newest_is_sent(
    pool: Pool,
) -> None:
    a = await pool.join("a")
    plane = pool.planes[0]
    plane.hold = asyncio.Event()
    book(a, "x")
    await until(lambda: plane.asked == ["book"])
    for tokens in (90, 50, 10, 0):
        a.adjust("x", Amount(tokens, 7))
    plane.hold.set()
    await pool.agree(a)
    assert plane.asked == ["book", "adjust"]
    assert pool.store.ledger.sums() == {"w1": Amount(0, 7, 1)}


async def test_a_lost_answer_is_asked_for_again_and_does_no_more_than_once(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    plane = pool.planes[0]
    plane.lose = True
    ids = [book(a) for _ in range(20)]
    await until(lambda: a.status().state is Health.AWAY)
    plane.lose = False
    await pool.agree(a, b)
    assert pool.store.ledger.sums() == {"w1": Amount(2000, 140, 20)}
    assert sorted(a.view.bookings()) == sorted(ids)


async def test_values_that_no_plane_takes_count_here_and_stop_nobody(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x", key="k" * 5000)
    book(a, "y")
    await until(lambda: b.view.load("w1").requests == 1)
    assert a.view.load("w1").requests == 2
    assert a.counts.calls.invalid == 1
    a.end("x", Cause.ENDED)
    await pool.agree(a, b)


async def test_strange_ids_from_a_log_are_counted_and_go_nowhere(pool: Pool) -> None:
    a = await pool.join("a")
    a.end_foreign("x y\n", Cause.LOGGED)
    a.alive(["", "\ud800", "z" * 1000, "never-heard-of"])
    await asyncio.sleep(0.02)
    assert a.counts.strange == 4
    assert a.counts.calls.calls < 10


# modes and telling


class NoPlane(MemoryPlane):
    """Must not be asked anything."""

    async def _ledger(self, *, joining: bool = False) -> Any:
        raise AssertionError("isolated asked the plane")

    async def leave(self) -> None:
        raise AssertionError("isolated left the plane")


async def test_isolated_needs_no_plane_and_ends_what_drains_by_its_own_clock(pool: Pool) -> None:
    owner = Owner("a", "1")
    desk = Desk(NoPlane(pool.store, owner=owner), owner, rules=RULES, mode="isolated")
    assert await desk.start()
    pool.run(desk)
    book(desk, "x")
    book(desk, "y")
    book(desk, "z")
    desk.serve("z", "w2", SMALL)
    desk.adjust("x", Amount(0, 8))
    assert desk.view.load("w1") == Amount(200, 22, 3)
    desk.end("x", Cause.ENDED)
    desk.end("x", Cause.ENDED)
    desk.lose("y", Cause.BROKEN)
    desk.alive(["z~1", "y", "q"])
    desk.lose("y", Cause.BROKEN)
    assert (desk.joined, desk.degraded, desk.status().state) == (True, False, Health.HEALTHY)
    assert desk.view.load("w1").requests == 2
    await until(lambda: sorted(desk.view.bookings()) == ["z"])
    assert desk.view.load("w2").requests == 1
    await desk.leave()


async def test_members_see_what_each_says_of_itself(pool: Pool) -> None:
    a = await pool.join("a", info={"schema": "1"})
    b = await pool.join("b", info={"schema": "1", "log": "yes"})
    a.publish(log="no")
    await until(
        lambda: (
            {m.owner.name: dict(m.info) for m in b.members}
            == {"a": {"schema": "1", "log": "no"}, "b": {"schema": "1", "log": "yes"}}
        )
    )


async def test_the_status_tells_own_foreign_and_draining(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    book(a, "x")
    book(a, "y")
    book(b)
    await pool.agree(a, b)
    a.lose("y", Cause.BROKEN)
    await pool.agree(a, b)
    await until(lambda: a.status().lag == 0)
    status = a.status()
    assert (status.own, status.foreign, status.draining, status.outbox) == (2, 1, 1, 0)
    assert status.version == b.status().version
    assert status.state is Health.HEALTHY


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_three_desks_agree_after_random_operations_and_faults(pool: Pool, seed: int) -> None:
    rng = random.Random(seed)
    desks = [await pool.join(name) for name in "abc"]
    live: dict[Desk, list[str]] = {desk: [] for desk in desks}
    retried: set[str] = set()
    for _ in range(400):
        desk = rng.choice(desks)
        act = rng.choice(
            ["book", "book", "book", "end", "end", "adjust", "serve", "lose", "fault", "rest", "rest"]
        )
        if act == "book":
            key = rng.choice(["", "", "k"])
            live[desk].append(book(desk, worker=rng.choice(["w1", "w2"]), key=key))
            retried.update(live[desk][-1:] if key else ())
        elif act == "rest":
            await asyncio.sleep(0.002)
        elif act == "fault" and rng.random() < 0.1:
            pool.store.restart(lose=rng.random() < 0.5)
        elif act == "fault" and rng.random() < 0.2:
            pool.store.away = not pool.store.away
        elif live[desk]:
            id_ = rng.choice(live[desk])
            if act == "adjust":
                desk.adjust(id_, Amount(rng.randrange(50), 5))
            elif act == "serve":
                desk.serve(id_, rng.choice(["w1", "w2"]), SMALL)
            elif act in ("end", "lose"):
                live[desk].remove(id_)
                desk.end(id_, Cause.ENDED) if act == "end" else desk.lose(id_, Cause.BROKEN)
    pool.store.away = False
    await asyncio.sleep(1.5)  # what drains goes, what was left behind too
    await pool.agree(*desks, within=5.0)
    standing = desks[0].view.bookings()
    for desk in desks:
        for id_ in live[desk]:
            assert id_ in retried or standing[id_].state is State.ACTIVE
