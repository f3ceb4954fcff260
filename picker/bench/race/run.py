"""The whole bench of the race."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from typing import Any

from picker.bench.budget import Budget, Result
from picker.bench.fleet import Fleet
from picker.bench.race.log import Verdict
from picker.bench.race.real import BUDGET_SECONDS, JOINED_SECONDS, race
from picker.bench.race.rows import DEGRADED_MOST_PCT, pairs, row, valid
from picker.bench.race.threshold import UNSEEN, crossing, jobs, run_virtual, sweep
from picker.bench.race.world import Setting, warm_up
from picker.bench.servers import Server, running
from picker.bench.staleness.window import measure
from picker.bench.timing import percentile

MODES = ("isolated", "eventual", "atomic")
EVEN_LIMIT = 1.05
"""Atomic at the most replicas: max/mean to one replica's, median over the seeds."""
EVEN_LIMIT_QUICK = 2.0
"""One short pair says no more than that nothing is broken."""
PAIRS_LEAST = 8

TRIES = 3
"""A void run is made again so often at most: it is the machine that it tells about."""

By = dict[Setting, dict[int, Verdict]]
"""Setting -> seed -> what came of it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    replicas: Sequence[int] = (1, 2, 4, 8)
    seeds: int = 10
    real: Sequence[tuple[float, int]] = ((200.0, 8),)
    """Requests per second and workers, in real processes."""
    real_seconds: float = 4.0
    """Counted, after the warm-up."""
    virtual: Sequence[tuple[float, int]] = ((50.0, 8), (200.0, 8), (500.0, 8), (500.0, 64), (2000.0, 64))
    virtual_requests: int = 5_000
    """Counted, after the warm-up."""
    unseen: Sequence[float] = UNSEEN
    sweep_workers: Sequence[int] = (8, 16, 32, 64)
    jobs: int = 2
    """Virtual runs at one time."""
    whole: bool = True


QUICK = Extent(
    replicas=(1, 2),
    seeds=1,
    real=((100.0, 4),),
    real_seconds=1.5,
    virtual=((500.0, 8),),
    virtual_requests=500,
    unseen=(0.1, 2.0),
    sweep_workers=(8,),
    whole=False,
)


async def run(extent: Extent, *, seed: int, say: Callable[[str], None] = lambda _: None) -> Result:
    """Measure everything, on Valkey. ``say`` hears what is going on."""
    with Fleet(max(3, *extent.replicas)) as fleet:
        async with running("valkey") as server:
            say("staleness between three replicas")
            delays = await _staleness(fleet, server, seed)
        async with running("valkey") as server:
            real, again = await _real(fleet, server, extent, seed, say)
    say("the same in virtual time, with that staleness")
    virtual = _virtual(extent, delays, seed)
    say("from where on atomic pays")
    sweeps = _sweeps(extent)
    result = _result(extent, seed, delays, real, virtual, sweeps)
    return replace(result, conditions={**result.conditions, "void_runs_made_again": again})


async def _staleness(fleet: Fleet, server: Server, seed: int) -> list[float]:
    """Delays of the window that other programs disturbed least."""
    windows = [
        await measure(fleet, server, replicas=3, rate=200.0, seconds=2.0, seed=seed + turn)
        for turn in range(4)
    ]
    return min((one.seconds for one in windows if one.seconds), key=lambda seconds: percentile(seconds, 0.5))


async def _real(
    fleet: Fleet, server: Server, extent: Extent, seed: int, say: Callable[[str], None]
) -> tuple[By, int]:
    """What came of every run that was kept, and how many void ones were made again."""
    found: By = {}
    turn = 0
    rng = random.Random(seed)
    for one in range(seed, seed + extent.seeds):
        kinds = [
            Setting(mode, replicas, rate, workers)
            for (rate, workers), mode, replicas in product(extent.real, MODES, extent.replicas)
        ]
        rng.shuffle(kinds)  # what disturbs the machine for a while disturbs no kind more than the others
        say(f"real processes, seed {one}: {len(kinds)} runs")
        for setting in kinds:
            warm = max(warm_up(setting.rate, setting.workers), JOINED_SECONDS)
            count = round(setting.rate * (warm + extent.real_seconds))
            for again in range(TRIES):
                turn += 1
                if again:
                    say(f"void, made again: {setting}")
                verdict = await race(fleet, server, setting, count=count, seed=one, turn=turn)
                if valid(verdict):
                    break
            found.setdefault(setting, {})[one] = verdict
    return found, turn - sum(len(verdicts) for verdicts in found.values())


def _virtual(extent: Extent, delays: Sequence[float], seed: int) -> By:
    seeds = range(seed, seed + extent.seeds)
    kinds = [
        Setting(mode, replicas, rate, workers)
        for (rate, workers), mode, replicas in product(extent.virtual, MODES, extent.replicas)
    ]
    wanted = [
        (setting, _count(setting.workers, extent.virtual_requests), list(delays), one)
        for setting in kinds
        for one in seeds
    ]
    verdicts = _spread(extent, wanted)
    found: By = {}
    for (setting, _, _, one), verdict in zip(wanted, verdicts, strict=True):
        found.setdefault(setting, {})[one] = verdict
    return found


def _count(workers: int, counted: int) -> int:
    return round(warm_up(1.0, workers)) + counted


def _spread(extent: Extent, wanted: Sequence[tuple[Setting, int, Sequence[float], int]]) -> list[Verdict]:
    with ProcessPoolExecutor(extent.jobs, mp_context=get_context("spawn")) as executor:
        return list(executor.map(run_virtual, wanted, chunksize=4))


def _sweeps(extent: Extent) -> dict[int, list[dict[str, Any]]]:
    most = max(extent.replicas)
    found = {}
    for workers in extent.sweep_workers:
        count = _count(workers, extent.virtual_requests)
        verdicts = _spread(extent, jobs(workers, most, count, extent.seeds, extent.unseen))
        found[workers] = sweep(verdicts, workers, most, extent.seeds, extent.unseen)
    return found


def _result(
    extent: Extent,
    seed: int,
    delays: Sequence[float],
    real: By,
    virtual: By,
    sweeps: dict[int, list[dict[str, Any]]],
) -> Result:
    rows = [
        row(setting, kind, list(verdicts.values()))
        for kind, by in (("real", real), ("virtual", virtual))
        for setting, verdicts in sorted(by.items(), key=lambda item: _order(item[0]))
    ]
    even = [one for kind, by in (("real", real), ("virtual", virtual)) for one in _even(kind, by, extent)]
    numbers = {
        "rows": rows,
        "even": even,
        "threshold": {
            "sweep": [one for found in sweeps.values() for one in found],
            "pays_above": {str(workers): crossing(found) for workers, found in sweeps.items()},
        },
        "staleness_ms": {
            "p50": round(1e3 * percentile(delays, 0.5), 3),
            "p99": round(1e3 * percentile(delays, 0.99), 3),
        },
    }
    return Result("race", numbers, _conditions(extent, seed), _budgets(extent, even))


def _order(setting: Setting) -> tuple[float, int, int, int]:
    return (setting.workers, round(setting.rate), MODES.index(setting.mode), setting.replicas)


def _even(kind: str, by: By, extent: Extent) -> list[dict[str, Any]]:
    """Each mode at the most replicas beside one replica, which needs no plane: seed by seed."""
    most = max(extent.replicas)
    found = []
    for rate, workers in extent.real if kind == "real" else extent.virtual:
        alone = by[Setting("isolated", 1, rate, workers)]
        for mode in MODES:
            beside = pairs(by[Setting(mode, most, rate, workers)], alone)
            found.append(
                {
                    "time": kind,
                    "rate": rate,
                    "workers": workers,
                    "mode": mode,
                    "replicas": most,
                    "pairs": len(beside.ratios),
                    "max_over_mean_to_one_replica": round(beside.middle, 4) if beside.ratios else None,
                }
            )
    return found


def _conditions(extent: Extent, seed: int) -> dict[str, Any]:
    return {
        "size": "full" if extent.whole else "quick",
        "seed": seed,
        "seeds": extent.seeds,
        "real": f"{extent.real_seconds:g} s counted in each run, on Valkey, the kinds in random order",
        "virtual": f"{extent.virtual_requests} requests counted in each run",
        "atomic_budget_ms": 1e3 * BUDGET_SECONDS,
        "void_above_degraded_pct": DEGRADED_MOST_PCT,
        "tries": TRIES,
        "python": platform.python_version(),
    }


def _budgets(extent: Extent, even: Sequence[dict[str, Any]]) -> list[Budget]:
    budgets = []
    for one in even:
        if one["mode"] != "atomic" or one["time"] != "real":
            continue
        name = f"atomic, {one['replicas']} replicas, {one['rate']:g}/s on {one['workers']} workers"
        least = PAIRS_LEAST if extent.whole else 1
        budgets.append(Budget(f"{name}: valid pairs", one["pairs"], least, at_least=True))
        if one["pairs"]:
            ratio = one["max_over_mean_to_one_replica"]
            limit = EVEN_LIMIT if extent.whole else EVEN_LIMIT_QUICK
            budgets.append(Budget(f"{name}: max/mean to one replica's", ratio, limit, "x"))
    return budgets
