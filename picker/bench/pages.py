"""The measured pages of the documentation, made from results that were kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picker.bench.decide.page import performance_page, performance_section
from picker.bench.index.page import index_section
from picker.bench.plane.page import plane_section
from picker.bench.quality.page import quality_section
from picker.bench.race.page import race_page, race_section
from picker.bench.staleness.page import staleness_section

Numbers = Mapping[str, Any]

BENCHMARKS_HEADER = """# Benchmarks

Made by `make docs` from `benchmarks/results/`. `picker bench NAME --json` measures anew: `index` (two minutes, 1 GB of
memory), `quality --trace NAME` (some minutes for each trace), `plane` (a minute), `staleness` (ten minutes),
`race` (half an hour), `decide` (five minutes). Without `--json` they print these tables. The machine was shared with
other work while it was measured: CPU times and ratios say more than times.

"""


def pages(results: Path) -> dict[str, str]:
    """Name of each page and its text, as far as there are results."""
    found: dict[str, str] = {}
    sections = _sections(results)
    race = _read(results / "race.json")
    if race is not None:
        found["race.md"] = race_page(race)
        sections.append(race_section(race))
    if (decide := _read(results / "decide.json")) is not None:
        found["performance.md"] = performance_page(decide)
        sections.append(performance_section(decide))
    if sections:
        found["benchmarks.md"] = BENCHMARKS_HEADER + "\n".join(sections)
    return found


def _sections(results: Path) -> list[str]:
    made: list[str] = []
    if (index := _read(results / "index.json")) is not None:
        made.append(index_section(index))
    quality = [
        numbers for path in sorted(results.glob("quality-*.json")) if (numbers := _read(path)) is not None
    ]
    if quality:
        made.append(quality_section(quality))
    if (plane := _read(results / "plane.json")) is not None:
        made.append(plane_section(plane))
    if (staleness := _read(results / "staleness.json")) is not None:
        made.append(staleness_section(staleness))
    return made


def _read(path: Path) -> Numbers | None:
    if not path.exists():
        return None
    numbers: Numbers = json.loads(path.read_text(encoding="utf-8"))
    return numbers


__all__ = ["pages"]
