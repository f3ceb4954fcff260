"""What a scenario would do, told without doing it: for ``--dry-run``, and to show that a seed settles everything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.checkers import Check
from chaos.injectors import Injection
from chaos.result import Result
from chaos.run import Run
from chaos.scenario import Scenario
from chaos.story import Story
from chaos.targets import Target
from chaos.topology import PlaneName, Topology


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario's steps in order, and what it demands."""

    scenario: Scenario
    topology: Topology
    steps: tuple[str, ...]
    demands: tuple[str, ...]
    whole: bool
    """False: it goes on with steps of its own, which only a run can show."""
    seconds: float


def _described(injection: Injection) -> str:
    return injection.describe()


class _NoStage:
    """A stage on which nothing can be started."""

    soak_seconds = 0.0

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.folder = Path()

    async def cluster(self, topology: Topology) -> Target:
        raise NotImplementedError(f"a plan starts nothing: {topology.words()}")

    async def discard(self) -> None:
        """Nothing to end."""

    def twin(self, _key: str) -> Story | None:
        return None

    def keep_twin(self, key: str, story: Story) -> None:
        """Nothing to keep."""

    def done(self, result: Result) -> None:
        """Nothing is done."""


@dataclass(slots=True)
class DryRun(Run):
    """Writes down what it is told to do."""

    steps: list[str] = field(default_factory=list)
    demands: list[str] = field(default_factory=list)
    seconds: float = 0.0
    names: Sequence[str] = ()
    """The replicas of a release that was met; empty: those of the topology."""
    calls: Callable[[Injection], tuple[Iterable[str], Iterable[str]]] | None = None
    """What an injection would call of an API server, and what its healing would."""
    words: Callable[[Injection], str] = _described

    @property
    def replicas(self) -> list[str]:
        """Names of the replicas."""
        return list(self.names) or [f"picker-{number}" for number in range(self.topology.replicas)]

    async def steady(self, *, seconds: float) -> None:
        """Only says so."""
        load = self.scenario.load.words() if self.scenario.load else "no load of its own"
        self._step(f"start the load ({load}); {seconds:g} s undisturbed", seconds)

    async def a_busy_replica(self, *, at_least: int) -> str:
        """Only says so."""
        replica = self.a_replica()
        self._step(f"wait until {replica} has {at_least} requests of its own under way", 0.0)
        return replica

    async def hold(self, *, seconds: float) -> None:
        """Only says so."""
        self._step(f"{seconds:g} s so", seconds)

    async def settle(self, *, seconds: float) -> None:
        """Only says so."""
        self._step(f"{seconds:g} s healed, under load", seconds)

    @contextlib.asynccontextmanager
    async def inject(self, *injections: Injection) -> AsyncIterator[None]:
        """Only says so."""
        calls = [self.calls(injection) if self.calls else ((), ()) for injection in injections]
        for injection, (done, _) in zip(injections, calls, strict=True):
            self._step(self.words(injection), 0.0)
            self.steps += [f"    {call}" for call in done]
        yield
        for injection, (_, undone) in zip(reversed(injections), reversed(calls), strict=True):
            self._step(f"heal: {injection.kind} of {injection.target}", 0.0)
            self.steps += [f"    {call}" for call in undone]

    def note(self, name: str, **value: Any) -> None:
        """Nothing to write into."""

    def happened(self, *checks: Check) -> None:
        """Only says so."""
        self.demands += [f"must have happened: {check.name}" for check in checks]

    def holds(self, *checks: Check) -> None:
        """Only says so."""
        self.demands += [f"must hold: {check.name}" for check in checks]

    def _step(self, text: str, seconds: float) -> None:
        self.steps.append(text)
        self.seconds += seconds


async def plan(
    scenario: Scenario,
    *,
    seed: int,
    plane: PlaneName,
    topology: Topology | None = None,
    names: Sequence[str] = (),
    calls: Callable[[Injection], tuple[Iterable[str], Iterable[str]]] | None = None,
    words: Callable[[Injection], str] = _described,
) -> Plan:
    """The steps of a scenario under a seed. Touches nothing.

    ``topology``, ``names`` of replicas and ``calls`` are those of a release that was met.
    """
    topology = topology or scenario.topology.on(plane)
    run = DryRun(scenario, topology, _NoStage(seed), names=names, calls=calls, words=words)
    whole = True
    try:
        await scenario.play(run)
    except (AssertionError, NotImplementedError, AttributeError):
        whole = False  # it asked for the running cluster
    return Plan(scenario, topology, tuple(run.steps), tuple(run.demands), whole, run.seconds)
