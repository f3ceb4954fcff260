"""Ways to the plane: one replica cut off, in both directions or one; connections half-open, or reset all the time."""

from __future__ import annotations

from chaos.checks import (
    ALWAYS,
    always,
    calls_made,
    fault_seen,
    in_flight,
    never_empty,
)
from chaos.injectors.links import half_open, partition, reset
from chaos.injectors.process import freeze, kill
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, WIRED, in_time


@scenario(topology=WIRED, load=BRISK, budget=75)
async def one_replica_cut_off_from_the_plane(run: Run) -> None:
    """A replica cut off picks on from what it knows; its bookings count while they run; healed, all agree again."""
    await run.steady(seconds=3)
    async with run.inject(partition(f"{run.a_replica()}>plane")):
        await run.hold(seconds=7)
    await run.settle(seconds=4)
    run.happened(fault_seen("partition", lasting=6), in_flight("partition", at_least=5))
    run.holds(*ALWAYS, in_time("partition"), never_empty(during="partition"))


@scenario(topology=WIRED, load=BRISK, budget=75)
async def one_replica_is_not_heard_and_one_does_not_hear(run: Run) -> None:
    """What one replica says is lost and what another is told is lost: both pick on, and agree once healed."""
    deaf, mute, _ = run.rng.sample(run.replicas, 3)
    await run.steady(seconds=3)
    async with run.inject(partition(f"{mute}>plane", ways="there"), partition(f"{deaf}>plane", ways="back")):
        await run.hold(seconds=7)
    await run.settle(seconds=4)
    run.happened(fault_seen("partition", lasting=6), in_flight("partition", at_least=5))
    run.holds(*ALWAYS, in_time("partition"), never_empty(during="partition"))


@scenario(topology=WIRED, load=BRISK, budget=75)
async def plane_connections_half_open(run: Run) -> None:
    """The plane is gone without a word, for all: no pick waits for it, and new connections are made after it."""
    await run.steady(seconds=3)
    async with run.inject(half_open("*>plane")):
        await run.hold(seconds=7)
    await run.settle(seconds=4)
    run.happened(fault_seen("half-open", lasting=6), in_flight("half-open", at_least=5))
    run.holds(*ALWAYS, in_time("half-open"), never_empty(during="half-open"))


@scenario(topology=WIRED, load=BRISK, budget=75)
async def plane_connections_reset_again_and_again(run: Run) -> None:
    """Connections to the plane that live for half a second each lose no booking and double none."""
    await run.steady(seconds=3)
    async with run.inject(reset("*>plane", after=0.5)):
        await run.hold(seconds=6)
    await run.settle(seconds=4)
    run.happened(fault_seen("reset", lasting=5), calls_made(at_least=100), in_flight("reset", at_least=5))
    run.holds(*ALWAYS, in_time("reset"), never_empty(during="reset"))


@scenario(load=BRISK, budget=90)
async def replica_dies_while_the_plane_is_frozen(run: Run) -> None:
    """Two faults at once: the others serve on from their views, and once the plane is back the dead one's load goes."""
    await run.steady(seconds=3)
    replica = await run.a_busy_replica(at_least=3)
    async with run.inject(kill(replica), freeze("plane")):
        await run.hold(seconds=6)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("freeze", lasting=5),
        fault_seen("kill", lasting=5),
        in_flight("kill", at_least=2, on="target"),
    )
    run.holds(*always(lost=3), in_time("freeze"), never_empty(during="freeze"))
