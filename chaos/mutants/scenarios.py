"""Short scenarios in which mutants show, where none of a suite does. Each passes on the replicas as they are.

They are in no suite: what they hold is held there, too, in longer ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from chaos.checks import (
    BOOKINGS,
    as_many_booked,
    attempts_known,
    fault_seen,
    in_flight,
    indexes_true,
    late_changes_nothing,
    leases_kept,
    never_empty,
    no_live_gone,
    none_outlives,
    nothing_forgotten,
)
from chaos.indexes import compare_indexes
from chaos.injectors.late import late_operations
from chaos.injectors.links import latency, partition
from chaos.injectors.process import freeze, kill, restart
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import WIRED
from chaos.streams import Attempt, Logs
from chaos.topology import Topology

BUSY = OpenLoop(rate=10, tokens=(20, 60), long_share=0.3, long_tokens=(100, 160), cancel_share=0)
UNLOGGED = Topology(hold="response", access_log=False)
SOON_DRAINED = Topology(settings={"PICKER_DRAIN_SECONDS": "3"})


@scenario(load=BUSY, suites=(), budget=40)
async def requests_come_and_go(run: Run) -> None:
    """Nothing goes wrong: sums are exact in every view and on the plane."""
    await run.steady(seconds=5)
    run.holds(*BOOKINGS)


@scenario(topology=UNLOGGED, load=None, suites=(), budget=50)
async def a_replica_dies_and_no_log_tells(run: Run) -> None:
    """A dead replica's bookings go soon after their work, though nobody says of any that it has ended."""
    run.happened(fault_seen("kill"), in_flight("kill", at_least=4, on="target"))
    run.holds(none_outlives())
    replica = run.a_replica()
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        attempts = [await gateway.ask(replica, tokens=700) for _ in range(4)]
        for attempt in attempts:
            await attempt.send()
        await run.hold(seconds=1)
        async with run.inject(kill(replica)):
            for attempt in attempts:
                await attempt.hang_up()
            await run.hold(seconds=10)


@scenario(topology=SOON_DRAINED, load=None, suites=(), budget=60)
async def a_dead_replicas_requests_run_on(run: Run) -> None:
    """What a log names as running counts on, beyond every deadline, whoever picked it."""
    run.happened(fault_seen("kill"), in_flight("kill", at_least=4, on="target"))
    run.holds(no_live_gone())
    here, there = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        attempts = [await gateway.ask(here, tokens=700) for _ in range(4)]
        for attempt in attempts:
            await attempt.send()
        async with _named(gateway.logs(there), attempts):
            await run.hold(seconds=1)
            async with run.inject(kill(here)):
                await run.hold(seconds=9.5)
        for attempt in attempts:
            await attempt.hang_up()
        await gateway.logs(there).tell(*attempts, end=True)
        await run.settle(seconds=0.5)


@contextlib.asynccontextmanager
async def _named(logs: Logs, attempts: list[Attempt]) -> AsyncIterator[None]:
    """The gateway's log names these as running, once a second."""

    async def again() -> None:
        while True:
            await logs.tell(*attempts, end=False)
            await asyncio.sleep(1.0)

    naming = asyncio.create_task(again())
    try:
        yield
    finally:
        naming.cancel()
        await asyncio.gather(naming, return_exceptions=True)


@scenario(load=BUSY, suites=(), budget=50)
async def the_plane_stands_still(run: Run) -> None:
    """A plane that answers nobody for two leases takes no lease from anybody, and no load out of any view."""
    await run.steady(seconds=2)
    async with run.inject(freeze("plane")):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    run.happened(fault_seen("freeze", lasting=5), in_flight("freeze", at_least=4))
    run.holds(never_empty(during="freeze"), leases_kept())


@scenario(topology=WIRED, load=BUSY, suites=(), budget=50)
async def a_far_plane_comes_back_empty(run: Run) -> None:
    """While views are read anew from a plane far away, they show what they showed before."""
    await run.steady(seconds=2)
    async with run.inject(latency("*>plane", seconds=0.03)):
        await run.hold(seconds=1)
        for _ in range(3):
            async with run.inject(restart("plane")):
                await run.hold(seconds=2)
    await run.settle(seconds=1)
    run.happened(fault_seen("restart"), in_flight("restart", at_least=4))
    run.holds(nothing_forgotten(during="restart"))


