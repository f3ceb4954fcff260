"""How far replicas and changes may grow: what following the plane costs each replica, and how late its view gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from picker.bench.fleet import Fleet
from picker.bench.servers import Server
from picker.bench.staleness.window import Delays, measure
from picker.bench.timing import percentile

BATCH_POLL_SECONDS = 0.02
"""Between two reads of a feed that is read in batches: half of it is what a change waits on the mean."""
KEPT_UP, KEPT_UP_SECONDS = 0.95, 0.1
"""Less than this part of the changes arrived, or half of them later than that: the machine was full."""
CHANGES_PER_BOOKING = 2
"""It comes and it goes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One size of pool, read as the product does and in batches."""

    replicas: int
    changes_per_s: float
    blocking: Delays
    polled: Delays | None

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {
            "replicas": self.replicas,
            "changes_per_s": self.changes_per_s,
            "blocking": _shown(self.blocking),
        }
        if self.polled is not None:
            found["batches"] = _shown(self.polled)
            found["batches_beat_blocking"] = self.batches_win
        return found

    @property
    def batches_win(self) -> bool:
        """Whether reading in batches costs less CPU and the view is no later for it."""
        if self.polled is None:
            return False
        cheaper = self.polled.cpu_us_per_change < self.blocking.cpu_us_per_change
        return cheaper and _p50(self.polled) <= _p50(self.blocking)


def _p50(delays: Delays) -> float:
    return percentile(delays.seconds, 0.5) if delays.seconds else float("inf")


def kept_up(delays: Delays) -> bool:
    """Whether the replicas could follow."""
    wanted = len(delays.seconds) + delays.missing
    return len(delays.seconds) >= KEPT_UP * wanted and _p50(delays) <= KEPT_UP_SECONDS


def _shown(delays: Delays) -> dict[str, Any]:
    return {
        "p50_ms": round(1e3 * percentile(delays.seconds, 0.5), 3) if delays.seconds else None,
        "p99_ms": round(1e3 * percentile(delays.seconds, 0.99), 3) if delays.seconds else None,
        "cpu_us_per_change": round(delays.cpu_us_per_change, 1),
        "cpu_share": round(delays.cpu_share, 3),
        "kept_up": kept_up(delays),
    }


async def envelope(
    fleet: Fleet,
    server: Server,
    *,
    replicas: Sequence[int],
    changes: Sequence[float],
    seconds: float,
    first_seed: int,
) -> list[Cell]:
    """Every size of pool, one window each way; of a number of replicas no more changes once they could not follow."""
    cells = []
    seed = first_seed
    polls = [0.0, BATCH_POLL_SECONDS] if server.url.startswith("redis") else [0.0]
    for count in replicas:
        for rate in changes:
            found = []
            for poll in polls:
                seed += 1
                found.append(
                    await measure(
                        fleet,
                        server,
                        replicas=count,
                        rate=rate / CHANGES_PER_BOOKING,
                        seconds=seconds,
                        seed=seed,
                        poll=poll,
                    )
                )
            cells.append(Cell(count, rate, found[0], found[1] if len(found) > 1 else None))
            if not any(kept_up(each) for each in found):
                break
    return cells
