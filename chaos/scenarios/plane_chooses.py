"""Mode atomic: the plane itself chooses among the best workers, as long as it is there."""

from __future__ import annotations

from chaos.checks import ALWAYS, calls_made, counted, fault_seen, in_flight, never_empty
from chaos.injectors.process import freeze
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, in_time
from chaos.topology import Topology


@scenario(topology=Topology(sync="atomic"), load=BRISK, planes=("redis",), budget=75)
async def atomic_picks_fall_back_to_the_view(run: Run) -> None:
    """While the plane that chooses stands still, picks are made on the view, in time, and counted as degraded.

    On Redis alone: NATS cannot choose and book in one step, and a replica refuses to start so.
    """
    await run.steady(seconds=3)
    async with run.inject(freeze("plane")):
        await run.hold(seconds=6)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("freeze", lasting=5), calls_made(at_least=100), in_flight("freeze", at_least=5),
        counted("picker_picks_by_plane_total", at_least=30), counted("picker_picks_degraded_total", at_least=30),
    )  # fmt: skip
    run.holds(*ALWAYS, in_time("freeze"), never_empty("freeze"))
