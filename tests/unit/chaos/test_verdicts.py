"""Verdicts, the report made of them, the command line."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chaos.checks import ALWAYS, fault_seen
from chaos.command import command
from chaos.observe import counters_of
from chaos.report import write
from chaos.result import Result
from chaos.suites import scenarios
from chaos.testing import Tale
from chaos.verdict import MOST_EVIDENCE, Finding, Verdict, failed, judged, not_applicable, worst

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("verdicts", "last"),
    [
        ([PASS, PASS], PASS),
        ([PASS, UNKNOWN], UNKNOWN),
        ([UNKNOWN, FAIL, PASS], FAIL),
        ([], UNKNOWN),
    ],
)
def test_the_worst_verdict_wins_and_nothing_is_unknown(verdicts: list[Verdict], last: Verdict) -> None:
    assert worst(verdicts) is last


def test_evidence_is_bounded_and_says_how_much_there_is() -> None:
    finding = failed("name", "why", [str(number) for number in range(50)])
    assert len(finding.evidence) == MOST_EVIDENCE
    assert finding.evidence[-1] == f"... and {50 - MOST_EVIDENCE + 1} more"


def test_judged_without_complaints_passes() -> None:
    assert judged("name", [], "good", "bad").verdict is PASS
    assert judged("name", ["one"], "good", "bad").summary == "1 bad"


def test_counters_of_a_metrics_page_are_those_of_the_picker() -> None:
    page = (
        '# TYPE picker_a_total counter\npicker_a_total{reason="x"} 2.0\npicker_b_total 0.0\npicker_gauge 7\n'
        "python_gc_total 3\nendpoint_picker_decision_duration_seconds_count 4\n"
    )
    assert counters_of(page) == {
        'picker_a_total{reason="x"}': 2.0,
        "endpoint_picker_decision_duration_seconds_count": 4.0,
    }


@dataclass
class Session:
    folder: Path
    results: list[Result]
    seed: int = 7
    suite: str = "smoke"
    mutant: str = ""
    begun: float = 0.0
    target: Mapping[str, Any] = field(default_factory=lambda: {"kind": "local"})
    not_played: Mapping[str, str] = field(default_factory=dict)
    where: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        return worst(result.verdict for result in self.results)


def result(folder: Path, *findings: Finding) -> Result:
    tale = Tale()
    tale.call(1, sent=1, ended=3)
    tale.call(2, sent=2, ended=9, outcome="cut", status=200)
    tale.fault("kill", "picker-0", begun=5, healed=9)
    tale.carried("a", 1, 3)
    tale.views(1, 3, "a")
    spec = scenarios()[0]
    verdict = worst(each.verdict for each in findings)
    return Result(
        spec, spec.topology, 7, verdict, tuple(findings), folder / "h.jsonl", 12.5, tale.story(), ("kill it",)
    )


def test_the_report_is_one_page_of_its_own_and_says_what_broke(tmp_path: Path) -> None:
    bad = failed("sums are <exact>", "they were not", ["evidence & more"])
    session = Session(tmp_path, [result(tmp_path, bad)])
    write(session)
    page = (tmp_path / "index.html").read_text()
    assert "sums are &lt;exact&gt;" in page
    assert "evidence &amp; more" in page
    assert "kill picker-0" in page
    assert "<svg" in page
    assert session.results[0].scenario.name in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page), "nothing is loaded from elsewhere"
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert told["verdict"] == "fail"
    assert told["seed"] == 7
    (scenario,) = told["scenarios"]
    assert scenario["findings"][0]["evidence"] == ["evidence & more"]
    assert scenario["rerun"].startswith("picker chaos run --suite smoke --seed 7")
    assert scenario["history"] == "h.jsonl"


def test_the_report_survives_a_scenario_without_a_story(tmp_path: Path) -> None:
    spec = scenarios()[0]
    broken = Result(spec, spec.topology, 7, UNKNOWN, (), tmp_path / "h.jsonl", 1.0, None)
    write(Session(tmp_path, [broken]))
    assert (tmp_path / "index.html").exists()


def test_the_report_names_the_release_and_what_was_not_played_on_it(tmp_path: Path) -> None:
    target = {
        "kind": "kube", "cluster": "v1.37.2", "namespace": "llama", "release": "llama-8b", "chart": "picker-0.1.0",
        "image": "picker:1", "replicas": 3, "engines": 4, "engines_tell": "what they carry", "pods_reached": "directly",
    }  # fmt: skip
    where = ("--target", "kube", "--release", "llama-8b")
    missing = {"herd_of_equal_requests": "it needs a pool of the suite's own"}
    untold = not_applicable("sums", "engines here do not tell")
    session = Session(tmp_path, [result(tmp_path, untold, judged("calls", [], "good", "bad"))], target=target)
    session.not_played, session.where = missing, where
    write(session)
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert told["verdict"] == "pass"
    assert told["target"] == target
    assert told["not_played"] == [{"name": name, "why": why} for name, why in missing.items()]
    assert told["scenarios"][0]["findings"][0]["verdict"] == "not applicable"
    assert "--target kube --release llama-8b" in told["scenarios"][0]["rerun"]
    page = (tmp_path / "index.html").read_text()
    for said in (
        "llama-8b",
        "Kubernetes v1.37.2",
        "picker-0.1.0",
        "herd_of_equal_requests",
        "not applicable",
    ):
        assert said in page


def test_on_loopback_nothing_is_listed_as_not_played(tmp_path: Path) -> None:
    session = Session(tmp_path, [result(tmp_path)], not_played={"release_rolled_out_under_load": "rollout"})
    write(session)
    assert json.loads((tmp_path / "verdict.json").read_text())["not_played"] == []


def test_list_names_every_scenario() -> None:
    told = CliRunner().invoke(command, ["list"])
    assert told.exit_code == 0
    assert all(each.name in told.output for each in scenarios())


def test_show_tells_what_it_does_and_how_to_play_it() -> None:
    told = CliRunner().invoke(command, ["show", "replica_killed_in_a_burst"])
    assert told.exit_code == 0
    assert "SIGKILL" in told.output
    assert "picker chaos run" in told.output
    assert "must hold" in told.output


def test_show_of_an_unknown_scenario_names_those_there_are() -> None:
    told = CliRunner().invoke(command, ["show", "nonsense"])
    assert told.exit_code == 2
    assert "replica_killed_in_a_burst" in told.output


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report"
    told = CliRunner().invoke(command, ["run", "--dry-run", "--plane", "nats", "--report", str(report)])
    assert told.exit_code == 0
    assert "replica_killed_in_a_burst on nats" in told.output
    assert not report.exists()


def test_a_report_is_never_mixed_with_another(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    told = CliRunner().invoke(command, ["run", "--report", str(tmp_path)])
    assert told.exit_code == 2
    assert "not empty" in told.output


def test_checks_have_names_that_differ() -> None:
    names = [check.name for check in (*ALWAYS, fault_seen("kill"))]
    assert len(names) == len(set(names))
