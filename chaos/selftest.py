"""Does the suite notice broken replicas? Each mutant's scenario, on the product as it is and on the mutant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from chaos.bench import Bench
from chaos.mutants import MUTANTS, Mutant
from chaos.result import Result, versions
from chaos.run import Run
from chaos.scenario import Scenario
from chaos.suites import scenario_named, scenarios_of
from chaos.verdict import Finding, Verdict, unknown

PATIENCE_SECONDS = 9.0
"""A mutant's views may never become quiet; a second beyond the bound of what may be left."""
TRIES = 2
"""A run that should have said otherwise is played once more: on a busy machine one may fail, or excuse what it saw."""
SCHEMA = 1
RESULTS = "selftest.json"


@dataclass(frozen=True, slots=True)
class Catch:
    """What became of one mutant."""

    mutant: str
    breaks: str
    scenario: str
    plane: str
    invariant: str
    original: str
    """The invariant's verdict on the product as it is."""
    mutated: str
    """Its verdict on the mutant."""
    original_said: str = ""
    mutated_said: str = ""
    evidence: Sequence[str] = ()
    tries: int = 1
    """How often the mutant was played."""
    seconds: float = 0.0
    caught: bool = field(init=False)
    """The invariant fails on the mutant, and passes on the original."""

    def __post_init__(self) -> None:
        """Judges."""
        object.__setattr__(self, "caught", self.original == "pass" and self.mutated == "fail")


def selftest(*, keywords: str, seed: int, folder: Path, say: Callable[[str], None]) -> int:
    """Play them all; 0 if every mutant was caught, 1 if not, 2 if there is none of that name."""
    wanted = [each for each in MUTANTS if keywords in each.name]
    if not wanted:
        say(f"no mutant's name contains {keywords!r}; there are: {', '.join(each.name for each in MUTANTS)}")
        return 2
    begun = time.time()
    with _quiet():
        catches = asyncio.run(_SelfTest(seed, folder, say).play(wanted))
    told = results_of(catches, seed=seed, seconds=time.time() - begun)
    (folder / RESULTS).write_text(json.dumps(told, indent=1) + "\n")
    missed = [each.mutant for each in catches if not each.caught]
    say("\n" + table([asdict(each) for each in catches]))
    say(f"{len(catches) - len(missed)} of {len(catches)} caught, {told['seconds']} s; {folder / RESULTS}")
    if missed:
        say(f"NOT CAUGHT: {', '.join(missed)}")
    return 1 if missed else 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A mutant's log lines are none of the suite's, and on NATS the suite's own audit notices that replicas differ."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def results_of(catches: Sequence[Catch], *, seed: int, seconds: float) -> dict[str, Any]:
    """The whole outcome as JSON values."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "seconds": round(seconds),
        "caught": sum(each.caught for each in catches),
        "versions": versions(),
        "mutants": [asdict(each) for each in catches],
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The outcome as a table, for people."""
    head = ("mutant", "plane", "scenario", "original", "mutant's", "caught")
    cells = [
        (
            *(each[name] for name in ("mutant", "plane", "scenario", "original", "mutated")),
            _yes(each["caught"]),
        )
        for each in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *cells)
    )
    return "\n".join(lines)


def _yes(caught: bool) -> str:
    return "yes" if caught else "NO"


class _SelfTest:
    """Plays each scenario's original once, and then its mutants, on as few clusters as there are topologies."""

    def __init__(self, seed: int, folder: Path, say: Callable[[str], None]) -> None:
        self._say = say
        self._bench = Bench(seed=seed, folder=folder.absolute())
        self._originals: dict[tuple[str, str], Result] = {}

    async def play(self, wanted: Sequence[Mutant]) -> list[Catch]:
        """What became of each, in the order in which they were given."""
        catches: dict[str, Catch] = {}
        try:
            for each in sorted(wanted, key=_order):
                catches[each.name] = catch = await self._catch(each)
                how = "caught" if catch.caught else "NOT CAUGHT"
                self._say(f"  {how}: {catch.mutated}: {catch.invariant}: {catch.mutated_said}")
                if not catch.caught:
                    self._say(f"  the original: {catch.original}: {catch.original_said}")
        finally:
            await self._bench.end()
        return [catches[each.name] for each in wanted]

    async def _catch(self, mutant: Mutant) -> Catch:
        spec = spec_of(mutant)
        begun = time.monotonic()
        original = finding_of(await self._original(mutant, spec), mutant.caught_by)
        self._say(f"{mutant.name}: {mutant.breaks}")
        finding, tries = original, 0
        while tries < TRIES and (not tries or finding.verdict is not Verdict.FAIL):
            tries += 1
            run = f"{mutant.name}{'' if tries == 1 else f'-{tries}'}"
            finding = finding_of(await self._perform(mutant, spec, mutant.name, run), mutant.caught_by)
        return Catch(
            mutant.name, mutant.breaks, spec.name, mutant.plane, finding.name, str(original.verdict),
            str(finding.verdict), original.summary, finding.summary, finding.evidence, tries,
            round(time.monotonic() - begun, 1),
        )  # fmt: skip

    async def _original(self, mutant: Mutant, spec: Scenario) -> Result:
        place = (spec.name, mutant.plane)
        for number in range(1, TRIES + 1):
            known = self._originals.get(place)
            if known is not None and finding_of(known, mutant.caught_by).verdict is Verdict.PASS:
                return known
            if known is None or number > 1:
                self._say(f"the replicas as they are in {spec.name} on {mutant.plane}")
                run = f"original-{spec.name}-{mutant.plane}{'' if number == 1 else f'-{number}'}"
                self._originals[place] = await self._perform(mutant, spec, "", run)
        return self._originals[place]

    async def _perform(self, mutant: Mutant, spec: Scenario, planted: str, run: str) -> Result:
        self._bench.takes(planted, run=run)
        topology = spec.topology.on(mutant.plane)
        return await Run(spec, topology, self._bench, patience=PATIENCE_SECONDS).perform({})


def spec_of(mutant: Mutant) -> Scenario:
    """The mutant's scenario: one of its own kind, or of a suite. Raises KeyError."""
    from chaos.mutants import scenarios as own

    return next((spec for spec in scenarios_of(own) if spec.name == mutant.scenario), None) or scenario_named(
        mutant.scenario
    )


def _order(mutant: Mutant) -> tuple[str, str]:
    spec = spec_of(mutant)
    return spec.topology.on(mutant.plane).key, spec.name


def finding_of(result: Result, name: str) -> Finding:
    """What the invariant whose name begins so found."""
    why = "; ".join(each.summary for each in result.findings if each.verdict is Verdict.UNKNOWN)
    for finding in result.findings:
        if finding.name.startswith(name) and finding.kind == "invariant":
            return replace(finding, summary=why) if finding.verdict is Verdict.UNKNOWN else finding
    return unknown(name, f"it was not judged: {why}")
