"""The plane answers, but late: within its deadline, or only past it."""

from __future__ import annotations

from chaos.checks import (
    ALWAYS,
    calls_made,
    counted,
    fault_seen,
    in_flight,
    never_empty,
    seen_by_all,
)
from chaos.injectors.links import latency
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, WIRED, in_time


@scenario(topology=WIRED, load=BRISK, budget=75)
async def picks_do_not_wait_for_a_plane_50_ms_away(run: Run) -> None:
    """A plane 50 ms away costs no pick any time, and views keep up with it."""
    await run.steady(seconds=2)
    async with run.inject(latency("*>plane", seconds=0.05, jitter=0.01)):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    run.happened(fault_seen("latency", lasting=5), calls_made(at_least=80), in_flight("latency", at_least=3))
    run.holds(*ALWAYS, in_time("latency"), seen_by_all(during="latency"))


@scenario(topology=WIRED, load=BRISK, budget=75)
async def plane_slower_than_its_deadline(run: Run) -> None:
    """Where every call to the plane outlasts its deadline, picks go on from the view, and no load reads as none."""
    await run.steady(seconds=3)
    async with run.inject(latency("*>plane", seconds=0.5)):
        await run.hold(seconds=7)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("latency", lasting=6),
        in_flight("latency", at_least=3),
        counted("picker_plane_calls_failed_total"),
    )
    run.holds(*ALWAYS, in_time("latency"), never_empty(during="latency"))
