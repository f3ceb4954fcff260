"""A history read into what it tells: calls, faults, views, what engines carried. Checkers judge this, not lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.history import HistoryError, Record
from chaos.observe import ROW

FOREVER = float("inf")


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
    notes: list[Record]
    """What the scenario noted itself (``f == "note"``)."""
    workers: Mapping[str, str]
    """Engine's name -> worker's name in the pool."""
    begun: float = 0.0
    ended: float = 0.0
    twins: dict[str, Story] = field(default_factory=dict)
    """Runs to compare with, by kind: see `chaos.scenario.Twin`."""
    _by_worker: dict[str, list[Carried]] = field(default_factory=dict)

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

    def disturbed(self, replica: str) -> list[tuple[float, float]]:
        """When a fault kept this very replica from speaking: it was killed, frozen, ended or started again."""
        return [
            (each.begun, FOREVER if each.healed is None else each.healed)
            for each in self.faults
            if each.target == replica
        ]


def read_story(records: Iterable[Record]) -> Story:
    """Read a whole history. Raises HistoryError for one that lacks its beginning or its end."""
    found = list(records)
    if not found or found[0].f != "scenario":
        raise HistoryError("the history does not begin with its scenario")
    if found[-1].f != "end":
        raise HistoryError("the history has no end: the run broke off")
    header = found[0].value
    workers: Mapping[str, str] = header.get("engines", {})
    by: dict[str, list[Record]] = defaultdict(list)
    for record in found:
        by[record.f].append(record)
    try:
        return Story(
            header=header,
            calls=_calls(by["call"]),
            faults=_faults(by["fault"]),
            views=_views(by["view"]),
            carried=_carried(by["carried"], workers, found[0].t),
            statuses=_statuses(by["status"]),
            counters=_counters(by["counters"]),
            gauges=_gauges(by["counters"]),
            silences=_silences((*by["view"], *by["carried"])),
            phases=[(each.t, each.value["name"]) for each in by["phase"]],
            notes=by["note"],
            workers=workers,
            begun=found[0].t,
            ended=found[-1].t,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise HistoryError(f"the history does not say what it should: {error!r}") from error


def _calls(records: Sequence[Record]) -> list[Call]:
    begun: dict[str, Record] = {}
    found: dict[str, Call] = {}
    for record in records:
        if record.type == "invoke":
            begun[record.process] = record
            found[record.process] = Call(record.value["number"], record.t, None, "", record.value)
        else:
            first = begun[record.process]
            value = {**first.value, **record.value}
            found[record.process] = Call(
                first.value["number"], first.t, record.t, record.value["outcome"], value
            )
    return list(found.values())


def _faults(records: Sequence[Record]) -> list[FaultLife]:
    lives: dict[str, dict[str, Record]] = {}
    for record in records:
        lives.setdefault(record.value["id"], {})[record.value["phase"]] = record

    def time(phases: Mapping[str, Record], name: str) -> float | None:
        return phases[name].t if name in phases else None

    return [
        FaultLife(
            id=name,
            kind=phases["begin"].value["kind"],
            target=phases["begin"].value["target"],
            begun=phases["begin"].t,
            seen=time(phases, "seen"),
            healing=time(phases, "healing"),
            healed=time(phases, "healed"),
            value=phases["begin"].value["value"],
            proof=phases["seen"].value["value"] if "seen" in phases else {},
        )
        for name, phases in lives.items()
    ]


def _views(records: Sequence[Record]) -> dict[str, list[View]]:
    found: dict[str, list[View]] = defaultdict(list)
    for record in records:
        if record.type != "ok":
            continue
        value = record.value
        bookings = {row[0]: Booked(**dict(zip(ROW, row, strict=True))) for row in value["bookings"]}
        sums = {worker: (each[0], each[1], each[2]) for worker, each in value["sums"].items()}
        view = View(
            record.process, value["asked"], record.t, value["epoch"], value["version"], bookings, sums
        )
        found[record.process].append(view)
    return dict(found)


def _carried(records: Sequence[Record], workers: Mapping[str, str], begun: float) -> list[Carried]:
    """What ended before the run is none of it: an engine tells what it remembers of the scenarios before, too."""
    ended: dict[tuple[str, float, int], Carried] = {}
    running: dict[str, dict[tuple[str, str, float], float]] = defaultdict(dict)
    born: dict[str, float] = {}
    lost: list[Carried] = []
    for record in records:
        if record.type != "ok":
            continue
        value, worker = record.value, workers.get(record.process, record.process)
        if born.setdefault(worker, value["born"]) != value["born"]:
            born[worker] = value["born"]
            lost += [
                Carried(worker, booking, request, since, seen, lost=True)
                for (booking, request, since), seen in running.pop(worker, {}).items()
            ]
        for row in value["ended"]:
            if row["ended"] < begun:
                continue
            key = (worker, value["born"], row["number"])
            ended[key] = Carried(worker, row["booking"], row["name"], row["arrived"], row["ended"])
            running[worker].pop((row["booking"], row["name"], row["arrived"]), None)
        for row in value["carried"]:
            running[worker][row["booking"], row["id"], row["arrived"]] = record.t
    still = [
        Carried(worker, booking, request, since, FOREVER)
        for worker, requests in running.items()
        for (booking, request, since) in requests
    ]
    return sorted([*ended.values(), *lost, *still], key=lambda each: each.since)


def _statuses(records: Sequence[Record]) -> dict[str, list[Status]]:
    found: dict[str, list[Status]] = defaultdict(list)
    for record in records:
        if record.type == "ok":
            found[record.process].append(Status(record.process, record.t, record.value))
    return dict(found)


def _counters(records: Sequence[Record]) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    found: dict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
    now: dict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        changed = record.value["changed"]
        known = now[record.process]
        if any(value < known.get(key, 0.0) for key, value in changed.items()):
            known.clear()  # a new life of the process counts from zero
        known.update(changed)
        found[record.process].append((record.t, dict(known)))
    return dict(found)


def _gauges(records: Sequence[Record]) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    found: dict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
    for record in records:
        if record.value.get("gauges"):
            found[record.process].append((record.t, record.value["gauges"]))
    return dict(found)


def _silences(records: Sequence[Record]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.type == "fail":
            found[record.process].append(record.t)
    return dict(found)
