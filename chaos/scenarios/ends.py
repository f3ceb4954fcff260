"""Ends of requests come early, late and twice; bookings are sent twice."""

from __future__ import annotations

from chaos.checks import ALWAYS, always, calls_made, counted, fault_seen, in_flight
from chaos.injectors.links import half_open
from chaos.injectors.process import freeze
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology


@scenario(load=OpenLoop(rate=4), budget=60)
async def ends_that_come_early_late_and_twice(run: Run) -> None:
    """An end told before anybody knows the booking, again when it is long gone, and by two ways, ends it once."""
    run.happened(fault_seen("freeze"), calls_made(at_least=20), counted("picker_plane_bookings_done_total"))
    run.holds(*always())
    owner, second, third = run.rng.sample(run.replicas, 3)
    await run.steady(seconds=2)
    async with run.streams() as gateway:
        log, other_log = gateway.logs(second), gateway.logs(third)
        async with run.inject(freeze("plane")):
            attempts = [await gateway.ask(owner, tokens=1) for _ in range(12)]
            await log.tell(*attempts, end=True)
            await run.hold(seconds=1.5)
        await run.hold(seconds=2)
        await other_log.tell(*attempts, end=True)
        await other_log.tell(*attempts[:6], end=False)
        for attempt in attempts:
            await attempt.answered()
            await attempt.finished()
        await run.settle(seconds=2)


@scenario(topology=Topology(links=("envoy>*", "picker-*>plane")), load=OpenLoop(rate=12), budget=60)
async def bookings_sent_twice_count_once(run: Run) -> None:
    """Where only the plane's answers are lost, operations are sent again: each takes effect once."""
    replica = run.a_replica()
    await run.steady(seconds=3)
    async with run.inject(half_open(f"{replica}>plane", ways="back")):
        await run.hold(seconds=2.5)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("half-open", lasting=2),
        in_flight("half-open", at_least=3),
        counted("picker_plane_bookings_same_total"),
    )
    run.holds(*ALWAYS)
