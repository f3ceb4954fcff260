"""Replicas come and go in good order, or all at once; versions stand side by side."""

from __future__ import annotations

from contextlib import AsyncExitStack

from chaos.checks import (
    ALWAYS,
    UNTOLD,
    answered,
    calls_made,
    fault_seen,
    prefixes_found,
    schema_follows,
    whole,
)
from chaos.injectors.previous import previous, previous_build
from chaos.injectors.process import kill, terminate
from chaos.injectors.together import together
from chaos.injectors.upgrade import upgrade
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology


@scenario(load=OpenLoop(rate=10, long_share=0.15), budget=110, needs=("terminate",))
async def rolling_restart_under_load(run: Run) -> None:
    """Replicas that are ended one after the other in good order cost no request, and leave no load behind."""
    replicas = run.replicas
    await run.steady(seconds=3)
    for replica in replicas:
        async with run.inject(terminate(replica)):
            await run.hold(seconds=0.5)
    await run.settle(seconds=3)
    run.happened(*(fault_seen("terminate", replica) for replica in replicas), calls_made(at_least=100))
    run.holds(*run.ending_in_good_order)


@scenario(
    topology=Topology(replicas=5, settings={"PICKER_DRAIN_MAX_SECONDS": "4"}),
    load=OpenLoop(rate=10, long_share=0.15),
    budget=110,
)
async def scaled_from_three_to_five_to_two(run: Run) -> None:
    """Scaling out and in under load costs no request; who joins knows all, who leaves takes nothing along."""
    await run.steady(seconds=1)
    async with run.inject(together(terminate("picker-3"), terminate("picker-4"))):
        await run.hold(seconds=2)
    await run.hold(seconds=2)
    async with run.inject(together(*(terminate(f"picker-{number}") for number in (0, 1, 2)))):
        await run.hold(seconds=4)
    await run.settle(seconds=3)
    run.happened(*(fault_seen("terminate", replica) for replica in run.replicas), calls_made(at_least=100))
    run.holds(*ALWAYS)


@scenario(
    topology=Topology(settings={"PICKER_WHY_KEEP": "9999"}),
    load=OpenLoop(rate=8, long_share=0.15),
    budget=240,
)
async def upgraded_one_after_the_other(run: Run) -> None:
    """Two versions stand side by side under load: each reads what the other writes, and nothing is lost on the way.

    The other version is this code with the next schema, for good. With ``--previous PATH`` it is the build there, which
    takes the place of one replica after the other until it has all of them, and leaves it again.
    """
    earlier = previous_build()
    await run.steady(seconds=3)
    if earlier is None:
        for replica in run.replicas:
            async with run.inject(upgrade(replica)):
                await run.hold(seconds=1)
    else:
        async with AsyncExitStack() as mixed:
            for replica in run.replicas:
                await mixed.enter_async_context(run.inject(previous(replica, earlier)))
                await run.hold(seconds=1)
    await run.settle(seconds=4)
    kind = "upgrade" if earlier is None else "previous"
    run.happened(*(fault_seen(kind, replica) for replica in run.replicas), calls_made(at_least=80))
    run.holds(*ALWAYS, *([schema_follows(1, 2)] if earlier is None else []))


@scenario(load=OpenLoop(rate=8, conversations=6, long_share=0.2), budget=90)
async def all_replicas_cold_at_once(run: Run) -> None:
    """Replicas that all start at once know the running load and every prefix before the first pick."""
    await run.steady(seconds=5)
    async with run.inject(together(*(kill(replica) for replica in run.replicas))):
        await run.hold(seconds=0.5)
    await run.settle(seconds=5)
    run.happened(*(fault_seen("kill", replica) for replica in run.replicas), calls_made(at_least=60))
    run.holds(answered(lost=4, dark=True), whole(), *UNTOLD, prefixes_found(share=0.6))
