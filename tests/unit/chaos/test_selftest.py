"""The self-test: every mutant fits the product, is planted by the environment alone, and is judged as it says."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import chaos
from chaos import selftest
from chaos.mutants import MUTANTS, VARIABLE, Mutant, environment, mutant
from chaos.mutants.planting import MisfitError, exchange, exchange_lua
from chaos.plan import plan
from chaos.result import Result
from chaos.selftest import finding_of, spec_of
from chaos.selftest_page import page
from chaos.suites import scenarios
from chaos.verdict import Finding, Verdict, failed, passed, unknown

ROOT = str(Path(chaos.__file__).parent.parent)
LEAST = 12


def test_there_are_enough_mutants_and_none_twice() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= LEAST
    assert len({each.function for each in MUTANTS}) == len(MUTANTS)
    assert {each.plane for each in MUTANTS} == {"redis", "nats"}


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_names_an_invariant_that_its_scenario_demands(each: Mutant) -> None:
    spec = spec_of(each)
    assert each.plane in spec.planes
    assert not spec.twins
    made = asyncio.run(plan(spec, seed=1, plane=each.plane))
    assert any(demand.startswith(f"must hold: {each.caught_by}") for demand in made.demands), made.demands


PLANT_ALL = """
import os, sys, traceback
from chaos.mutants import MUTANTS, bookings, events, leases, plant, views
for each in MUTANTS:
    if not (child := os.fork()):
        try:
            plant(each.name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(each.name)
"""


def test_every_mutant_fits_the_product() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PLANT_ALL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not run.stdout, run.stderr


def test_a_mutant_that_would_be_called_otherwise_does_not_fit() -> None:
    class Product:
        def end(self, booking: str, now: float) -> None: ...

    with pytest.raises(MisfitError, match="called otherwise"):
        exchange(Product, "end", lambda _rightly: lambda _self, _booking: None)
    exchange(Product, "end", lambda _rightly: lambda _self, _booking, _now: None)


DOUBLED = """
from chaos.mutants import plant
from stateplane.booking import Amount, Booking, Owner
from stateplane.tally import Tally
plant("release-doubled")
tally, worker = Tally(), "w"
booking = Booking("a", "", worker, Owner("picker-0", "x"), Amount(0, 4))
tally.put([("a", booking)], 0.0)
tally.put([("a", None)], 0.0)
print(tally.loads[worker].requests, tally.loads[worker].blocks)
"""


def test_a_planted_mutant_does_what_it_says() -> None:
    run = subprocess.run(
        [sys.executable, "-c", DOUBLED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["-1", "-4"]


def test_a_mutant_is_planted_by_the_environment_alone(tmp_path: Path) -> None:
    variables = environment("release-doubled", tmp_path)
    code = "from stateplane.tally import Tally; print(Tally._take.__module__)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert variables[VARIABLE] == "release-doubled"
    assert run.stdout.strip() == "chaos.mutants.bookings"


def test_nothing_is_planted_without_the_variable(tmp_path: Path) -> None:
    variables = dict(environment("release-doubled", tmp_path)) | {VARIABLE: ""}
    code = "import sys; print('chaos' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], env=variables, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_a_mutant_of_what_is_gone_does_not_start_in_silence() -> None:
    with pytest.raises(MisfitError, match="no_such_thing"):
        exchange(Path, "no_such_thing", lambda rightly: rightly)
    with pytest.raises(MisfitError, match="0 times"):
        exchange_lua("beat", "no such line", "")


def test_an_unknown_mutant_names_those_there_are() -> None:
    with pytest.raises(KeyError, match="release-doubled"):
        mutant("no-such-thing")


def test_scenarios_of_mutants_are_in_no_suite() -> None:
    assert not {spec_of(each).name for each in MUTANTS if not spec_of(each).suites} & {
        spec.name for spec in scenarios()
    }


def played(*findings: Finding) -> Result:
    spec = scenarios()[0]
    return Result(spec, spec.topology, 1, Verdict.PASS, findings, Path("h.jsonl"), 1.0, None)


def test_an_invariant_that_was_not_judged_is_unknown_and_says_why() -> None:
    broken = unknown("the scenario is played to its end", "it broke off")
    finding = finding_of(played(broken), "sums are exact")
    assert finding.verdict is Verdict.UNKNOWN
    assert "it broke off" in finding.summary


@pytest.mark.parametrize(
    ("original", "mutated", "caught", "runs"),
    [
        ("pass", "fail", True, 2),
        ("pass", "pass", False, 3),
        ("pass", "unknown", False, 3),
        ("fail", "fail", False, 3),
    ],
)
def test_a_mutant_is_caught_where_the_original_passes_and_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, original: str, mutated: str, caught: bool, runs: int
) -> None:
    performed: list[str] = []
    kinds = {"pass": passed, "fail": failed, "unknown": unknown}

    async def perform(_self: object, _mutant: Mutant, _spec: object, planted: str, run: str) -> Result:
        performed.append(run)
        return played(kinds[mutated if planted else original]("sums are exact: by worker", "so"))

    monkeypatch.setattr(selftest._SelfTest, "_perform", perform)
    said: list[str] = []
    code = selftest.selftest(keywords="release-doubled", seed=1, folder=tmp_path, say=said.append)
    assert code == (0 if caught else 1)
    told = json.loads((tmp_path / "selftest.json").read_text())
    assert told["mutants"][0]["caught"] is caught
    assert told["caught"] == int(caught)
    assert len(performed) == len(set(performed)) == runs, "a run that says otherwise is played once more"
    assert ("yes" if caught else "NO") in said[-1 if caught else -2] + "".join(said)
    assert "release-doubled" in page(tmp_path / "selftest.json")


def test_two_mutants_of_one_scenario_share_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    performed: list[str] = []

    async def perform(_self: object, _mutant: Mutant, _spec: object, planted: str, run: str) -> Result:
        performed.append(run)
        kind = failed if planted else passed
        return played(kind("sums are exact", "so"), kind("the plane's own sums", "so"))

    monkeypatch.setattr(selftest._SelfTest, "_perform", perform)
    monkeypatch.setattr(selftest, "MUTANTS", [mutant("release-doubled"), mutant("end-kept-in-sums")])
    assert selftest.selftest(keywords="", seed=1, folder=tmp_path, say=lambda _line: None) == 0
    assert sum(run.startswith("original") for run in performed) == 1


def test_no_mutant_of_that_name_is_no_success(tmp_path: Path) -> None:
    said: list[str] = []
    assert selftest.selftest(keywords="no-such", seed=1, folder=tmp_path, say=said.append) == 2
    assert "lease-never-falls" in said[0]
