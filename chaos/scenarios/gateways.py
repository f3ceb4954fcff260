"""The gateway dies, stands still, loses a replica without a word; callers read nothing or send nonsense."""

from __future__ import annotations

from chaos.checks import (
    BOOKINGS,
    UNTOLD,
    always,
    answered,
    calls_made,
    fault_seen,
    in_flight,
    poison_refused,
    whole,
)
from chaos.injectors.links import half_open
from chaos.injectors.poison import poison_bodies
from chaos.injectors.process import freeze, restart
from chaos.load import OpenLoop
from chaos.readers import IdleReader
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology
from picker.sim.model import MODEL

WIRED = Topology(links=("envoy>*", "picker-*>plane"))


@scenario(load=OpenLoop(rate=10, long_share=0.2), budget=60)
async def gateway_killed(run: Run) -> None:
    """A gateway's death cuts what it carries; what no engine works on any more is gone soon after its return."""
    await run.steady(seconds=4)
    async with run.inject(restart("envoy")):
        await run.hold(seconds=5)
    await run.settle(seconds=2)
    run.happened(fault_seen("restart", "envoy"), calls_made(at_least=60), in_flight("restart", at_least=5))
    run.holds(answered(lost=80, around=8), whole(by=("envoy",)), *BOOKINGS)


@scenario(load=OpenLoop(rate=10, long_share=0.2), budget=60)
async def gateway_stands_still(run: Run) -> None:
    """A gateway that reads and says nothing for a while costs nothing but that time."""
    await run.steady(seconds=4)
    async with run.inject(freeze("envoy")):
        await run.hold(seconds=6)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("freeze", "envoy", lasting=5), calls_made(at_least=80), in_flight("freeze", at_least=4)
    )
    run.holds(*always())


@scenario(topology=WIRED, load=OpenLoop(rate=10, long_share=0.2), budget=75)
async def gateway_and_replica_lose_each_other_without_a_word(run: Run) -> None:
    """A half-open link costs the picks in hand until the gateway notices; the replica's load stays true."""
    link = f"envoy>{run.a_replica()}"
    await run.steady(seconds=4)
    async with run.inject(half_open(link)):
        await run.hold(seconds=9)
    await run.settle(seconds=3)
    run.happened(fault_seen("half-open", link, lasting=8), calls_made(at_least=90))
    run.holds(answered(lost=12, around=8), whole(by=(link,)), *UNTOLD)


@scenario(load=OpenLoop(rate=5), budget=60)
async def callers_that_read_nothing(run: Run) -> None:
    """Callers whose buffers stand full hold up nobody, and their load ends when their workers are done."""
    run.happened(calls_made(at_least=40))
    run.holds(*always())
    await run.steady(seconds=2)
    readers = [IdleReader(run.history, run.target.gateway) for _ in range(8)]
    for number, reader in enumerate(readers):
        await reader.send(tokens=300, prompt=f"reader {number} tell me of the harbor")
    await run.hold(seconds=7)
    run.note("unread", bytes=[reader.unread for reader in readers])
    for reader in readers:
        await reader.read()
    await run.settle(seconds=2)


@scenario(load=OpenLoop(rate=6), budget=75)
async def poisoned_bodies(run: Run) -> None:
    """Bodies that are no requests are refused, each with a status of its own; everybody else is served on."""
    await run.steady(seconds=2)
    async with run.inject(poison_bodies(model=MODEL, seed=run.stage.seed)):
        await run.hold(seconds=1)
    await run.settle(seconds=2)
    run.happened(fault_seen("poison-bodies"), calls_made(at_least=30))
    run.holds(*always(), poison_refused())
