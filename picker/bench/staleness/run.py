"""The whole bench of staleness: at several rates beside the bare hop, then the envelope."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from picker.bench.budget import Budget, Result
from picker.bench.fleet import Fleet
from picker.bench.servers import Server, running
from picker.bench.staleness.envelope import BATCH_POLL_SECONDS, envelope
from picker.bench.staleness.window import Delays, measure
from picker.bench.timing import calibration_ns, percentile

REPLICAS = 3
RATE = 500.0
"""Bookings per second at which there is a budget."""
LIMIT = 4.0
"""Times the bare hop."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rates: Sequence[float] = (20, 100, 500, 1000)
    windows: int = 6
    """Of each kind at each rate, in turn."""
    seconds: float = 2.0
    envelope_replicas: Sequence[int] = (2, 4, 8)
    envelope_changes: Sequence[float] = (100, 500, 1000, 2000, 4000)
    envelope_seconds: float = 2.0
    whole: bool = True


QUICK = Extent(
    rates=(RATE,),
    windows=2,
    seconds=1.0,
    envelope_replicas=(2,),
    envelope_changes=(200,),
    envelope_seconds=1.0,
    whole=False,
)


async def run(
    extent: Extent, *, backends: Sequence[str], seed: int, say: Callable[[str], None] = lambda _: None
) -> Result:
    """Measure everything. ``say`` hears what is going on."""
    numbers: dict[str, Any] = {}
    with Fleet(max(REPLICAS, *extent.envelope_replicas)) as fleet:
        for backend in backends:
            async with running(backend) as server:
                rows: dict[str, Any] = {}
                for rate in extent.rates:
                    say(f"{rate:g} bookings/s between {REPLICAS} replicas on {backend}")
                    rows[f"{rate:g}"] = await _beside_hop(fleet, server, extent, rate, seed)
                    seed += 1000
                numbers[backend] = rows
                say(f"envelope on {backend}")
                cells = await envelope(
                    fleet,
                    server,
                    replicas=extent.envelope_replicas,
                    changes=extent.envelope_changes,
                    seconds=extent.envelope_seconds,
                    first_seed=seed,
                )
                numbers.setdefault("envelope", {})[backend] = [cell.shown() for cell in cells]
                seed += 1000
    return Result("staleness", numbers, _conditions(extent), _budgets(numbers, backends))


async def _beside_hop(fleet: Fleet, server: Server, extent: Extent, rate: float, seed: int) -> dict[str, Any]:
    views: list[Delays] = []
    hops: list[Delays] = []
    for turn in range(extent.windows):
        for into, hop in ((hops, True), (views, False)):
            found = await measure(
                fleet,
                server,
                replicas=REPLICAS,
                rate=rate,
                seconds=extent.seconds,
                seed=seed + turn,
                hop=hop,
            )
            if not found.seconds:
                raise RuntimeError(f"nothing was heard of {found.said} messages in a window of {server.name}")
            into.append(found)
    view_p50s, hop_p50s = ([percentile(one.seconds, 0.5) for one in each] for each in (views, hops))
    together = [seconds for one in views for seconds in one.seconds]
    return {
        "p50_ms": round(1e3 * percentile(together, 0.5), 3),
        "p99_ms": round(1e3 * percentile(together, 0.99), 3),
        "quiet_p50_ms": round(1e3 * min(view_p50s), 3),
        "hop_p50_ms": round(1e3 * median(hop_p50s), 3),
        "quiet_hop_p50_ms": round(1e3 * min(hop_p50s), 3),
        "ratio": round(min(view_p50s) / min(hop_p50s), 3),
        "usual_ratio": round(median(v / h for v, h in zip(view_p50s, hop_p50s, strict=True)), 3),
        "unheard": sum(one.missing for one in views),
        "bookings": sum(one.said for one in views),
    }


def _conditions(extent: Extent) -> dict[str, Any]:
    return {
        "size": "full" if extent.whole else "quick",
        "replicas": REPLICAS,
        "windows": f"{extent.windows} of {extent.seconds:g} s of bookings and of the bare hop, in turn",
        "ratio": "least p50 of a window of bookings to the least of a window of the bare hop",
        "unheard": "ended before the plane was told of it, or later than a second after the window",
        "batches": f"the feed read every {1e3 * BATCH_POLL_SECONDS:g} ms instead of waiting for each change",
        "calibration_ns": round(calibration_ns(), 1),
        "python": platform.python_version(),
    }


def _budgets(numbers: dict[str, Any], backends: Sequence[str]) -> list[Budget]:
    budgets = []
    for backend in backends:
        rows = numbers[backend]
        row = rows.get(f"{RATE:g}")
        if row is not None:
            name = f"{backend}: view at {RATE:g} bookings/s, least disturbed p50 to a bare hop's"
            budgets.append(Budget(name, row["ratio"], LIMIT, "x"))
        unheard = sum(one["unheard"] for rate, one in rows.items() if float(rate) <= RATE)
        budgets.append(Budget(f"{backend}: bookings unheard of at up to {RATE:g}/s", unheard, 0))
    return budgets
