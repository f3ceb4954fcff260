"""The release gate as it was last played: every run of the suite in one table, kept beside the documentation.

``picker chaos gate REPORT ... --json benchmarks/results/chaos-release.json`` keeps the verdicts of some reports;
`make docs` makes ``docs/chaos-release.md`` from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

HEADER = """# The release gate, last played

Every scenario of the suite `release`, in all runs that were kept, those that did not pass among them: how many passed,
how long one takes, and the numbers nearest to a bound. A report in full, with its timelines and evidence:
[on Redis](chaos-release-redis.html), [on NATS](chaos-release-nats.html) (open them from a checkout). How to read one:
[chaos.md](chaos.md).

"""
FOOTER = """
Made by `make docs` from `benchmarks/results/chaos-release.json`. To play it anew, once for each plane and seed:

```
picker chaos run --suite release --plane redis --seed 1 --report out/redis-1
picker chaos gate out/* --json benchmarks/results/chaos-release.json
```
"""
LONGEST, CALLS = "longest_seconds", "calls"
"""Numbers that checks tell: how long a booking outlived its work, and how many requests were sent."""

Run = Mapping[str, Any]


def runs_of(reports: Iterable[Path]) -> list[dict[str, Any]]:
    """What is kept of each of these reports' ``verdict.json``.

    Raises OSError, ValueError, KeyError for a folder that holds no report.
    """
    return [_run(json.loads((report / "verdict.json").read_text())) for report in reports]


def _run(verdict: Run) -> dict[str, Any]:
    return {
        **{
            name: verdict[name]
            for name in ("suite", "seed", "verdict", "begun", "seconds", "machine", "versions")
        },
        "scenarios": [
            {
                **{name: played[name] for name in ("name", "says", "plane", "verdict", "seconds")},
                "calls": _most(played, CALLS),
                "longest": _most(played, LONGEST),
            }
            for played in verdict["scenarios"]
        ],
    }


def _most(played: Run, name: str) -> float | None:
    told = [finding["numbers"][name] for finding in played["findings"] if name in finding["numbers"]]
    return max(told, default=None)


def table(runs: Sequence[Run]) -> str:
    """Markdown: a line for each run, then one for each scenario."""
    lines = [
        "| plane | seed | begun | scenarios | passed | minutes | verdict |",
        "|---|--:|---|--:|--:|--:|---|",
    ]
    for run in sorted(runs, key=lambda one: (_planes(one), one["seed"], one["begun"])):
        played = run["scenarios"]
        passed = sum(each["verdict"] == "pass" for each in played)
        lines.append(
            f"| {_planes(run)} | {run['seed']} | {run['begun'][:16]} | {len(played)} | {passed} "
            f"| {run['seconds'] / 60:.0f} | **{run['verdict']}** |"
        )
    lines += [
        "",
        "| scenario | what it shows | passed | seconds | requests | a booking outlived its work by at most |",
        "|---|---|--:|--:|--:|--:|",
    ]
    by: dict[str, list[Run]] = {}
    for run in runs:
        for each in run["scenarios"]:
            by.setdefault(each["name"], []).append(each)
    lines += [_scenario(name, played) for name, played in by.items()]
    return "\n".join(lines) + "\n"


def _scenario(name: str, played: Sequence[Run]) -> str:
    passed = sum(each["verdict"] == "pass" for each in played)
    longest = [each["longest"] for each in played if each["longest"] is not None]
    outlived = f"{max(longest):.2f} s" if longest else ""
    calls = sum(each["calls"] or 0 for each in played)
    seconds = median(each["seconds"] for each in played)
    return f"| `{name}` | {played[0]['says']} | {passed} of {len(played)} | {seconds:.0f} | {calls} | {outlived} |"


def _planes(run: Run) -> str:
    return ", ".join(sorted({each["plane"] for each in run["scenarios"]}))


def page(results: Path) -> str:
    """The page as Markdown. Raises OSError, ValueError, KeyError for a file that holds no runs."""
    return HEADER + table(json.loads(results.read_text())["runs"]) + FOOTER
