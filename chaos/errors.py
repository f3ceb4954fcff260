"""The booking error of a death and of a retry as a table: ours, beside replicas that share nothing, or tell and forget.

``picker chaos errors REPORT ... --json benchmarks/results/chaos-errors.json`` keeps the numbers of some reports;
`make docs` makes ``docs/chaos-errors.md`` from them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

SCENARIOS = {
    "booking_error_of_a_death": "a replica dies (SIGKILL) with requests under way, and is back after some seconds",
    "booking_error_of_retries": "a replica dies; eight requests that it picked are sent again to another one, half of"
    " their first workers stop, half work on in vain",
}
"""Scenario -> what happens in it, for the page."""
POLICIES = ("ours", "isolated", "stream-bound")

HEADER = """# Booking error of a death and of a retry

How much load do replicas believe in that is not there, or miss that is, because a replica died or a request was sent
again? Measured by the chaos suite as the integral over time of the distance between booked and truly carried requests,
per worker, by the engines' own word, in request-seconds, averaged over three replicas; the same seed's fault-free run
is taken off.

- **ours**: what the replicas' views really showed, four looks a second.
- **isolated**: each replica knows its own requests only. It misses what the others send at all times, faults or none:
  the second number is its whole error, with the fault-free part. What the fault adds can be below zero, for the dead
  replica misses nothing while it is dead.
- **stream-bound**: replicas tell each other of a booking and of its end in messages that are sent once and never asked
  for; a booking ends with its stream at its owner, and what a dead owner told is believed for 300 s. Computed by the
  harness from the same history: the same requests, the same death.

"""
FOOTER = """
Made by `make docs` from `benchmarks/results/chaos-errors.json`. To measure anew:

```
picker chaos run --suite release -k booking_error_of --report out/
picker chaos errors out/ --json benchmarks/results/chaos-errors.json
```

The suite fails where ours is more than a tenth of stream-bound's.
"""


def rows_of(reports: Iterable[Path]) -> list[dict[str, Any]]:
    """One row for each run of the scenarios in these reports' ``verdict.json``.

    Raises OSError, ValueError for a folder that holds no report.
    """
    return [row for report in reports for row in _rows(json.loads((report / "verdict.json").read_text()))]


def _rows(verdict: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for played in verdict["scenarios"]:
        if played["name"] not in SCENARIOS:
            continue
        for finding in played["findings"]:
            numbers = finding["numbers"]
            if "stream-bound" in numbers:
                names = (*POLICIES, "ours_raw", "isolated_raw")
                yield {
                    "scenario": played["name"],
                    "plane": played["plane"],
                    "seed": verdict["seed"],
                    "verdict": finding["verdict"],
                    **{name: numbers[name] for name in names},
                }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each scenario and plane, medians over seeds."""
    lines = [
        "| what happens | plane | runs | ours | isolated, added (whole) | stream-bound | ours / stream-bound |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    by: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["scenario"], row["plane"]].append(row)
    for (scenario, plane), runs in sorted(by.items()):
        ours, alone, whole, bound = (
            median(row[name] for row in runs) for name in ("ours", "isolated", "isolated_raw", "stream-bound")
        )
        lines.append(
            f"| {SCENARIOS[scenario]} | {plane} | {len(runs)} | {ours:.1f} | {alone:.1f} ({whole:.1f}) | {bound:.0f} "
            f"| {max(ours, 0.0) / bound:.1%} |"
        )
    return "\n".join(lines) + "\n"


def page(results: Path) -> str:
    """The page of the documentation, from the JSON that was kept."""
    return HEADER + table(json.loads(results.read_text())["rows"]) + FOOTER
