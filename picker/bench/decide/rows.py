"""What was measured as rows, ratios and medians. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from picker.bench.decide.drive import Driven
from picker.bench.timing import percentile

PLANE = "plane"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one decision cost in a round, in microseconds of processor time."""

    replica_us: float
    """Of the replicas, everything they do meanwhile included."""
    net_us: float
    """The same without what they do when nothing is asked."""
    plane_us: float
    """Of the plane's server."""
    per_s: float


def cost(driven: Driven, *, idle_share: float = 0.0) -> Cost:
    """Share the processor time of a round among its decisions.

    ``idle_share``: of a core, by one replica without requests.
    """
    done = max(driven.done, 1)
    replicas = [taken for name, taken in driven.cpu_ns.items() if name != PLANE]
    whole = sum(replicas)
    idle = idle_share * driven.seconds * 1e9 * len(replicas)
    return Cost(
        replica_us=whole / 1e3 / done,
        net_us=max(whole - idle, 0.0) / 1e3 / done,
        plane_us=driven.cpu_ns.get(PLANE, 0) / 1e3 / done,
        per_s=driven.done / driven.seconds,
    )


def latency(driven: Driven) -> dict[str, float | None]:
    """p50 and p99 of a round, in milliseconds; None where nothing was decided."""
    if not driven.latencies:
        return {"p50_ms": None, "p99_ms": None}
    return {
        f"p{percent}_ms": round(1e3 * percentile(driven.latencies, percent / 100), 3) for percent in (50, 99)
    }


def shown(cost_: Cost) -> dict[str, float]:
    """A cost as columns."""
    return {
        "cpu_us": round(cost_.replica_us, 1),
        "net_cpu_us": round(cost_.net_us, 1),
        "plane_cpu_us": round(cost_.plane_us, 1),
        "per_s": round(cost_.per_s, 1),
    }


def middle(rounds: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The medians of some rounds, column by column, without what was not measured."""
    found: dict[str, float | None] = {}
    for key in rounds[0] if rounds else ():
        values = [value for one in rounds if (value := one.get(key)) is not None]
        found[key] = round(median(values), 3) if values else None
    return found


def ratios(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float | None]:
    """Theirs to ours, for whatever both have a number of; above 1 ours is the smaller one."""
    found: dict[str, float | None] = {}
    for key in ("cpu_us", "per_s", "p50_ms", "p99_ms", "rss_mb"):
        one, other = ours.get(key), theirs.get(key)
        found[key] = round(other / one, 3) if one and other else None
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """A run with something and one without it, side by side."""

    with_p99_ms: float
    without_p99_ms: float

    @property
    def ratio(self) -> float:
        """Of the p99s."""
        return self.with_p99_ms / self.without_p99_ms if self.without_p99_ms else float("inf")


def pair_ratio(pairs: Sequence[Pair]) -> float:
    """The median of the pairs' ratios; infinite where there is none."""
    return median(pair.ratio for pair in pairs) if pairs else float("inf")


def find(rows: Sequence[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any] | None:
    """The first row with these values."""
    for row in rows:
        if all(row.get(key) == value for key, value in wanted.items()):
            return row
    return None
