"""The whole bench of the index, in one process and in one order: memory first, while nothing else was allocated."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from picker.bench.budget import Budget, Result
from picker.bench.index import dynamo
from picker.bench.index.lookup import hash_rows, match_rows
from picker.bench.index.oracle import SHAPES, check
from picker.bench.index.population import EVENT_BLOCKS, names
from picker.bench.index.upkeep import Cleared, Full, apply_blocks_per_s, clear, fill
from picker.bench.timing import calibration_ns

MATCH_WORKERS, MATCH_BLOCKS, MATCH_LIMIT_US = 1000, 2048, 100.0
"""The match that has a budget."""

RATIO_BLOCKS = range(512, 8193)
RATIO_WORKERS = range(64, 1001)
RATIO = 1.5
"""So much faster than the other index, and for which sizes."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large everything is."""

    entries: int = 5_000_000
    workers: int = 320
    events: int = 8_000
    cleared_blocks: int = 1_000_000
    match_workers: Sequence[int] = (8, 64, 320, 1000)
    match_blocks: Sequence[int] = (64, 512, 2048, 8192)
    background: int = 1_000_000
    each: int = 12
    rounds: int = 25
    hash_tokens: Sequence[int] = (1024, 8192, 32_768, 131_072)
    queries: Sequence[int] = (12_000, 9_000, 2_000)
    """Of each of the oracle's shapes."""
    beside_workers: Sequence[int] = (64, 1000)
    whole: bool = True
    """Large enough for every budget's stated conditions."""


QUICK = Size(
    entries=200_000,
    workers=64,
    events=1_000,
    cleared_blocks=50_000,
    match_workers=(64, 1000),
    match_blocks=(64, 512, 2048),
    background=130_000,
    each=4,
    rounds=10,
    hash_tokens=(1024, 8192),
    queries=(1_000, 500, 60),
    beside_workers=(64,),
    whole=False,
)


