"""The plane stands still, or comes back with nothing."""

from __future__ import annotations

from chaos.checks import ALWAYS, calls_made, fault_seen, in_flight, picks_within
from chaos.injectors.process import freeze, restart
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario


@scenario(load=OpenLoop(rate=12), suites=("smoke", "release"), budget=75)
async def picks_go_on_while_the_plane_is_frozen(run: Run) -> None:
    """While the plane stands still every request is served from the view, in time, and no load reads as none."""
    await run.steady(seconds=4)
    async with run.inject(freeze("plane")):
        await run.hold(seconds=8)
    await run.settle(seconds=5)
    run.happened(fault_seen("freeze", lasting=7), calls_made(at_least=120), in_flight("freeze", at_least=5))
    run.holds(*ALWAYS, picks_within(ms=250, during="freeze"))


@scenario(load=OpenLoop(rate=12, long_share=0.15), suites=("smoke", "release"), budget=75)
async def plane_comes_back_empty(run: Run) -> None:
    """A plane that lost everything is filled again from the replicas; meanwhile their views keep what they knew."""
    await run.steady(seconds=4)
    async with run.inject(restart("plane")):
        await run.hold(seconds=4)
    await run.settle(seconds=5)
    run.happened(fault_seen("restart"), calls_made(at_least=100), in_flight("restart", at_least=8))
    run.holds(*ALWAYS)
