"""Replicas' claims against the ledger, over a network that loses, delays and reorders: they always end up agreeing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given, note, settings
from hypothesis import strategies as st

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
)
from stateplane.calls import Adjust, Book, Call, Drain, Move, Reclaim, Release
from stateplane.claims import Claims
from stateplane.hearing import Hearing
from stateplane.ledger import Ledger
from stateplane.table import Table
from stateplane.view import View

RULES = Rules(lease=3.0, heartbeat=1.0, drain=5.0, tombstone=60.0)
WORKERS = ("w1", "w2", "w3")


def ask(ledger: Ledger, owner: Owner, call: Call, now: int) -> Outcome:
    match call:
        case Book(booking):
            return ledger.book(owner, booking, now=now)
        case Move(id_, term, op, worker, amount):
            return ledger.move(owner, id_, term=term, op=op, worker=worker, amount=amount, now=now)
        case Adjust(id_, term, op, amount):
            return ledger.adjust(owner, id_, term=term, op=op, amount=amount, now=now)
        case Drain(id_, term, op, cause, seconds):
            return ledger.drain(owner, id_, term=term, op=op, cause=cause, seconds=seconds, now=now)
        case Reclaim(id_):
            return ledger.reclaim(owner, id_, now=now)
        case Release(id_, cause, term):
            return ledger.release(id_, cause, term=term, now=now)


def summed(view: View) -> dict[str, Amount]:
    sums: dict[str, Amount] = {}
    for booking in view.bookings().values():
        sums[booking.worker] = sums.get(booking.worker, NOTHING) + booking.amount
    return {worker: amount for worker, amount in sums.items() if amount != NOTHING}


@dataclass
class Replica:
    owner: Owner
    table: Table
    claims: Claims
    hearing: Hearing
    flying: list[tuple[str, Call, Outcome | None]] = field(default_factory=list)
    feed: list[Change] = field(default_factory=list)
    epoch: int = 0
    live: dict[str, str] = field(default_factory=dict)
    """Bookings whose stream this replica holds, and the worker they are on."""

    @property
    def view(self) -> View:
        return self.table.view


class World:
    """Some replicas, one ledger, a clock, and a network whose every step the test chooses."""

    def __init__(self, replicas: int) -> None:
        self.now = 1000.0
        self.ledger = Ledger(RULES, now=self.ms)
        self.minted = 0
        self.ended: set[str] = set()
        self.replicas = [self._replica(n) for n in range(replicas)]
        for replica in self.replicas:
            self.join(replica)

    @property
    def ms(self) -> int:
        return round(self.now * 1000)

    def _replica(self, n: int) -> Replica:
        owner, view = Owner(f"r{n}", "x"), View(lease=4.0)
        table = Table(owner, view, rules=RULES, capacity=1000)
        return Replica(owner, table, Claims(table), Hearing(table))

    def publish(self) -> None:
        for change in self.ledger.take():
            for replica in self.replicas:
                replica.feed.append(change)

    def join(self, replica: Replica) -> None:
        replica.hearing.beating()
        beat = self.ledger.join(replica.owner, {}, now=self.ms)
        self.publish()
        replica.epoch = self.ledger.epoch
        self.resync(replica)
        replica.view.members_seen(beat.members, self.now)
        replica.hearing.beat(beat.version, self.now)

    def resync(self, replica: Replica) -> None:
        replica.feed.clear()
        replica.hearing.fold(self.ledger.snapshot(now=self.ms), self.now)

    def beat(self, replica: Replica) -> None:
        if replica.epoch != self.ledger.epoch:
            self.join(replica)
        else:
            replica.hearing.beating()
            beat = self.ledger.beat(replica.owner, {}, now=self.ms)
            self.publish()
            replica.view.members_seen(beat.members, self.now)
            replica.hearing.beat(beat.version, self.now)
        if not replica.table.owing:
            self.ledger.rebooked(replica.owner, now=self.ms)
            self.publish()

    def send(self, replica: Replica, fate: str) -> bool:
        """One call leaves: ``ok`` answers later, ``lost`` never arrives, ``silent`` arrives, unanswered."""
        booking_id = replica.table.outbox.take()
        if booking_id is None:
            return False
        call = replica.claims.begin(booking_id, self.now)
        if call is None:
            return True
        if fate == "lost" or replica.epoch != self.ledger.epoch:
            replica.flying.append((booking_id, call, None))
            return True
        outcome = ask(self.ledger, replica.owner, call, self.ms)
        self.publish()
        replica.flying.append((booking_id, call, None if fate == "silent" else outcome))
        return True

    def land(self, replica: Replica, index: int) -> None:
        if not replica.flying:
            return
        booking_id, call, outcome = replica.flying.pop(index % len(replica.flying))
        if outcome is None:
            replica.claims.unanswered(booking_id, call, self.now)
        else:
            replica.claims.answered(booking_id, call, outcome, self.now)

    def hear(self, replica: Replica, count: int) -> None:
        for _ in range(min(count, len(replica.feed))):
            change = replica.feed.pop(0)
            if change.version.epoch != replica.epoch or not replica.hearing.hear(change, self.now):  # type: ignore[union-attr]
                replica.feed.insert(0, change)
                return

    def restart(self, *, lose: bool) -> None:
        self.ledger.restart(now=self.ms, lose=lose)
        for replica in self.replicas:
            replica.feed.clear()

    def settle(self, rounds: int = 8) -> None:
        """The network heals and time goes on for a little: everything that can be told is told."""
        for _ in range(rounds):
            for replica in self.replicas:
                self.beat(replica)
                while replica.flying:
                    self.land(replica, 0)
                while self.send(replica, "ok"):
                    while replica.flying:
                        self.land(replica, 0)
            for replica in self.replicas:
                self.hear(replica, 100_000)
            self.now += 0.25
            self.check()

    def check(self) -> None:
        for replica in self.replicas:
            assert dict(replica.view.loads()) == summed(replica.view)
            for booking_id, worker in replica.live.items():
                if booking_id in self.ended:
                    continue
                shown = replica.view.booking(booking_id)
                assert shown is not None, f"{replica.owner} lost {booking_id}"
                assert shown.owner != replica.owner or shown.superseded or shown.worker == worker


def plain(booking: Booking) -> Booking:
    return replace(booking, drain_left=None)


ACTS = [
    "book",
    "book",
    "book",
    "adjust",
    "serve",
    "lose",
    "end",
    "end",
    "foreign",
    "alive",
    "send",
    "send",
    "send",
    "lost",
    "silent",
    "land",
    "land",
    "hear",
    "hear",
    "beat",
    "beat",
    "resync",
    "time",
    "pause",
    "restart",
    "keep",
]


def some_amount(rng: random.Random) -> Amount:
    return Amount(rng.randrange(500), rng.randrange(50), 1)


def speak(world: World, replica: Replica, act: str, rng: random.Random) -> None:
    """The pick path of one replica says something of its own bookings."""
    claims, now = replica.claims, world.now
    if act == "book":
        world.minted += 1
        id_, worker = f"b{world.minted}", rng.choice(WORKERS)
        claims.book(
            id_, key=rng.choice(["", "", "k1", "k2"]), worker=worker, amount=some_amount(rng), now=now
        )
        replica.live[id_] = worker
        return
    if not replica.live:
        return
    id_ = rng.choice(sorted(replica.live))
    if act == "adjust":
        claims.adjust(id_, some_amount(rng), now)
    elif act == "serve":
        worker = rng.choice(WORKERS)
        claims.serve(id_, worker, some_amount(rng), now)
        if id_ in replica.table.claims:
            replica.live[id_] = worker
    elif act == "lose":
        claims.lose(id_, Cause.BROKEN, now)
        del replica.live[id_]
    else:
        claims.end(id_, Cause.ENDED, now)
        del replica.live[id_]
        world.ended.add(id_)


def log_says(world: World, replica: Replica, act: str, rng: random.Random) -> None:
    """The access log that reaches a replica names anybody's booking."""
    everything = sorted({id_ for one in world.replicas for id_ in one.view.bookings()})
    if not everything:
        return
    id_ = rng.choice(everything)
    if act == "alive":
        replica.claims.alive([id_], world.now)
    else:
        replica.claims.end(id_, Cause.LOGGED, world.now)
        world.ended.add(id_)


