"""Workers restart, leave the pool, lose their bridge."""

from __future__ import annotations

from chaos.checks import (
    ALWAYS,
    always,
    calls_made,
    events_healthy,
    fault_seen,
    in_flight,
    no_pick_of_the_gone,
)
from chaos.injectors.process import kill, restart
from chaos.injectors.workers import leave
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario


@scenario(load=OpenLoop(rate=10, long_share=0.2), budget=60)
async def engine_restarted_in_place(run: Run) -> None:
    """An engine that starts anew on its address loses what it carried and held, and every replica notices."""
    engine = run.an_engine()
    await run.steady(seconds=4)
    async with run.inject(restart(engine)):
        await run.hold(seconds=4)
    await run.settle(seconds=2)
    run.happened(fault_seen("restart", engine), calls_made(at_least=60), in_flight("restart", at_least=4))
    run.holds(*always(lost=40, refused=40, by=(engine,)), events_healthy())


@scenario(load=OpenLoop(rate=10, long_share=0.3), budget=60)
async def worker_leaves_with_requests_under_way(run: Run) -> None:
    """A worker that leaves the pool finishes what it has, gets nothing more, and is used again once it is back."""
    engine = run.an_engine()
    await run.steady(seconds=4)
    async with run.inject(leave(engine)):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    run.happened(fault_seen("leave", engine), calls_made(at_least=70), in_flight("leave", at_least=4))
    run.holds(*ALWAYS, no_pick_of_the_gone(seconds=2.0))


@scenario(load=OpenLoop(rate=10), budget=60)
async def bridge_killed(run: Run) -> None:
    """Without its bridge a worker is served as before, by what is known; with it the index becomes whole again."""
    bridge = run.an_engine().replace("engine", "bridge")
    await run.steady(seconds=4)
    async with run.inject(kill(bridge)):
        await run.hold(seconds=4)
    await run.settle(seconds=5)
    run.happened(fault_seen("kill", bridge, lasting=3), calls_made(at_least=80))
    run.holds(*ALWAYS, events_healthy())
