"""What a history tells: calls, faults, views, what engines carried. Checkers judge this, never lines of a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.history import Record

FOREVER = float("inf")
JOINS, LEAVES, RESTARTS = "replica joins", "replica leaves", "replica restarts"
"""Kinds of what a release in Kubernetes does by itself, or because of a fault: told as faults are, for checks must
allow of it what they allow of a replica that starts or ends. The first is over when the replica is ready, the second
when its pod is gone, the third when a container that ended by itself was started again and is ready."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a client; times on the history's clock."""

    number: int
    begun: float
    ended: float | None
    """None: the history ends first."""
    outcome: str
    """See `chaos.load.Outcome`; empty while it has none."""
    value: Mapping[str, Any]

    @property
    def booking(self) -> str:
        """The booking's id, where the response told it."""
        return str(self.value.get("booking", ""))


@dataclass(frozen=True, slots=True)
class FaultLife:
    """One life of one fault. A time that never came is None."""

    id: str
    kind: str
    target: str
    begun: float
    seen: float | None
    healing: float | None
    healed: float | None
    value: Mapping[str, Any]
    proof: Mapping[str, Any]

    def covers(self, t: float, *, grace: float = 0.0) -> bool:
        """Whether it was on at that time, or has been healed for less than ``grace`` seconds."""
        return self.begun <= t <= (FOREVER if self.healed is None else self.healed) + grace


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking as one view showed it."""

    id: str
    worker: str
    owner: str
    state: str
    cause: str | None
    superseded: bool
    attempt: int
    term: int
    prefill_tokens: int
    blocks: int
    requests: int
    key: str = ""
    """Digest by which the attempts of one request are known; empty: not to be recognised."""

    @property
    def request(self) -> str:
        """The id that the engine knows: without what a move left behind."""
        return self.id.partition("~")[0]

    @property
    def replica(self) -> str:
        """The owner's name."""
        return self.owner.partition("/")[0]


@dataclass(frozen=True, slots=True)
class View:
    """What one replica's view showed at one look. ``asked`` and ``told`` bracket the moment."""

    replica: str
    asked: float
    told: float
    epoch: int
    version: int
    bookings: Mapping[str, Booked]
    sums: Mapping[str, tuple[int, int, int]]

    @property
    def at(self) -> float:
        """The middle of the look."""
        return (self.asked + self.told) / 2


@dataclass(frozen=True, slots=True)
class Carried:
    """One request on one engine, by the engine's own word."""

    worker: str
    """Its name in the pool: ``host:port``."""
    booking: str
    request: str
    since: float
    until: float
    """When it ended; `FOREVER` where it ran at the last look."""
    lost: bool = False
    """The engine vanished with it: ``until`` is the last look that saw it."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a replica's status page said."""

    replica: str
    t: float
    value: Mapping[str, Any]


@dataclass(slots=True)
class Story:
    """One scenario's history. Lists are in order of time."""

    header: Mapping[str, Any]
    calls: list[Call]
    faults: list[FaultLife]
    views: dict[str, list[View]]
    carried: list[Carried]
    statuses: dict[str, list[Status]]
    counters: dict[str, list[tuple[float, Mapping[str, float]]]]
    """Replica -> (time, all counters as of then)."""
    gauges: dict[str, list[tuple[float, Mapping[str, float]]]]
    """Replica -> (time, the gauges of `chaos.observe.GAUGES`)."""
    silences: dict[str, list[float]]
    """Part -> times of looks that got no answer."""
    phases: list[tuple[float, str]]
    stalls: list[tuple[float, float]]
    """When the suite itself stood still: beginning and end."""
    audits: list[Record]
    """What the plane's server itself held; see `chaos.audit`."""
    notes: list[Record]
    """What the scenario noted itself (``f == "note"``)."""
    workers: Mapping[str, str]
    """Engine's name -> worker's name in the pool."""
    members: Sequence[str] = ()
    """The replicas that there are at the end."""
    begun: float = 0.0
    ended: float = 0.0
    twins: dict[str, Story] = field(default_factory=dict)
    """Runs to compare with, by kind: see `chaos.scenario.Twin`."""
    _by_worker: dict[str, list[Carried]] = field(default_factory=dict)

    @property
    def replicas(self) -> list[str]:
        """Every replica that there ever was: those of the beginning first."""
        return list(dict.fromkeys((*self.header["replicas"], *self.members, *self.views)))

    @property
    def lacks(self) -> frozenset[str]:
        """What the target cannot tell, of what checks may need: ``truth`` of the engines, the plane's own ``audit``."""
        return frozenset(self.header.get("lacks", ()))

    @property
    def healed(self) -> float:
        """When the last fault was healed; the beginning, where there was none."""
        times = [each.healed for each in self.faults if each.healed is not None]
        return max(times, default=self.begun)

    def phase(self, name: str) -> float | None:
        """When a phase first began."""
        return next((t for t, each in self.phases if each == name), None)

    def all_views(self) -> Iterator[View]:
        """Every look at every replica's view, by replica."""
        for views in self.views.values():
            yield from views

    def on(self, worker: str) -> list[Carried]:
        """What an engine carried."""
        if not self._by_worker:
            for each in self.carried:
                self._by_worker.setdefault(each.worker, []).append(each)
        return self._by_worker.get(worker, [])

    def carried_at(self, worker: str, t: float) -> list[Carried]:
        """What an engine carried at that moment."""
        return [each for each in self.on(worker) if each.since <= t < each.until]

    def lives_of(self) -> Mapping[str, list[Carried]]:
        """Booking id -> its requests on engines."""
        found: dict[str, list[Carried]] = defaultdict(list)
        for each in self.carried:
            if each.booking:
                found[each.booking].append(each)
        return found
