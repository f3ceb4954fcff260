"""A run to compare with that came to nothing is no comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.result import Result, ScenarioFailed
from chaos.run import Run
from chaos.scenario import Scenario
from chaos.story import Story
from chaos.targets.local import Local
from chaos.topology import Topology
from chaos.verdict import Verdict


class NoCluster:
    """A stage on which no cluster comes up."""

    seed = 1
    soak_seconds = 0.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: list[str] = []
        self.results: list[Result] = []

    async def cluster(self, topology: Topology) -> Local:
        raise OSError(f"no machine for {topology.replicas} replicas")

    async def discard(self) -> None:
        """Nothing to end."""

    def twin(self, _key: str) -> Story | None:
        return None

    def keep_twin(self, key: str, _story: Story) -> None:
        self.kept.append(key)

    def done(self, result: Result) -> None:
        self.results.append(result)


async def test_a_twin_that_broke_off_is_told_with_its_reason_and_is_never_compared_with(
    tmp_path: Path,
) -> None:
    async def story(run: Run) -> None:
        await run.steady(seconds=1)

    stage = NoCluster(tmp_path)
    played = Scenario(name="played", says="", source="", play=story, twins=("fault_free",))
    with pytest.raises(
        ScenarioFailed, match=r"run to compare with \(fault_free\).*no machine for 3 replicas"
    ):
        await Run(played, played.topology, stage).play()
    assert stage.kept == []
    assert [result.verdict for result in stage.results] == [Verdict.UNKNOWN]
