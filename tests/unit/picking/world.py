"""A picking without sockets: real core, real desk in mode isolated, a clock that the test turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from picker import settings
from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.core.adapters import Held
from picker.core.criteria import WorkerTraits
from picker.core.index import PrefixIndex
from picker.core.load import NO_LOAD, Load
from picker.core.predicted import Predicted
from picker.eligibility import Eligibility
from picker.picking import Picking
from picker.requests.tokens import Tokens
from picker.rewriting import NoRules
from picker.serving.seam import HttpRequest
from picker.underway import Underway
from picker.wiring import open_criteria
from stateplane.booking import Owner, Rules
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Events:
    """Events that are followed, of workers that say nothing yet."""

    def routed(self, worker: str, now: float, hashes: Sequence[int] = (), tail: Sequence[int] = ()) -> None:
        return

    def told_of(self, worker: str) -> bool:
        return True


@dataclass
class Workers:
    """The pool, as the test says."""

    names: list[str]
    loads: dict[str, Load] = field(default_factory=dict)

    def routable(self, now: float) -> Sequence[str]:
        return list(self.names)

    def unbooked(self, worker: str, now: float) -> Load:
        return self.loads.get(worker, NO_LOAD)

    def changed(self, now: float) -> Sequence[str]:
        return list(self.names)


@dataclass
class Facts:
    """What is known of workers beside their load, as the test says."""

    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    adapters: dict[str, Held] = field(default_factory=dict)
    models: dict[str, set[str]] = field(default_factory=dict)
    """Base models by worker; a worker that is not among them does not say."""

    @property
    def mixed(self) -> bool:
        return len({frozenset(names) for names in self.models.values()}) > 1

    def serves(self, worker: str, model: str) -> bool | None:
        return model in self.models[worker] if worker in self.models else None

    def held(self, worker: str, now: float) -> Held:
        return self.adapters.get(worker, Held())

    def traits(self, worker: str, now: float) -> WorkerTraits:
        return WorkerTraits(worker, labels=self.labels.get(worker, {}))


class World:
    """One replica's decisions, with everything around them under the test's hand."""

    def __init__(self, **given: object) -> None:
        self.clock = Clock()
        self.settings = settings.load({}, pool_name="p", replica_name="r1", block_size=4, **given)
        self.workers = Workers([A, B, C])
        self.index = PrefixIndex()
        for name in self.workers.names:
            self.index.add(name)
        owner = Owner("r1", "1")
        plane = MemoryPlane(MemoryStore(Rules(), clock=self.clock), owner=owner)
        self.desk = Desk(plane, owner, mode="isolated", clock=self.clock)
        self.underway = Underway(
            self.desk, known=lambda address: address in self.workers.names, clock=self.clock
        )
        self.metrics = Metrics()
        self.journal = Journal(100)
        self.tokens = Tokens(self.settings.requests)
        self.rules = NoRules()
        self.facts = Facts()
        self.eligibility = Eligibility(
            self.settings.price, known=self.facts, criteria=open_criteria(self.settings)
        )
        self.picking = Picking(
            self.settings,
            pool=self.workers,
            index=self.index,
            bookings=self.desk,
            tokens=self.tokens,
            underway=self.underway,
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            wall=lambda: 0.0,
            rng=random.Random(7),
            predicted=Predicted(),
            events=Events(),
            eligibility=self.eligibility,
            rules=self.rules,
        )

    def close(self) -> None:
        self.tokens.close()
        self.metrics.close()


def completion(
    ids: list[int], *, request_id: str = "", path: str = "/v1/completions", **more: object
) -> HttpRequest:
    headers = {":path": path, ":method": "POST"} | ({"x-request-id": request_id} if request_id else {})
    return HttpRequest(headers, orjson.dumps({"model": "m", "prompt": ids, **more}))
