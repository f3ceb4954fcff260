"""The soak strikes everything there is, and leaves one replica alone so that its growth can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenarios.soak import BUSY, LONG_LIVED, LOST_SECONDS, _in_turn
from chaos.suites import scenario_named
from chaos.topology import PLANES, PlaneName


class Nowhere:
    soak_seconds = 0.0
    seed = 1
    folder = Path()

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


@pytest.mark.parametrize("plane", PLANES)
def test_everything_starts_anew_but_the_replica_that_is_watched(plane: PlaneName) -> None:
    spec = scenario_named("everything_restarts_in_turn")
    run = Run(spec, spec.topology.on(plane), Nowhere())
    struck = [injection.target for injection in _in_turn(run)]
    assert {"plane", "envoy"} <= set(struck)
    assert set(run.replicas) - set(struck) == {LONG_LIVED}
    assert {target.partition("-")[0] for target in struck} >= {*LOST_SECONDS, "bridge"}
    assert ("nats" in struck) == (plane == "redis"), "with the plane on NATS it is struck once each round"
    assert spec.topology.settings["PICKER_TRANSPORT"] == "native"


def test_half_an_hour_of_the_busy_load_fits_into_memory() -> None:
    assert isinstance(spec_load := scenario_named("everything_restarts_in_turn").load, OpenLoop)
    assert spec_load == BUSY
    assert BUSY.rate == 300
    wanted = BUSY.arrivals("1", 10.0)
    assert len(wanted) == pytest.approx(3_000, rel=0.1)
    assert max(len(one.body()) for one in wanted) < 1_500