def step(world: World, rng: random.Random) -> str:
    replica, act = rng.choice(world.replicas), rng.choice(ACTS)
    if act in ("book", "adjust", "serve", "lose", "end"):
        speak(world, replica, act, rng)
    elif act in ("foreign", "alive"):
        log_says(world, replica, act, rng)
    elif act in ("send", "lost", "silent"):
        world.send(replica, act)
    elif act == "land":
        world.land(replica, rng.randrange(6))
    elif act == "hear":
        world.hear(replica, rng.randint(1, 10))
    elif act == "beat":
        world.beat(replica)
    elif act == "resync":
        if replica.epoch == world.ledger.epoch:
            world.resync(replica)
    elif act in ("time", "pause"):
        world.now += 0.3 if act == "time" else 1.4
    else:
        world.restart(lose=act == "restart")
    return f"{replica.owner.name} {act}"


def agreed(world: World) -> None:
    """All views equal the plane; what a move left behind may be known to its own replica alone until it is over."""
    world.settle()
    compare(world, but=lambda replica, id_: id_ in replica.table.echoes)
    for _ in range(8):
        world.now += 0.7
        world.settle(rounds=1)
    world.settle()
    compare(world, but=lambda replica, id_: False)


def compare(world: World, *, but: Callable[[Replica, str], bool]) -> None:
    standing = {booking.id: plain(booking) for booking in world.ledger.snapshot(now=world.ms).bookings}
    for replica in world.replicas:
        seen = {id_: plain(one) for id_, one in replica.view.bookings().items() if not but(replica, id_)}
        assert seen == {id_: one for id_, one in standing.items() if not but(replica, id_)}
        for id_, worker in replica.live.items():
            if id_ not in world.ended:
                one = standing[id_]
                mine = one.owner == replica.owner and not one.superseded
                assert not mine or (one.worker == worker and one.state is State.ACTIVE)
    assert not world.ended & standing.keys()


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 48), replicas=st.integers(1, 3), steps=st.integers(1, 120))
def test_views_and_plane_agree_after_any_order_of_operations_and_faults(
    seed: int, replicas: int, steps: int
) -> None:
    rng, world = random.Random(seed), World(replicas)
    for _ in range(steps):
        note(step(world, rng))
        world.check()
    agreed(world)
