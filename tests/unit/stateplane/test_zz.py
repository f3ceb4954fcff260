"""One replica's hand in the plane, over the memory plane and its faults, in short real time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from stateplane.booking import (
    NOTHING,
    Amount,
    Booking,
    Cause,
    Change,
    Outcome,
    Owner,
    Rules,
    State,
    Version,
)
from stateplane.breaker import Health
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore

RULES = Rules(lease=0.4, heartbeat=0.1, drain=1.0)
SMALL = Amount(100, 7)


class SlowPlane(MemoryPlane):
    """A memory plane whose answers a test holds back or loses after the plane has acted."""

    hold: asyncio.Event | None = None
    lose: bool = False
    mute: bool = False
    asked: list[str]

    def __init__(self, store: MemoryStore, *, owner: Owner) -> None:
        super().__init__(store, owner=owner)
        self.asked = []

    async def _late(self, name: str, outcome: Outcome) -> Outcome:
        self.asked.append(name)
        if self.hold is not None:
            await self.hold.wait()
        if self.lose:
            await asyncio.sleep(3600)
        return outcome

    async def book(self, booking: Booking) -> Outcome:
        return await self._late("book", await super().book(booking))

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        return await self._late("release", await super().release(booking_id, cause, term=term))

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        return await self._late("adjust", await super().adjust(booking_id, term=term, op=op, amount=amount))

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        async for change in super().changes(after):
            if self.mute:
                await asyncio.sleep(3600)
            yield change


class Pool:
    """Some desks on one store, each with its root task."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.planes: list[SlowPlane] = []
        self.tasks: dict[Desk, asyncio.Task[None]] = {}

    def desk(self, name: str, **more: Any) -> Desk:
        owner = Owner(name, f"{len(self.planes)}")
        plane = SlowPlane(self.store, owner=owner)
        self.planes.append(plane)
        return Desk(plane, owner, rules=RULES, timeout=0.05, rng=random.Random(7), **more)

    async def join(self, name: str, **more: Any) -> Desk:
        desk = self.desk(name, **more)
        assert await desk.start()
        self.run(desk)
        return desk

    def run(self, desk: Desk) -> None:
        self.tasks[desk] = asyncio.create_task(desk.run())

    async def stop(self, desk: Desk) -> None:
        task = self.tasks.pop(desk)
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def agree(self, *desks: Desk, within: float = 3.0) -> None:
        """Wait until the plane and all these views say the same."""

        def same() -> bool:
            standing = {
                one.id: plain(one) for one in self.store.ledger.snapshot(now=self.store.now()).bookings
            }
            return all(
                {id_: plain(b) for id_, b in desk.view.bookings().items()} == standing for desk in desks
            )

        await until(same, within)
        for desk in desks:
            assert dict(desk.view.loads()) == self.store.ledger.sums()


def plain(booking: Booking) -> Booking:
    return replace(booking, drain_left=None)


async def until(true: Callable[[], bool], within: float = 3.0) -> None:
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def pool_of(history: int = 65_536) -> AsyncIterator[Pool]:
    pool = Pool(MemoryStore(RULES, history=history))
    try:
        yield pool
    finally:
        failed = [task for task in pool.tasks.values() if task.done() and not task.cancelled()]
        for task in pool.tasks.values():
            task.cancel()
        await asyncio.gather(*pool.tasks.values(), return_exceptions=True)
        for task in failed:
            task.result()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with pool_of() as pool:
        yield pool


def book(desk: Desk, id_: str = "", *, worker: str = "w1", amount: Amount = SMALL, key: str = "") -> str:
    id_ = id_ or desk.new_id()
    desk.book(id_, key=key, worker=worker, amount=amount, now=time.monotonic())
    return id_


class Lowest:
    """The least number of requests that a view ever said a worker carries."""

    def __init__(self, desk: Desk, worker: str = "w1") -> None:
        self.desk, self.worker = desk, worker
        self.requests = desk.view.load(worker).requests
        desk.view.listen(self._heard)

    def _heard(self, worker: str, requests: int, blocks: int, now: float) -> None:
        if worker == self.worker:
            self.requests = min(self.requests, requests)


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


@pytest.mark.parametrize("seed", list(range(1, 25)))
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
