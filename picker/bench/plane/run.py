"""The whole bench of the plane: each backend on its real server, one after the other."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from picker.bench.bare import open_beside
from picker.bench.budget import Budget, Result
from picker.bench.plane.calls import Caller, Size, latency, server_cpu_us, shown
from picker.bench.plane.upkeep import FEW, reaping, renewal
from picker.bench.servers import POOL, Server, running
from picker.bench.timing import calibration_ns
from stateplane.booking import Owner

BOOK_LIMIT, SELECT_LIMIT = 2.5, 4.0
"""Times a bare SET's latency."""
SLICE_LIMIT_MS = 5.0
RENEWAL_LIMIT = 1.5
"""What a heartbeat with many bookings may cost, in those with few: the noise of two medians, and no more."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    calls: Size = field(default_factory=Size)
    many: int = 5_000
    beats: int = 200
    whole: bool = True


QUICK = Extent(calls=Size(rounds=3, calls=60, standing=100, cpu_calls=60), many=600, beats=30, whole=False)


async def run(
    extent: Extent, *, backends: Sequence[str], seed: int, say: Callable[[str], None] = lambda _: None
) -> Result:
    """Measure everything. ``say`` hears what is going on."""
    numbers: dict[str, Any] = {}
    for backend in backends:
        say(f"calls on {backend}")
        async with running(backend) as server:
            numbers[backend] = await _calls(server, extent, seed)
            say(f"heartbeats with {FEW} and {extent.many:,} bookings on {backend}")
            beats = await renewal(server, many=extent.many, beats=extent.beats)
            numbers[backend]["renewal"] = beats.shown()
            if backend == "valkey":
                say(f"reaping {extent.many:,} bookings of a silent owner on {backend}")
                numbers[backend]["reaper"] = (await reaping(server, bookings=extent.many)).shown()
    return Result("plane", numbers, _conditions(extent, seed), _budgets(numbers))


async def _calls(server: Server, extent: Extent, seed: int) -> dict[str, Any]:
    owner = Owner("bench", "1")
    plane, bare = await open_beside(server, POOL, owner)
    try:
        caller = Caller(plane, bare, owner, random.Random(seed))
        await caller.stand(extent.calls.standing)
        taken = await latency(caller, extent.calls)
        cpu = await server_cpu_us(caller, server, extent.calls)
        return shown(taken, cpu, floor="set" if server.name == "valkey" else "request")
    finally:
        await plane.leave()
        await plane.close()
        await bare.close()


def _conditions(extent: Extent, seed: int) -> dict[str, Any]:
    size = extent.calls
    return {
        "size": "full" if extent.whole else "quick",
        "seed": seed,
        "calls": f"{size.rounds} rounds of {size.calls}, the kinds in turn call by call, one in flight",
        "standing_bookings": size.standing,
        "time": "latency by the wall as ratios to the floor; CPU time of the client's thread and of the server",
        "calibration_ns": round(calibration_ns(), 1),
        "python": platform.python_version(),
    }


def _budgets(numbers: dict[str, Any]) -> list[Budget]:
    budgets = []
    for backend, found in numbers.items():
        if backend == "valkey":
            budgets += [
                Budget(
                    f"{backend}: book, least disturbed p50 to a bare SET's",
                    found["ratio"]["book"],
                    BOOK_LIMIT,
                    "x",
                ),
                Budget(
                    f"{backend}: select-and-book of 8, likewise", found["ratio"]["select8"], SELECT_LIMIT, "x"
                ),
                Budget(
                    f"{backend}: longest reaper slice, server's CPU time",
                    found["reaper"]["slice_max_ms"],
                    SLICE_LIMIT_MS,
                    "ms",
                ),
            ]
        budgets.append(
            Budget(
                f"{backend}: heartbeat with many bookings to one with {FEW}, server's CPU time",
                found["renewal"]["server_cpu_ratio"],
                RENEWAL_LIMIT,
                "x",
            )
        )
    return budgets
