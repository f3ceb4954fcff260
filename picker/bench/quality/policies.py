"""Who decides: replicas of the product, and what they are compared with."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

from picker.bench.quality.fleet import Engine, engine_hashes
from picker.bench.quality.plane import Plane
from picker.bench.quality.replica import TICK_SECONDS, Replica, default_weights
from picker.bench.quality.trace import BLOCK_TOKENS, Request
from picker.bench.quality.world import World
from picker.core.choose import Candidate, Choice, Demand, choose
from picker.core.match import Overlap
from picker.events.bridge.changes import Change

Fleet = Mapping[str, Engine]


class Policy(Protocol):
    """Sends requests to engines."""

    def pick(self, request: Request) -> str:
        """The engine for a request."""
        ...

    def ended(self, request_id: str) -> None:
        """A request is over."""
        ...

    def announced(self, worker: str, changes: Sequence[Change]) -> None:
        """An engine's cache changed."""
        ...


class Deaf:
    """A policy that listens to nobody."""

    def ended(self, request_id: str) -> None:
        """Nothing is kept."""

    def announced(self, worker: str, changes: Sequence[Change]) -> None:
        """Nothing is kept."""


class RoundRobin(Deaf):
    """One engine after the other."""

    def __init__(self, workers: Sequence[str]) -> None:
        self._workers = workers
        self._next = 0

    def pick(self, request: Request) -> str:
        """The next one."""
        worker = self._workers[self._next % len(self._workers)]
        self._next += 1
        return worker


class AtRandom(Deaf):
    """Any engine."""

    def __init__(self, workers: Sequence[str], rng: random.Random) -> None:
        self._workers, self._rng = workers, rng

    def pick(self, request: Request) -> str:
        """Any one."""
        return self._rng.choice(self._workers)


class LeastLoad(Deaf):
    """The engine with the fewest requests, known exactly and without delay; ties at random."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet, self._rng = fleet, rng

    def pick(self, request: Request) -> str:
        """The emptiest one."""
        least = min(engine.requests for engine in self._fleet.values())
        return self._rng.choice([name for name, engine in self._fleet.items() if engine.requests == least])


class Omniscient(Deaf):
    """The product's price on what the engines truly hold and carry at this moment, in one place."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet, self._rng, self._weights = fleet, rng, default_weights()

    def pick(self, request: Request) -> str:
        """The truly cheapest one."""
        hashes = engine_hashes(request)
        candidates = [
            Candidate(name, booked=engine.load(), overlap=Overlap(engine.cached(hashes)))
            for name, engine in self._fleet.items()
        ]
        demand = Demand(request.input_length, request.blocks, BLOCK_TOKENS)
        choice = choose(candidates, demand, self._weights, self._rng)
        assert isinstance(choice, Choice), "workers without a limit can always be chosen"
        return choice.worker


class Pickers:
    """So many replicas of the product behind a gateway that sends each request to any of them."""

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        plane: Plane,
        *,
        replicas: int,
        event_delay: float,
        rng: random.Random,
    ) -> None:
        self._world, self._event_delay, self._rng = world, event_delay, rng
        names = sorted(fleet)
        self._replicas = [
            Replica(f"replica-{number}", names, world, plane, rng.getrandbits(32))
            for number in range(replicas)
        ]
        self._placed: dict[str, Replica] = {}
        self._fleet = fleet
        for replica in self._replicas:
            world.every(TICK_SECONDS, replica.tick, first=rng.uniform(0, TICK_SECONDS))
            seconds = replica.scrape_seconds
            world.every(seconds, lambda each=replica: self._scrape(each), first=rng.uniform(0, seconds))  # type: ignore[misc]

    def pick(self, request: Request) -> str:
        """What the replica that the gateway asks says."""
        replica = self._rng.choice(self._replicas)
        self._placed[str(request.number)] = replica
        return replica.pick(request)

    def ended(self, request_id: str) -> None:
        """The replica that placed it sees its end."""
        self._placed.pop(request_id).ended(request_id)

    def announced(self, worker: str, changes: Sequence[Change]) -> None:
        """Every replica hears of it, a little later."""
        self._world.later(self._event_delay, lambda: self._hear(worker, changes))

    def _hear(self, worker: str, changes: Sequence[Change]) -> None:
        for replica in self._replicas:
            replica.announced(worker, changes)

    def _scrape(self, replica: Replica) -> None:
        for name, engine in self._fleet.items():
            replica.scraped(name, engine.report())
