"""From how many unseen requests on mode `atomic` pays: a sweep in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from picker.bench.race.log import Verdict, judge
from picker.bench.race.virtual import simulate
from picker.bench.race.world import Setting, requests, warm_up

PAYS = 1.05
"""Atomic pays where the busiest worker carries this much more in eventual: what balance is held to elsewhere."""
RATE = 500.0
"""Any would do: what counts is its product with the delay."""
UNSEEN = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)


def run_virtual(job: tuple[Setting, int, Sequence[float], int]) -> Verdict:
    """One run in virtual time: setting, number of requests, delays in seconds, seed."""
    setting, count, delays, seed = job
    wanted = requests(setting.rate, setting.workers, count, seed)
    picks = simulate(setting, wanted, delays, seed)
    return judge(picks, setting.workers, warm_up(setting.rate, setting.workers))


def jobs(
    workers: int, replicas: int, count: int, seeds: int, unseen: Sequence[float] = UNSEEN
) -> list[tuple[Setting, int, Sequence[float], int]]:
    """The sweep's runs, in the order that `sweep` expects: by size, then mode, then seed."""
    return [
        (Setting(mode, replicas, RATE, workers), count, [each / RATE], seed)
        for each in unseen
        for mode in ("eventual", "atomic")
        for seed in range(seeds)
    ]


def sweep(
    verdicts: Sequence[Verdict], workers: int, replicas: int, seeds: int, unseen: Sequence[float] = UNSEEN
) -> list[dict[str, Any]]:
    """Eventual beside atomic at each number of unseen requests."""
    found = []
    for at, each in enumerate(unseen):
        views = verdicts[2 * at * seeds : (2 * at + 1) * seeds]
        exact = verdicts[(2 * at + 1) * seeds : (2 * at + 2) * seeds]
        ratios = [view.max_over_mean / sums.max_over_mean for view, sums in zip(views, exact, strict=True)]
        found.append(
            {
                "workers": workers,
                "replicas": replicas,
                "unseen": each,
                "eventual_wrong_pct": round(median(one.wrong_pick_pct for one in views), 2),
                "eventual_max_over_mean": round(median(one.max_over_mean for one in views), 4),
                "atomic_max_over_mean": round(median(one.max_over_mean for one in exact), 4),
                "eventual_over_atomic": round(median(ratios), 4),
            }
        )
    return found


def crossing(rows: Sequence[dict[str, Any]]) -> float | None:
    """Unseen requests at which eventual first carries `PAYS` times atomic's, between the rows by a straight line."""
    before = (0.0, 1.0)
    for one in rows:
        here = (float(one["unseen"]), float(one["eventual_over_atomic"]))
        if here[1] >= PAYS:
            rise = here[1] - before[1]
            part = (PAYS - before[1]) / rise if rise > 0 else 1.0
            return round(before[0] + part * (here[0] - before[0]), 3)
        before = here
    return None
