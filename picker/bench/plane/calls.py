"""Latency and CPU of the plane's operations, taken call by call beside the floor."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from picker.bench.bare import Bare
from picker.bench.servers import Server
from picker.bench.timing import percentile
from stateplane.booking import NOTHING, Amount, Booking, Candidate, Cause, Owner, Terms
from stateplane.plane import StatePlane

FLOOR = "set"
WORKERS = [f"10.20.{n // 250}.{n % 250 + 1}:8000" for n in range(64)]
TERMS = Terms(per_token=1 / 16, per_block=1.0, per_request=0.0)

Call = Callable[[int], Awaitable[object]]
"""Makes the call of that number ready; it is made when it is awaited."""


@dataclass(frozen=True, slots=True)
class Size:
    """How often each call is made."""

    rounds: int = 15
    calls: int = 200
    standing: int = 1_000
    """Bookings that stand all the while."""
    cpu_calls: int = 500
    """Calls of one kind in a row, for the server's CPU time."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one kind of call took, in microseconds."""

    p50: float
    p99: float
    client_cpu: float
    """CPU time of the calling thread, median."""
    ratio: float
    """Its p50 to the floor's, each of the round in which it was least disturbed."""
    usual_ratio: float
    """Its p50 to the floor's in the same round, median over the rounds."""


class Caller:
    """One owner that makes each kind of call, over and over."""

    def __init__(self, plane: StatePlane, bare: Bare, owner: Owner, rng: random.Random) -> None:
        self._plane, self._bare, self._owner, self._rng = plane, bare, owner, rng
        self._made = 0

    def kinds(self) -> dict[str, Call]:
        """Each kind of call by its name, in an order in which each finds what it needs."""
        found: dict[str, Call] = {FLOOR: self._floor, "book": self._book, "release": self._release}
        if "select" in self._plane.capabilities:
            found |= {"select8": self._select(8), "select64": self._select(64)}
        return found

    async def stand(self, count: int) -> None:
        """Bookings that stay."""
        for number in range(count):
            booking = self._booking(f"standing-{number}", self._rng.choice(WORKERS))
            await self._plane.book(booking)

    async def tidy(self, kind: str, number: int) -> None:
        """Undo what a call of that kind left."""
        if kind.startswith("select"):
            await self._plane.release(f"{kind}-{number}", Cause.ENDED)

    async def beat(self) -> None:
        """A heartbeat, so that tombstones are forgotten as in service."""
        await self._plane.beat({})

    def _booking(self, booking_id: str, worker: str) -> Booking:
        tokens = self._rng.randrange(256, 4096)
        amount = Amount(tokens, tokens // 16) if worker else NOTHING
        return Booking(
            booking_id, f"{booking_id}/{self._rng.getrandbits(128):032x}", worker, self._owner, amount
        )

    def _floor(self, number: int) -> Awaitable[object]:
        return self._bare.bare()

    def _book(self, number: int) -> Awaitable[object]:
        return self._plane.book(self._booking(f"book-{number}", self._rng.choice(WORKERS)))

    def _release(self, number: int) -> Awaitable[object]:
        return self._plane.release(f"book-{number}", Cause.ENDED)

    def _select(self, candidates: int) -> Call:
        offered = [
            Candidate(worker, self._rng.uniform(0, 64), Amount(1024, 64)) for worker in WORKERS[:candidates]
        ]

        def select(number: int) -> Awaitable[object]:
            booking = self._booking(f"select{candidates}-{number}", "")
            return self._plane.select(booking, offered, TERMS)

        return select


async def latency(caller: Caller, size: Size) -> dict[str, Taken]:
    """Every kind of call in turn, call by call, so that what disturbs one disturbs all."""
    kinds = caller.kinds()
    wall: list[dict[str, list[float]]] = []
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    number = 0
    for turn in range(size.rounds + 1):
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(size.calls if turn else 50):
            number += 1
            for kind, call in kinds.items():
                waiting = call(number)
                cpu_began, began = time.thread_time_ns(), time.perf_counter_ns()
                await waiting
                took = time.perf_counter_ns() - began
                cpu[kind].append((time.thread_time_ns() - cpu_began) / 1e3)
                taken[kind].append(took / 1e3)
                await caller.tidy(kind, number)
        await caller.beat()
        if turn:  # the first one warms up
            wall.append(taken)
    return {
        kind: Taken(
            p50=percentile([us for taken in wall for us in taken[kind]], 0.5),
            p99=percentile([us for taken in wall for us in taken[kind]], 0.99),
            client_cpu=median(cpu[kind]),
            ratio=_quietest(wall, kind) / _quietest(wall, FLOOR),
            usual_ratio=median(
                percentile(taken[kind], 0.5) / percentile(taken[FLOOR], 0.5) for taken in wall
            ),
        )
        for kind in kinds
    }


def _quietest(wall: list[dict[str, list[float]]], kind: str) -> float:
    """Other programs only ever add to a latency, and to a longer one more: the least p50 is the call's own."""
    return min(percentile(taken[kind], 0.5) for taken in wall)


async def server_cpu_us(caller: Caller, server: Server, size: Size) -> dict[str, float]:
    """CPU time of the server for one call of each kind, the mean over many in a row."""
    found: dict[str, float] = {}
    first = 1_000_000
    for kind, call in caller.kinds().items():
        before = await server.cpu_settled_ns()
        for number in range(first, first + size.cpu_calls):
            await call(number)
        found[kind] = (await server.cpu_settled_ns() - before) / size.cpu_calls / 1e3
        for number in range(first, first + size.cpu_calls):
            await caller.tidy(kind, number)
        await caller.beat()
    return found


def shown(taken: dict[str, Taken], server_cpu: dict[str, float], *, floor: str) -> dict[str, Any]:
    """As JSON: ``<call>_p50_us`` and the rest by kind; the floor under the name ``floor``."""
    names = {kind: floor if kind == FLOOR else kind for kind in taken}
    found: dict[str, Any] = {f"{names[kind]}_p50_us": round(one.p50, 1) for kind, one in taken.items()}
    found["ratio"] = {names[kind]: round(one.ratio, 3) for kind, one in taken.items() if kind != FLOOR}
    found["usual_ratio"] = {
        names[kind]: round(one.usual_ratio, 3) for kind, one in taken.items() if kind != FLOOR
    }
    found["p99_us"] = {names[kind]: round(one.p99, 1) for kind, one in taken.items()}
    found["client_cpu_us"] = {names[kind]: round(one.client_cpu, 1) for kind, one in taken.items()}
    found["server_cpu_us"] = {names[kind]: round(us, 1) for kind, us in server_cpu.items()}
    return found
