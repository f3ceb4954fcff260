"""What a demo measured, and whether it is good: pure values, their JSON, and the reasons of a failure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from picker.sim.agreement import Agreement

FEWEST_HELD = 20
"""So many bookings must be held for a comparison of views to say something."""
LEAST_GAIN = 1.3
"""Reused prefix tokens through the picker against round robin."""
DECISIONS = "endpoint_picker_decision_duration_seconds"
REQUESTS = "endpoint_picker_requests"


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` of the values lie (nearest rank); nan of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


@dataclass(frozen=True, slots=True)
class Phase:
    """One replay of the trace."""

    requests: int
    failures: int
    """Requests without a complete good answer, those excluded that were being picked by a replica as it was killed."""
    truncated: int
    """Responses that began and did not end."""
    prompt_tokens: int
    reused_tokens: int
    """Prompt tokens that the engines found in their caches."""
    ttft_p50_ms: float
    ttft_p90_ms: float


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of all living replicas, with arrivals paused."""

    replicas: int
    views: Agreement
    """Of the replicas with each other."""
    truth: Agreement
    """Of the replicas with the engines."""

    @property
    def good(self) -> bool:
        """Whether enough was held, all replicas showed the same, and it was what the engines carry."""
        return self.views.agreed and self.truth.agreed and self.views.bookings >= FEWEST_HELD

    def faults(self) -> list[str]:
        """What was wrong, for people."""
        if self.views.agreed and self.views.bookings < FEWEST_HELD:
            return [f"only {self.views.bookings} bookings were held, fewer than {FEWEST_HELD}"]
        return [*(self.views.differences if not self.views.agreed else ()), *self.truth.differences]


@dataclass(frozen=True, slots=True)
class Latency:
    """A Prometheus histogram: upper bound in seconds -> how many observations are not above it."""

    buckets: Mapping[float, float]

    def __add__(self, other: Latency) -> Latency:
        bounds = self.buckets.keys() | other.buckets.keys()
        return Latency({bound: self.buckets.get(bound, 0) + other.buckets.get(bound, 0) for bound in bounds})

    def quantile_ms(self, share: float) -> float:
        """The quantile in ms, interpolated inside its bucket as Prometheus' histogram_quantile does; nan of none."""
        bounds = sorted(self.buckets)
        total = self.buckets[bounds[-1]] if bounds else 0
        if not total:
            return math.nan
        rank, low, below = share * total, 0.0, 0.0
        for bound in bounds:
            count = self.buckets[bound]
            if count >= rank:
                if math.isinf(bound) or count == below:
                    return low * 1000
                return (low + (bound - low) * (rank - below) / (count - below)) * 1000
            low, below = bound, count
        return low * 1000


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one replica's `/metrics` page says that the demo shows."""

    picks: int = 0
    hits: int = 0
    latency: Latency = field(default_factory=lambda: Latency({}))

    def __add__(self, other: Numbers) -> Numbers:
        return Numbers(self.picks + other.picks, self.hits + other.hits, self.latency + other.latency)


def read_numbers(page: str) -> Numbers:
    """Read one replica's `/metrics` page."""
    picks: dict[str, float] = {}
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families(page):
        if family.name not in (REQUESTS, DECISIONS):
            continue
        for sample in family.samples:
            if sample.name == REQUESTS + "_total":
                picks[sample.labels["result"]] = sample.value
            elif sample.name == DECISIONS + "_bucket":
                buckets[float(sample.labels["le"])] = sample.value
    hits, misses = int(picks.get("hit", 0)), int(picks.get("miss", 0))
    return Numbers(hits + misses, hits, Latency(buckets))


@dataclass(frozen=True, slots=True)
class Score:
    """Everything that a demo found."""

    round_robin: Phase
    picker: Phase
    killed: str
    killed_in_flight: int
    """Requests that failed because the killed replica was just picking for them."""
    numbers: Mapping[str, Numbers]
    """By replica; of the killed one both lives together."""
    checks: Sequence[Check]
    wanted_checks: int

    @property
    def gain(self) -> float:
        """Reused prefix tokens through the picker, as a multiple of round robin's."""
        if self.round_robin.reused_tokens == 0:
            return math.inf if self.picker.reused_tokens else math.nan
        return self.picker.reused_tokens / self.round_robin.reused_tokens

    @property
    def disagreements(self) -> int:
        """Checks that were not good."""
        return sum(1 for check in self.checks if not check.good)

    @property
    def latency(self) -> Latency:
        """Decision latency over all replicas."""
        total = Latency({})
        for numbers in self.numbers.values():
            total += numbers.latency
        return total

    def faults(self) -> list[str]:
        """Why the demo failed, a line each; empty: it succeeded."""
        lines: list[str] = []
        for name, phase in (("round robin", self.round_robin), ("picker", self.picker)):
            if phase.failures:
                lines.append(f"{phase.failures} of {phase.requests} requests failed ({name})")
            if phase.truncated:
                lines.append(f"{phase.truncated} responses were cut ({name})")
        if not self.gain >= LEAST_GAIN:
            lines.append(
                f"the picker reused only {self.gain:.2f} x the prefix tokens of round robin, not {LEAST_GAIN} x"
            )
        if len(self.checks) < self.wanted_checks:
            lines.append(f"only {len(self.checks)} of {self.wanted_checks} agreement checks were made")
        for number, check in enumerate(self.checks, 1):
            if not check.good:
                lines.append(f"agreement check {number}: " + "; ".join(check.faults()))
        return lines

    def as_json(self) -> dict[str, Any]:
        """The shape of `picker demo --json`; times in ms."""
        latency = self.latency
        return {
            "requests": self.picker.requests,
            "failures": self.round_robin.failures + self.picker.failures,
            "killed_in_flight": self.killed_in_flight,
            "truncated": self.round_robin.truncated + self.picker.truncated,
            "reused_prefix_tokens": {
                "round_robin": self.round_robin.reused_tokens,
                "picker": self.picker.reused_tokens,
            },
            "ttft_ms": {"round_robin": _ttft(self.round_robin), "picker": _ttft(self.picker)},
            "decision_ms": {"p50": _ms(latency.quantile_ms(0.5)), "p99": _ms(latency.quantile_ms(0.99))},
            "agreement_checks": len(self.checks),
            "disagreements": self.disagreements,
        }


def _ttft(phase: Phase) -> dict[str, float | None]:
    return {"p50": _ms(phase.ttft_p50_ms), "p90": _ms(phase.ttft_p90_ms)}


def _ms(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
