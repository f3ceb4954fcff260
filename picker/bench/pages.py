"""The measured pages of the documentation, made from results that were kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picker.bench.index.page import index_section
from picker.bench.plane.page import plane_section
from picker.bench.quality.page import quality_section
from picker.bench.race.page import race_page
from picker.bench.staleness.page import staleness_section

Numbers = Mapping[str, Any]

PLANE_HEADER = """# What sharing costs

Made by `make docs` from `benchmarks/results/`; `picker bench plane --json` and `picker bench staleness --json` measure
anew. The machine was shared with other work while it was measured: ratios and CPU times say more than times.

"""

BENCHMARKS_HEADER = """# Benchmarks

Made by `make docs` from `benchmarks/results/`; `picker bench index --json` and `picker bench quality --trace NAME
--json` measure anew (some two minutes and 1 GB of memory; some minutes for each trace). Without `--json` both print
these tables. The machine was shared with other work while it was measured: CPU times and ratios say more than times.

"""


def pages(results: Path) -> dict[str, str]:
    """Name of each page and its text, as far as there are results."""
    found: dict[str, str] = {}
    sections = [
        section(numbers)
        for name, section in (("plane", plane_section), ("staleness", staleness_section))
        if (numbers := _read(results / f"{name}.json")) is not None
    ]
    if sections:
        found["plane-costs.md"] = PLANE_HEADER + "\n".join(sections)
    benchmarks = _benchmarks(results)
    if benchmarks:
        found["benchmarks.md"] = BENCHMARKS_HEADER + "\n".join(benchmarks)
    race = _read(results / "race.json")
    if race is not None:
        found["race.md"] = race_page(race)
    return found


def _benchmarks(results: Path) -> list[str]:
    """The sections on the index and on the decisions, where there are results."""
    index = _read(results / "index.json")
    quality = [_read(path) for path in sorted(results.glob("quality-*.json"))]
    sections = [] if index is None else [index_section(index)]
    return (
        [*sections, quality_section([each for each in quality if each is not None])] if quality else sections
    )


def _read(path: Path) -> Numbers | None:
    if not path.exists():
        return None
    numbers: Numbers = json.loads(path.read_text(encoding="utf-8"))
    return numbers


__all__ = ["pages"]
