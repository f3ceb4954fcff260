"""Runs of one kind into one row, and pairs of runs into a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from picker.bench.race.log import Verdict
from picker.bench.race.world import Setting

DEGRADED_MOST_PCT = 1.0
"""A run with more degraded picks than this is void: it says how busy the machine was."""


def valid(verdict: Verdict) -> bool:
    """Whether the run counts."""
    return verdict.degraded_pct <= DEGRADED_MOST_PCT


def row(setting: Setting, kind: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The medians over the seeds whose runs count; None where none does."""
    kept = [verdict for verdict in verdicts if valid(verdict)]

    def middle(of: Sequence[float], digits: int) -> float | None:
        return round(median(of), digits) if of else None

    return {
        "mode": setting.mode,
        "replicas": setting.replicas,
        "rate": setting.rate,
        "workers": setting.workers,
        "wrong_pick_pct": middle([one.wrong_pick_pct for one in kept], 2),
        "max_over_mean": middle([one.max_over_mean for one in kept], 4),
        "p99_excess_tokens": middle([one.p99_excess_tokens for one in kept], 0),
        "degraded_pct": middle([one.degraded_pct for one in verdicts], 3),
        "time": kind,
        "seeds": len(verdicts),
        "valid": len(kept),
    }


@dataclass(frozen=True, slots=True)
class Pairs:
    """One kind of run beside another one, seed by seed."""

    ratios: list[float]
    """Of max/mean, of the seeds where both runs count."""

    @property
    def middle(self) -> float:
        """The median ratio; infinite where no pair counts."""
        return median(self.ratios) if self.ratios else float("inf")


def pairs(these: Mapping[int, Verdict], those: Mapping[int, Verdict]) -> Pairs:
    """Max/mean of these to that of those, by seed."""
    both = [seed for seed in these if seed in those and valid(these[seed]) and valid(those[seed])]
    return Pairs([these[seed].max_over_mean / those[seed].max_over_mean for seed in both])
