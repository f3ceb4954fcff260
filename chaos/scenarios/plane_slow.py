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
from chaos.injectors.links import latency, reset
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, WIRED, in_time
from chaos.topology import Topology

LONG_RUNNING = OpenLoop(rate=8, long_share=0.4, long_tokens=(300, 450), cancel_share=0)
FAR = Topology(links=WIRED.links, settings={"PICKER_PLANE_TIMEOUT_SECONDS": "0.5"})
"""A deadline that a round trip of 0.2 s keeps on a busy machine too; making a connection takes five of them."""


@scenario(topology=WIRED, load=BRISK, budget=75)
async def picks_do_not_wait_for_a_plane_50_ms_away(run: Run) -> None:
    """A plane 50 ms away costs no pick any time, and views keep up with it."""
    await run.steady(seconds=2)
    async with run.inject(latency("*>plane", seconds=0.05, jitter=0.01)):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    run.happened(fault_seen("latency", lasting=5), calls_made(at_least=80), in_flight("latency", at_least=3))
    run.holds(*ALWAYS, in_time("latency"), seen_by_all(during="latency"))


@scenario(topology=FAR, load=LONG_RUNNING, budget=75)
async def far_plane_lost_and_reached_again(run: Run) -> None:
    """A plane 100 ms away each way whose connections are reset is reached again from there, and views keep up."""
    await run.steady(seconds=3)
    async with run.inject(latency("*>plane", seconds=0.1, ways="both"), reset("*>plane")):
        await run.hold(seconds=9)
    await run.settle(seconds=3)
    run.happened(
        fault_seen("latency", lasting=8),
        fault_seen("reset"),
        calls_made(at_least=100),
        in_flight("reset", at_least=5),
    )
    run.holds(*ALWAYS, in_time("latency"), seen_by_all(during="latency", within=3))


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