def run(size: Size, *, seed: int, beside: bool, say: Callable[[str], None] = lambda _: None) -> Result:
    """Measure everything. ``beside``: also the other index, which must be installed; ``say`` hears what is going on."""
    rng = random.Random(seed)
    say(f"growing an index to {size.entries:,} entries")
    full = fill(names(size.workers), size.entries, rng)
    say("applying events to it, clearing a worker of it")
    applied = apply_blocks_per_s(full, size.events, rng)
    cleared = clear(full, size.cleared_blocks, rng)
    conditions = _conditions(size, full, cleared, seed)
    numbers = _upkeep(full, applied, cleared)
    del full
    numbers["hash"] = hash_rows(size.hash_tokens, size.rounds, rng)
    numbers["match"] = [row for workers in size.match_workers for row in _match(size, workers, say, rng)]
    numbers["match_two_tiers"] = _match(size, MATCH_WORKERS, say, rng, tiered=True)
    say(f"asking {sum(size.queries):,} queries beside the oracle")
    shapes = [check(shape, count, seed) for shape, count in zip(SHAPES, size.queries, strict=True)]
    numbers["oracle"] = {
        "queries": sum(int(str(each["queries"])) for each in shapes),
        "wrong": sum(int(str(each["wrong"])) for each in shapes),
        "shapes": shapes,
    }
    if beside:
        say(f"the same prompts through {dynamo.PACKAGE}")
        numbers["beside"] = [
            row
            for workers in size.beside_workers
            for row in dynamo.side_by_side(
                workers, size.match_blocks, each=max(size.each // 3, 2), rounds=size.rounds, rng=rng
            )
        ]
        conditions["beside"] = f"{dynamo.PACKAGE} {dynamo.installed()}"
    return Result("index", numbers, conditions, _budgets(size, numbers))


def _match(
    size: Size, workers: int, say: Callable[[str], None], rng: random.Random, *, tiered: bool = False
) -> list[dict[str, Any]]:
    say(f"matching prompts over {workers} workers{', blocks in two tiers' if tiered else ''}")
    return match_rows(
        workers,
        size.match_blocks,
        background=max(size.background, 10 * 64 * workers) if tiered else size.background,
        each=size.each,
        rounds=size.rounds,
        rng=rng,
        tiered=tiered,
    )


def _upkeep(full: Full, applied: float, cleared: Cleared) -> dict[str, Any]:
    return {
        "bytes_per_entry": round(full.bytes_per_entry, 1),
        "apply_blocks_per_s": round(applied),
        "clear_max_pause_ms": round(cleared.max_step_us / 1e3, 3),
        "growth_max_pause_ms": round(full.grown.max_us / 1e3, 3),
        "clear": {
            "at_once_us": round(cleared.clear_us, 1),
            "steps": cleared.steps,
            "over_5_ms": cleared.over_5_ms,
            "exact": cleared.exact,
        },
        "growth": {
            "blocks_per_s": round(len(full.grown.us) * EVENT_BLOCKS / (sum(full.grown.us) / 1e6)),
            "over_5_ms": full.grown.over_5_ms,
        },
    }


def _conditions(size: Size, full: Full, cleared: Cleared, seed: int) -> dict[str, Any]:
    return {
        "size": "full" if size.whole else "quick",
        "seed": seed,
        "entries": full.grown.entries,
        "workers": size.workers,
        "unique_pct": round(100 * full.grown.distinct / full.grown.entries, 1),
        "second_tier_pct": round(100 * full.grown.lower / full.grown.entries, 1),
        "event_blocks": EVENT_BLOCKS,
        "cleared_blocks": cleared.blocks,
        "time": "CPU time of the thread; beside another index by the wall",
        "calibration_ns": round(calibration_ns(), 1),
        "python": platform.python_version(),
    }


def _budgets(size: Size, numbers: dict[str, Any]) -> list[Budget]:
    """Speed, memory and pauses at the sizes that they are promised for; right answers at any size."""
    budgets = [
        Budget("oracle: wrong answers", numbers["oracle"]["wrong"], 0),
        Budget("clear: exact at once", float(numbers["clear"]["exact"]), 1, at_least=True),
        *_matches(numbers),
        Budget("apply", numbers["apply_blocks_per_s"], 300_000, "blocks/s", at_least=True),
        Budget("memory", numbers["bytes_per_entry"], 230, "bytes/entry"),
        *_pauses(numbers),
    ]
    if size.whole:
        budgets.append(Budget("oracle: queries", numbers["oracle"]["queries"], 20_000, at_least=True))
    ratios = [
        row["ratio"]
        for row in numbers.get("beside", ())
        if row["blocks"] in RATIO_BLOCKS and row["workers"] in RATIO_WORKERS
    ]
    if ratios:
        budgets.append(
            Budget(
                "match against the other index, least ratio of the p50s", min(ratios), RATIO, at_least=True
            )
        )
    return budgets


def _matches(numbers: dict[str, Any]) -> list[Budget]:
    """The slowest case's p50 of the match that has a budget: as runs, and laid out for every worker as a pick reads it.

    Laid out with blocks in a second tier it is shown and has no budget.
    """
    wanted = (MATCH_WORKERS, MATCH_BLOCKS)

    def worst(rows: Sequence[dict[str, Any]], key: str) -> float:
        return float(max(row[key] for row in rows if (row["workers"], row["blocks"]) == wanted))

    name = f"match of {MATCH_BLOCKS} hashes over {MATCH_WORKERS} workers, worst case's p50"
    found = {
        f"{name}, as runs": worst(numbers["match"], "p50_us"),
        f"{name}, as runs, two tiers": worst(numbers["match_two_tiers"], "p50_us"),
        f"{name}, laid out": worst(numbers["match"], "dense_p50_us"),
    }
    return [Budget(each, measured, MATCH_LIMIT_US, "us") for each, measured in found.items()]


def _pauses(numbers: dict[str, Any]) -> list[Budget]:
    return [
        Budget("clear: steps over 5 ms", numbers["clear"]["over_5_ms"], 0),
        Budget("clear: longest step", numbers["clear_max_pause_ms"], 20, "ms"),
        Budget("growth: events over 5 ms", numbers["growth"]["over_5_ms"], 0),
        Budget("growth: longest event", numbers["growth_max_pause_ms"], 20, "ms"),
    ]
