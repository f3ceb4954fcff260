"""Does the suite notice a broken replica? Each mutant's scenario, on the product as it is and on the mutant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.mutants import MUTANTS, Mutant
from chaos.suites import scenario_named

Verdicts = Mapping[str, str]
"""Invariant's name -> verdict."""


@dataclass(frozen=True, slots=True)
class Catch:
    """What became of one mutant."""

    mutant: str
    breaks: str
    scenario: str
    invariant: str
    original: str
    """The invariant's verdict on the product as it is."""
    mutated: str
    summary: str

    @property
    def caught(self) -> bool:
        """The invariant fails on the mutant, and passes on the original."""
        return self.original == "pass" and self.mutated == "fail"


def selftest(*, keywords: str, seed: int, folder: Path, say: Callable[[str], None]) -> int:
    """Play them all; 0 if every mutant was caught, 1 if not, 2 if there is none of that name."""
    wanted = [each for each in MUTANTS if keywords in each.name]
    if not wanted:
        say(f"no mutant's name contains {keywords!r}; there are: {', '.join(each.name for each in MUTANTS)}")
        return 2
    originals: dict[tuple[str, str], Mapping[str, Any]] = {}
    catches = []
    for each in wanted:
        place = (each.scenario, each.plane)
        if place not in originals:
            say(f"the original in {each.scenario} on {each.plane}")
            originals[place] = _findings(each, seed, folder / f"original-{each.scenario}-{each.plane}", "")
        say(f"{each.name}: {each.breaks}")
        found = _findings(each, seed, folder / each.name, each.name)
        catches.append(_catch(each, originals[place], found))
        say(f"  {'caught' if catches[-1].caught else 'NOT CAUGHT'}: {catches[-1].summary}")
    table = [{**asdict(each), "caught": each.caught} for each in catches]
    (folder / "selftest.json").write_text(json.dumps({"seed": seed, "mutants": table}, indent=2) + "\n")
    missed = [each.mutant for each in catches if not each.caught]
    say(
        f"{len(catches) - len(missed)} of {len(catches)} caught"
        + (f"; not: {', '.join(missed)}" if missed else "")
    )
    return 1 if missed else 0


def _catch(mutant: Mutant, original: Mapping[str, Any], mutated: Mapping[str, Any]) -> Catch:
    before, after = _finding(original, mutant.caught_by), _finding(mutated, mutant.caught_by)
    said = f"{after['verdict']}: {after['name']}: {after['summary']} (original: {before['verdict']})"
    return Catch(
        mutant.name, mutant.breaks, mutant.scenario, after["name"], before["verdict"], after["verdict"], said
    )


def _finding(page: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for scenario in page.get("scenarios", ()):
        for finding in scenario["findings"]:
            if finding["name"].startswith(name):
                return finding  # type: ignore[no-any-return]
    return {"name": name, "verdict": "unknown", "summary": "the invariant was not judged"}


def _findings(mutant: Mutant, seed: int, folder: Path, planted: str) -> Mapping[str, Any]:
    """Play in a process of its own: pytest keeps what it imported."""
    from chaos.command import pytest_arguments

    spec = scenario_named(mutant.scenario)
    arguments = pytest_arguments(
        suite=spec.suites[-1],
        seed=seed,
        planes=(mutant.plane,),
        report=folder,
        keywords=spec.name,
        mutant=planted,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "pytest.log").open("wb") as log:
        subprocess.run(  # noqa: S603 - our own interpreter, our own arguments
            [sys.executable, "-m", "pytest", *arguments], stdout=log, stderr=log, check=False
        )
    file = folder / "verdict.json"
    found: Mapping[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found