@scenario(topology=WIRED, load=None, suites=(), budget=50)
async def an_end_that_overtakes_its_booking(run: Run) -> None:
    """An end that is told while the booking's owner is cut off holds when the owner's word comes at last."""
    run.happened(fault_seen("partition", lasting=1.5), fault_seen("restart"))
    run.holds(none_outlives())
    owner, other = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        async with run.inject(partition(f"{owner}>plane")):
            attempts = [await gateway.ask(owner, tokens=1) for _ in range(4)]
            await gateway.logs(other).tell(*attempts, end=True)
            await run.hold(seconds=1.5)
            async with run.inject(
                restart(other)
            ):  # whoever heard of the end remembers it no more: the plane must
                await run.hold(seconds=0.5)
        await run.hold(seconds=10.5)
        for attempt in attempts:
            await attempt.answered()
            await attempt.finished()


@scenario(load=None, planes=("nats",), suites=(), budget=50)
async def operations_of_an_older_term_come_late(run: Run) -> None:
    """What was given up and comes long after its successor changes no booking."""
    run.happened(fault_seen("late-operations"))
    run.holds(late_changes_nothing())
    replica = run.a_replica()
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        attempts = [await gateway.ask(replica, tokens=300) for _ in range(3)]
        for attempt in attempts:
            await attempt.send()
        await run.hold(seconds=1)
        for attempt in attempts:
            await attempt.break_off()
        async with run.inject(late_operations(replica)):
            await run.hold(seconds=3)
        for attempt in attempts:
            await attempt.hang_up()
        await gateway.logs(replica).tell(*attempts, end=True)
        await run.settle(seconds=0.5)


@scenario(topology=UNLOGGED, load=None, suites=(), budget=60)
async def half_of_a_dead_replicas_requests_end(run: Run) -> None:
    """Reports end as many of a dead replica's bookings as are over, and no more."""
    run.happened(fault_seen("kill"), in_flight("kill", at_least=8, on="target"))
    run.holds(as_many_booked())
    dies, lives = run.rng.sample(run.replicas, 2)
    worker = run.target.engines()[run.an_engine()]
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        over = [await gateway.ask(dies, tokens=700, only=[worker]) for _ in range(4)]
        on = [await gateway.ask(dies, tokens=700, only=[worker]) for _ in range(4)]
        others = [await gateway.ask(lives, tokens=700, only=[worker]) for _ in range(8)]
        for attempt in (*over, *on, *others):
            await attempt.send()
        await run.hold(seconds=1.5)
        async with run.inject(kill(dies)):
            for attempt in over:
                await attempt.hang_up()
            await run.hold(seconds=9.5)
        for attempt in (*on, *others):
            await attempt.hang_up()
        await run.settle(seconds=0.5)


@scenario(load=None, planes=("nats",), suites=(), budget=50)
async def asked_again_while_the_first_worker_works(run: Run) -> None:
    """A request whose stream broke is asked for again elsewhere: the first attempt is superseded."""
    run.holds(attempts_known())
    here, there = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=0)
    async with run.streams() as gateway:
        first = await gateway.ask(here, tokens=400)
        await first.send()
        await run.hold(seconds=1)
        await first.break_off()
        await run.hold(seconds=0.5)
        second = await gateway.ask(there, again=first)
        await second.send()
        await run.hold(seconds=5)
        for attempt in (first, second):
            await attempt.hang_up()
        await second.finished()
        await gateway.logs(here).tell(first, end=True)
        await run.settle(seconds=0.5)


@scenario(topology=WIRED, load=BUSY, suites=(), budget=60)
async def a_replica_returns_and_asks_what_workers_hold(run: Run) -> None:
    """A replica that starts late knows what every engine holds, though nobody announces it again."""
    run.happened(fault_seen("restart"))
    run.holds(indexes_true())
    await run.steady(seconds=3)
    async with run.inject(restart(run.a_replica())):
        await run.hold(seconds=1)
    await compare_indexes(run, seconds=11)
