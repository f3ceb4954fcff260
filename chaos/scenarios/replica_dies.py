"""A replica dies, or stands still and comes back."""

from __future__ import annotations

from chaos.checks import always, booking_error, calls_made, fault_seen, in_flight
from chaos.injectors.process import freeze, kill
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology


@scenario(
    load=OpenLoop(rate=12, bursts=((5.0, 24),)),
    suites=("smoke", "release"),
    budget=75,
    twins=("fault_free",),
    needs=("kill",),
)
async def replica_killed_in_a_burst(run: Run) -> None:
    """A replica killed in a burst costs the picks it had in hand at most; its load counts while it runs, no longer."""
    await run.steady(seconds=5.3)
    replica = await run.a_busy_replica(at_least=4)
    async with run.inject(kill(replica)):
        await run.hold(seconds=8)
    await run.settle(seconds=4)
    run.happened(fault_seen("kill"), calls_made(at_least=120), in_flight("kill", at_least=3, on="target"))
    run.holds(*always(lost=run.lost(3)), booking_error(at_most_share=0.1))


@scenario(load=OpenLoop(rate=8, long_share=0.2, long_tokens=(300, 700)), suites=("release",), budget=75)
async def replica_frozen_with_live_streams_then_resumed(run: Run) -> None:
    """A replica that stands still for four leases costs picks in hand at most; then takes nothing from anybody."""
    await run.steady(seconds=5)
    replica = await run.a_busy_replica(at_least=4)
    async with run.inject(freeze(replica)):
        await run.hold(seconds=12)
    await run.settle(seconds=6)
    run.happened(fault_seen("freeze", lasting=11), in_flight("freeze", at_least=2, on="target"))
    run.holds(*always(lost=6))


@scenario(
    topology=Topology(hold="response", access_log=False),
    load=OpenLoop(rate=12, long_share=0.3),
    suites=("release",),
    budget=75,
)
async def replica_killed_where_no_log_tells(run: Run) -> None:
    """Without an access log a replica's death cuts its responses; what no engine carries any more is gone in time."""
    await run.steady(seconds=5)
    replica = await run.a_busy_replica(at_least=4)
    async with run.inject(kill(replica)):
        await run.hold(seconds=10)
    await run.settle(seconds=4)
    run.happened(fault_seen("kill"), calls_made(at_least=100), in_flight("kill", at_least=3, on="target"))
    run.holds(*always(lost=3))
