"""`picker bench` from the outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from picker.cli import main
from picker.cli.bench import BENCHES


def test_every_bench_of_the_table_can_be_called_and_none_is_loaded_for_the_list() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom picker.cli import main\n"
        "shown = CliRunner().invoke(main, ['bench', '--help'])\n"
        "print(shown.output, [name for name in sys.modules if name.startswith('picker.bench')])\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("[]")
    for name in BENCHES:
        assert name in shown
        assert CliRunner().invoke(main, ["bench", name, "--help"]).exit_code == 0


def test_json_stands_alone_on_stdout(trace: Path) -> None:
    arguments = [
        "bench",
        "quality",
        "--trace",
        str(trace),
        "--replicas",
        "1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--json",
    ]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    shown = json.loads(found.stdout)
    assert shown["trace"] == "talks.jsonl"
    assert {"policy", "replicas", "reused_pct", "ttft_p50_ms", "ttft_p90_ms"} <= set(shown["rows"][0])
    assert "reading talks.jsonl" in found.stderr


def test_people_get_a_table_with_the_budget(trace: Path) -> None:
    arguments = [
        "bench",
        "quality",
        "--trace",
        str(trace),
        "--replicas",
        "1,4",
        "--seeds",
        "1",
        "--jobs",
        "1",
    ]
    found = CliRunner().invoke(main, [*arguments, "--engines", "3", "--blocks", "60"])
    assert "picker_eventual" in found.stdout
    assert ">= 0.99" in found.stdout
    assert found.exit_code == (1 if "NOT KEPT" in found.stdout else 0)


def test_a_trace_that_is_not_there_ends_with_one_sentence(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["bench", "quality", "--trace", str(tmp_path / "none.jsonl")])
    assert found.exit_code == 1
    assert "--trace FILE" in found.stderr
    assert "Traceback" not in found.output


def test_a_number_of_replicas_that_makes_no_sense_is_refused() -> None:
    for value in ("0", "1,x", "", "1,900"):
        found = CliRunner().invoke(main, ["bench", "quality", "--replicas", value])
        assert found.exit_code == 2, value
