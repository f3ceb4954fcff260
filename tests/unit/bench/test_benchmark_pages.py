"""The page on index and decisions says what the results say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from picker.bench.index.run import QUICK
from picker.bench.index.run import run as run_index
from picker.bench.pages import pages
from picker.bench.quality.fleet import Hardware
from picker.bench.quality.run import Setup
from picker.bench.quality.run import run as run_quality

TINY = replace(
    QUICK, entries=20_000, workers=8, events=40, cleared_blocks=2_000, match_workers=(1000,),
    match_blocks=(2048,), background=1_000, each=1, rounds=1, hash_tokens=(256,), queries=(10, 5, 2),
)  # fmt: skip


def test_results_become_a_page_with_every_row_and_budget(trace: Path, tmp_path: Path) -> None:
    assert "benchmarks.md" not in pages(tmp_path)
    index = run_index(TINY, seed=1, beside=False).as_json()
    setup = Setup(hardware=Hardware(engines=3, blocks=60), replicas=(1, 4), seeds=1)
    quality = run_quality(trace, setup).as_json()
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "quality-talks.json").write_text(json.dumps(quality))
    page = pages(tmp_path)["benchmarks.md"]
    for budget in (*index["budgets"], *quality["budgets"]):
        assert f"| {budget['name']} | " in page
    for row in quality["rows"]:
        assert f"| {row['policy']} | {row['replicas']} | {row['reused_pct']:.10g} | " in page
    assert page.count("| 1000 | 2048 | shared | ") == 2
    assert f"{quality['kept']['share']:.4f}" in page
    assert "### talks.jsonl" in page
