"""What the benches of the plane make of their measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from picker.bench.pages import pages
from picker.bench.staleness.envelope import Cell
from picker.bench.staleness.window import Delays, Heard, delays


def told(cpu_us: float, p50: float) -> Delays:
    return Delays([p50], 1, 0, cpu_us, 0.1, 100.0)


def test_a_booking_is_timed_to_every_other_replica_and_what_was_not_heard_is_counted() -> None:
    first = Heard(said={"a.1": 1.0, "a.2": 2.0}, heard={"b.1": 5.25}, cpu=0.5, changes=3)
    second = Heard(said={"b.1": 5.0}, heard={"a.1": 1.5}, cpu=0.1, changes=3)
    found = delays([first, second], seconds=2.0)
    assert sorted(found.seconds) == [0.25, 0.5]
    assert (found.said, found.missing) == (3, 1)
    assert found.cpu_us_per_change == 1e6 * 0.6 / 6
    assert found.changes_per_s == 1.5


def test_batches_win_only_where_they_cost_less_and_the_view_is_no_later() -> None:
    assert Cell(3, 1000, told(200, 0.050), told(100, 0.012)).batches_win
    assert not Cell(3, 1000, told(200, 0.001), told(100, 0.012)).batches_win
    assert not Cell(3, 1000, told(100, 0.050), told(200, 0.012)).batches_win
    assert not Cell(3, 1000, told(200, 0.050), None).batches_win


def race_numbers() -> dict[str, Any]:
    row = {
        "mode": "atomic", "replicas": 8, "rate": 200.0, "workers": 8, "wrong_pick_pct": 0.0, "max_over_mean": 1.1234,
        "p99_excess_tokens": 4000.0, "degraded_pct": 0.0, "valid": 10, "seeds": 10,
    }  # fmt: skip
    return {
        "rows": [row | {"time": "real"}, row | {"time": "virtual", "rate": 2000.0}],
        "even": [],
        "threshold": {"sweep": [], "pays_above": {"8": 0.75, "64": None}},
        "staleness_ms": {"p50": 0.9, "p99": 4.0},
        "conditions": {"seeds": 10},
        "budgets": [{"name": "even", "measured": 1.01, "budget": "<= 1.05 x", "passed": True}],
    }


def test_a_page_is_made_of_the_results_that_are_there(tmp_path: Path) -> None:
    assert pages(tmp_path) == {}
    (tmp_path / "race.json").write_text(json.dumps(race_numbers()))
    found = pages(tmp_path)
    assert set(found) == {"race.md", "benchmarks.md"}
    assert "0.75 with 8 workers" in found["benchmarks.md"]
    page = found["race.md"]
    real, virtual = page.split("## Virtual time")
    assert "| atomic | 8 | 200 | 8 | 0 | 1.1234 | 4000 | 0 | 10 |" in real
    assert "| atomic | 8 | 2000 | 8 |" in virtual
    assert "0.75 with 8 workers, nowhere with 64 workers" in page
    assert "| even | 1.01 | <= 1.05 x | kept |" in page
