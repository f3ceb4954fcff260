"""The record of the gate: every run counts, and one that did not pass is not forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chaos.command import command
from chaos.gate import page


def report(folder: Path, *, plane: str, seed: int, verdict: str = "pass", longest: float = 1.5) -> Path:
    folder.mkdir()
    numbers: list[dict[str, Any]] = [{"longest_seconds": longest}, {"calls": 100}, {}]
    scenario = {
        "name": "one",
        "says": "What it shows.",
        "plane": plane,
        "verdict": verdict,
        "seconds": 30.0,
        "findings": [{"numbers": each} for each in numbers],
    }
    told = {
        "suite": "release",
        "seed": seed,
        "verdict": verdict,
        "begun": "2026-01-02 03:04:05 +0000",
        "seconds": 600.0,
        "machine": {},
        "versions": {},
        "scenarios": [scenario],
    }
    (folder / "verdict.json").write_text(json.dumps(told))
    return folder


def test_a_line_for_each_run_and_one_for_each_scenario_over_all_of_them(tmp_path: Path) -> None:
    reports = [
        report(tmp_path / "a", plane="redis", seed=2),
        report(tmp_path / "b", plane="nats", seed=1, longest=2.25),
    ]
    kept = tmp_path / "kept.json"
    ran = CliRunner().invoke(command, ["gate", *map(str, reports), "--json", str(kept)])
    assert ran.exit_code == 0, ran.output
    assert "| nats | 1 | 2026-01-02 03:04 | 1 | 1 | 10 | **pass** |\n| redis | 2 |" in ran.output
    assert "| `one` | What it shows. | 2 of 2 | 30 | 200 | 2.25 s |" in ran.output
    assert ran.output in page(kept)


@pytest.mark.parametrize("verdict", ["fail", "unknown"])
def test_a_run_that_did_not_pass_fails_the_gate_and_is_shown(tmp_path: Path, verdict: str) -> None:
    reports = [
        report(tmp_path / "a", plane="redis", seed=1),
        report(tmp_path / "b", plane="redis", seed=2, verdict=verdict),
    ]
    ran = CliRunner().invoke(command, ["gate", *map(str, reports)])
    assert ran.exit_code == 1
    assert f"**{verdict}**" in ran.output
    assert "1 of 2" in ran.output


def test_a_folder_without_a_report_is_named(tmp_path: Path) -> None:
    ran = CliRunner().invoke(command, ["gate", str(tmp_path)])
    assert ran.exit_code == 2
    assert "verdict.json" in ran.output
