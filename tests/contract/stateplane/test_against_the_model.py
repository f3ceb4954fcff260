"""The Redis plane does what the model does, whatever happens in whatever order.

The model is the ledger behind the memory plane. Both get the same operations, late and doubled ones among them; after
each step bookings, members, numbering and sums are compared, at the end the changes folded. Times are a hundred times
as long as usual and the clock is virtual, so that the machine's own speed does not matter.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stateplane.booking import (
    NOTHING,
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Outcome,
    Owner,
    Rules,
    Snapshot,
    State,
    Terms,
)
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.plane import StatePlane
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import Keys
from stateplane.testing.world import fold, timeless, watched
from tests.contract.stateplane.servers import Server

T = TypeVar("T")

BEAT = 100.0
RULES = Rules(lease=250.0, heartbeat=BEAT, drain=950.0, superseded_drain=450.0, tombstone=2050.0)
CLOSE = 30.0
"""Seconds that real time may make a deadline differ by."""
NAMES = ("a", "b", "c")
POOLS = itertools.count()

ids = st.sampled_from(["1", "2", "3", "4|~", "1~1"])
owners = st.sampled_from(NAMES)
amounts = st.builds(Amount, st.integers(0, 5000), st.integers(0, 300), st.integers(0, 1))
workers = st.sampled_from(["w1", "w2", "w 3"])
bookings = st.builds(
    Booking,
    ids,
    st.sampled_from(["", "k", "k", "l"]),
    workers,
    st.just(Owner("x", "x")),
    amounts,
    st.integers(1, 3),
)
ops = st.integers(1, 4)
steps = st.integers(-1, 1)
ends = st.sampled_from([Cause.ENDED, Cause.LOGGED, Cause.EVIDENCE, Cause.EVIDENCE])
candidates = st.lists(
    st.builds(Candidate, workers, st.floats(-1e4, 1e4, width=32), amounts, st.integers(0, 3)),
    min_size=1,
    max_size=4,
)
terms = st.builds(Terms, *[st.floats(0, 50, width=32)] * 3)

Operation = Callable[[StatePlane], Awaitable[Outcome]]


class Comparison(RuleBasedStateMachine):
    """Three owners, each with a plane of either kind."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.client = self.server.client()
        self.pool = f"pool-{next(POOLS)}"
        self.seconds = 1_000.0
        self.store = MemoryStore(RULES, clock=lambda: self.seconds)
        self.model: dict[str, StatePlane] = {}
        self.real: dict[str, StatePlane] = {}
        self.sent: list[tuple[str, Operation]] = []
        self.seen: dict[str, Booking] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            owner = Owner(name, "1")
            self.model[name] = MemoryPlane(self.store, owner=owner, timeout=5)
            self.real[name] = RedisPlane(self.server.url, pool=self.pool, owner=owner, rules=RULES, timeout=5)
        self.start_all()

    def start_all(self) -> None:
        for name in NAMES:
            self.both_beat(name, lambda plane: plane.start({}))
        self.base = (self.run(self.model["a"].snapshot()), self.run(self.real["a"].snapshot()))
        self.offset = self.base[1].version.number - self.base[0].version.number

    # --- the same for both

    def both(self, name: str, operation: Operation) -> Outcome:
        expected = self.run(_await(operation(self.model[name])))
        given = self.run(_await(operation(self.real[name])))
        self.sent.append((name, operation))
        assert _plain(given) == _plain(expected)
        _same_booking(given.booking, expected.booking)
        if expected.booking is not None:
            self.seen[expected.booking.id] = expected.booking
        if expected.version is not None:
            assert given.version is not None
            assert given.version.number == expected.version.number + self.offset
        return expected

    def both_beat(self, name: str, beat: Callable[[StatePlane], Awaitable[Beat]]) -> None:
        expected = self.run(_await(beat(self.model[name])))
        given = self.run(_await(beat(self.real[name])))
        for one in ("reaped", "rebased", "returned"):
            assert getattr(given, one) == getattr(expected, one), one
        assert sorted(map(str, given.lapsed)) == sorted(map(str, expected.lapsed))

    def move_clock(self, seconds: float) -> None:
        self.seconds += seconds
        self.client.hincrby(Keys(self.pool)["meta"], "skew", -round(seconds * 1000))

    def term(self, booking_id: str, step: int) -> int:
        known = self.seen.get(booking_id)
        return max(0, (known.term if known else 1) + step)

    # --- what may happen

    @rule(name=owners, booking=bookings)
    def book(self, name: str, booking: Booking) -> None:
        self.both(name, lambda plane: plane.book(booking))

    @rule(name=owners, booking_id=ids, step=steps)
    def book_again(self, name: str, booking_id: str, step: int) -> None:
        known = self.seen.get(booking_id)
        if known is not None:
            again = replace(known, term=max(1, known.term + step))
            self.both(name, lambda plane: plane.book(again))

    @rule(name=owners, booking=bookings, offered=candidates, weights=terms)
    def select(self, name: str, booking: Booking, offered: list[Candidate], weights: Terms) -> None:
        self.both(name, lambda plane: plane.select(booking, offered, weights))

    @rule(name=owners, booking_id=ids, step=steps, op=ops, worker=workers, amount=amounts)
    def move(self, name: str, booking_id: str, step: int, op: int, worker: str, amount: Amount) -> None:
        term = self.term(booking_id, step)
        self.both(name, lambda plane: plane.move(booking_id, term=term, op=op, worker=worker, amount=amount))

    @rule(name=owners, booking_id=ids, step=steps, op=ops, amount=amounts)
    def adjust(self, name: str, booking_id: str, step: int, op: int, amount: Amount) -> None:
        term = self.term(booking_id, step)
        self.both(name, lambda plane: plane.adjust(booking_id, term=term, op=op, amount=amount))

    @rule(
        name=owners,
        booking_id=ids,
        step=steps,
        op=ops,
        cause=st.sampled_from([Cause.BROKEN, Cause.SILENT]),
        seconds=st.sampled_from([None, None, 0.0, 150.0, 350.0]),
    )
    def drain(
        self, name: str, booking_id: str, step: int, op: int, cause: Cause, seconds: float | None
    ) -> None:
        term = self.term(booking_id, step)
        self.both(name, lambda plane: plane.drain(booking_id, term=term, op=op, cause=cause, seconds=seconds))

    @rule(name=owners, booking_id=ids)
    def the_owner_drains_its_own(self, name: str, booking_id: str) -> None:
        known = self.seen.get(booking_id)
        if known is not None:
            owner, term, op = known.owner.name, known.term, known.op + 1
            self.both(owner, lambda plane: plane.drain(booking_id, term=term, op=op, cause=Cause.BROKEN))

    @rule(booking_id=ids, worker=workers, amount=amounts)
    def the_owner_moves_its_own(self, booking_id: str, worker: str, amount: Amount) -> None:
        known = self.seen.get(booking_id)
        if known is not None:
            owner, term, op = known.owner.name, known.term, known.op + 1
            self.both(
                owner, lambda plane: plane.move(booking_id, term=term, op=op, worker=worker, amount=amount)
            )

    @rule(name=owners, booking_id=ids)
    def reclaim(self, name: str, booking_id: str) -> None:
        self.both(name, lambda plane: plane.reclaim(booking_id))

    @rule(name=owners, booking_id=ids, cause=ends, step=steps)
    def release(self, name: str, booking_id: str, cause: Cause, step: int) -> None:
        term = self.term(booking_id, step)
        self.both(name, lambda plane: plane.release(booking_id, cause, term=term))

    @rule(name=owners)
    def rebooked(self, name: str) -> None:
        self.both(name, lambda plane: plane.rebooked())

    @rule(data=st.data())
    def a_message_comes_again(self, data: st.DataObject) -> None:
        if self.sent:
            name, operation = data.draw(st.sampled_from(self.sent[-12:]))
            self.both(name, operation)

    @rule(alive=st.sets(owners, min_size=1), beats=st.integers(1, 6))
    def time_passes(self, alive: set[str], beats: int) -> None:
        for _ in range(beats):
            self.move_clock(BEAT)
            for name in sorted(alive):
                self.both_beat(name, lambda plane: plane.beat({}))

    @rule(gap=st.sampled_from([1000.0, 30_000.0, -30_000.0]), name=owners)
    def the_plane_pauses(self, gap: float, name: str) -> None:
        self.move_clock(gap)
        self.both_beat(name, lambda plane: plane.beat({}))

    @rule(name=owners)
    def one_leaves(self, name: str) -> None:
        for plane in (self.model[name], self.real[name]):
            self.run(plane.leave())

    @rule(lose=st.booleans())
    def the_plane_restarts(self, lose: bool) -> None:
        if lose:
            self.client.delete(*Keys(self.pool).all)
        else:
            self.client.hset(Keys(self.pool)["meta"], "run", "another")
        self.store.restart(lose=lose)
        self.start_all()

    # --- what must hold at every step

    @invariant()
    def pictures_and_sums_agree(self) -> None:
        if not self.model:
            return
        expected, given = self.pictures()
        assert sorted(one.id for one in given.bookings) == sorted(one.id for one in expected.bookings)
        mine = {one.id: one for one in expected.bookings}
        for one in given.bookings:
            _same_booking(one, mine[one.id])
        assert _members(given) == _members(expected)
        assert given.version.number == expected.version.number + self.offset
        counted: dict[str, Amount] = {}
        for one in given.bookings:
            counted[one.worker] = counted.get(one.worker, NOTHING) + one.amount
        counted = {worker: amount for worker, amount in counted.items() if amount != NOTHING}
        assert dict(self.run(_await(self.real["b"].sums()))) == counted
        assert self.store.ledger.sums() == counted

    def pictures(self) -> tuple[Snapshot, Snapshot]:
        return self.run(self.model["a"].snapshot()), self.run(self.real["a"].snapshot())

    def teardown(self) -> None:
        try:
            if self.model:
                self.changes_fold_into_the_picture()
        finally:
            for plane in (*self.model.values(), *self.real.values()):
                self.run(plane.close())
            self.client.delete(*Keys(self.pool).all)
            self.client.close()
            self.runner.close()

    def changes_fold_into_the_picture(self) -> None:
        for planes, base, last in zip((self.model, self.real), self.base, self.pictures(), strict=True):
            changes = self.run(watched(planes["a"], base.version, until=last.version))
            folded = fold({one.id: one for one in base.bookings}, changes)
            assert timeless(folded) == timeless({one.id: one for one in last.bookings})


async def _await(work: Awaitable[T]) -> T:
    return await work


def _plain(outcome: Outcome) -> Outcome:
    return replace(outcome, booking=None, version=None)


def _members(snapshot: Snapshot) -> dict[str, bool]:
    return {str(member.owner): member.rebooked for member in snapshot.members}


def _same_booking(given: Booking | None, expected: Booking | None) -> None:
    if given is None or expected is None:
        assert given is expected
        return
    assert replace(given, drain_left=None) == replace(expected, drain_left=None)
    if expected.state is State.DRAINING:
        assert given.drain_left is not None
        assert expected.drain_left is not None
        assert abs(given.drain_left - expected.drain_left) < CLOSE


@pytest.mark.parametrize(("name", "examples"), [("valkey", 25), ("redis7", 12)])
def test_the_redis_plane_does_what_the_model_does(
    request: pytest.FixtureRequest, name: str, examples: int
) -> None:
    class OnServer(Comparison):
        server = request.getfixturevalue(name)

    if OnServer.server.process is None:
        OnServer.server.start()
    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
