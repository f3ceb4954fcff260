"""What many bookings cost the server when nobody asks for them: heartbeats, and the reaping of a silent owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from picker.bench.bare import plane_on, probed
from picker.bench.plane.calls import WORKERS
from picker.bench.servers import Server
from picker.bench.timing import percentile
from stateplane.booking import Amount, Booking, Owner, Rules
from stateplane.plane import StatePlane
from stateplane.redis.probe import ProbedPlane

T = TypeVar("T")

REAPED_SECONDS = 60.0
FEW = 10
AT_ONCE = 64
"""Calls in flight while bookings are laid down."""

QUICK_RULES = Rules(lease=1.0, heartbeat=0.25, drain=1.0, tombstone=1.0)
"""Short times, so that a lapse and its reaping are over in seconds; what one slice does is not changed by them."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """Heartbeats of an owner with few bookings beside those of one with many, alternating."""

    few_us: float
    many_us: float
    few_cpu_us: float
    many_cpu_us: float
    """Of the server."""

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "few_p50_us": round(self.few_us, 1),
            "many_p50_us": round(self.many_us, 1),
            "ratio": round(self.many_us / self.few_us, 3),
            "server_cpu_us": {"few": round(self.few_cpu_us, 1), "many": round(self.many_cpu_us, 1)},
            "server_cpu_ratio": round(self.many_cpu_us / max(self.few_cpu_us, 0.1), 3),
        }


async def lay_down(plane: StatePlane, owner: Owner, count: int) -> None:
    """Book so many for the owner."""
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        await asyncio.gather(
            *(
                plane.book(Booking(f"{owner.name}-{n}", f"key-{n}", WORKERS[n % 64], owner, Amount(1024, 64)))
                for n in numbers
            )
        )


async def renewal(server: Server, *, many: int, beats: int) -> Renewal:
    """Two owners in pools of their own on one server beat in turn."""
    owners = [Owner("few", "1"), Owner("many", "1")]
    planes = [plane_on(server, f"bench/{owner.name}", owner, Rules()) for owner in owners]
    wall: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    try:
        for plane, owner, count in zip(planes, owners, (FEW, many), strict=True):
            await plane.start({})
            await lay_down(plane, owner, count)
        for _ in range(beats):
            for which, plane in enumerate(planes):
                _, took, spent = await _measured(server, plane.beat({}))
                wall[which].append(took)
                cpu[which].append(spent)
    finally:
        for plane in planes:
            await plane.leave()
            await plane.close()
    return Renewal(*(median(each) for each in (*wall, *cpu)))


async def _measured(server: Server, call: Awaitable[T]) -> tuple[T, float, float]:
    """What a call gave, its microseconds by the wall, and those of the server's CPU time."""
    cpu_before = await server.cpu_settled_ns()
    began = time.perf_counter_ns()
    gave = await call
    took = (time.perf_counter_ns() - began) / 1e3
    return gave, took, (await server.cpu_settled_ns() - cpu_before) / 1e3


@dataclass(frozen=True, slots=True)
class Reaping:
    """How a silent owner's bookings went, in the server's CPU time (ms)."""

    bookings: int
    lapse_ms: float
    """The longest heartbeat until the owner had lapsed: the one that turned all its bookings draining among them."""
    slices: list[float]
    """Each slice of reaping, of bookings and then of their tombstones."""

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "bookings": self.bookings,
            "lapse_ms": round(self.lapse_ms, 3),
            "slices": len(self.slices),
            "slice_p50_ms": round(percentile(self.slices, 0.5), 3),
            "slice_max_ms": round(max(self.slices), 3),
        }


async def reaping(server: Server, *, bookings: int) -> Reaping:
    """An owner of so many bookings falls silent; another one's heartbeats reap it, slice by slice."""
    pool, silent = "bench/reaping", Owner("silent", "1")
    gone = plane_on(server, pool, silent, QUICK_RULES)
    judge = probed(server, pool, Owner("judge", "1"), QUICK_RULES, sliced=True)
    try:
        await gone.start({})
        await judge.start({})
        beating = asyncio.create_task(_beating(gone))
        await lay_down(gone, silent, bookings)
        beating.cancel()
        return await _reaped(server, judge, bookings)
    finally:
        for plane in (gone, judge):
            await plane.close()


async def _beating(plane: StatePlane) -> None:
    while True:
        await asyncio.sleep(QUICK_RULES.heartbeat)
        await plane.beat({})


async def _reaped(server: Server, judge: ProbedPlane, bookings: int) -> Reaping:
    beats: list[float] = []
    slices: list[float] = []
    reaped = 0
    last = time.monotonic() + REAPED_SECONDS
    while time.monotonic() < last:
        beat, _, spent = await _measured(server, judge.beat({}))
        (slices if beat.reaped else beats).append(spent / 1e3)
        before, reaped, more = reaped, reaped + beat.reaped, True
        while more:
            (count, more), _, spent = await _measured(server, judge.reap_slice())
            reaped += count
            slices.append(spent / 1e3)
        if before < bookings <= reaped:
            last = time.monotonic() + 3 * QUICK_RULES.tombstone
        await asyncio.sleep(QUICK_RULES.heartbeat)
    if reaped < bookings:
        raise TimeoutError(f"{reaped} of {bookings} bookings of a silent owner went in {REAPED_SECONDS:g} s")
    return Reaping(bookings, max(beats), slices)
