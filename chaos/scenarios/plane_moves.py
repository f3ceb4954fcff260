"""The plane's server changes under its users: another one takes over, or its clock is stepped."""

from __future__ import annotations

from chaos.checks import ALWAYS, calls_made, fault_seen, in_flight, never_empty, seen_by_all
from chaos.injectors.clock import step
from chaos.injectors.failover import failover
from chaos.injectors.sentinels import sentinel_failover
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, WIRED, in_time
from chaos.topology import Topology

WATCHED = Topology(sentinels=True)
STEPPED = Topology(links=("*>plane",), clocks=("plane", "picker-0"))
"""A NATS server asks the kernel for the time: there what its clients are told of its clock is moved on the wire."""


@scenario(topology=WIRED, load=BRISK, planes=("redis",), budget=75)
async def plane_fails_over_and_back(run: Run) -> None:
    """A standby takes over from the plane's server, then fails back: bookings outlive both, or are booked anew.

    On Redis alone: the NATS plane of a local cluster is one server.
    """
    await run.steady(seconds=3)
    async with run.inject(failover()):
        await run.hold(seconds=5)
    await run.settle(seconds=4)
    run.happened(fault_seen("failover"), calls_made(at_least=100), in_flight("failover", at_least=5))
    run.holds(*ALWAYS, in_time("failover"), never_empty(during="failover"))


@scenario(topology=WATCHED, load=BRISK, planes=("redis",), budget=120)
async def plane_fails_over_by_sentinels(run: Run) -> None:
    """Sentinels make a standby the plane's server: replicas ask them where it is, and do not believe the old one.

    On Redis alone: NATS has no sentinels.
    """
    await run.steady(seconds=3)
    async with run.inject(sentinel_failover()):
        await run.hold(seconds=5)
    await run.settle(seconds=4)
    run.happened(
        fault_seen("sentinel-failover"), calls_made(at_least=100), in_flight("sentinel-failover", at_least=5)
    )
    run.holds(*ALWAYS, in_time("sentinel-failover"), never_empty(during="sentinel-failover"))


@scenario(topology=STEPPED, load=BRISK, budget=90)
async def plane_clock_steps_forward_and_back(run: Run) -> None:
    """A plane's clock that jumps five minutes ahead, and back behind, ends nobody's lease and no booking."""
    await run.steady(seconds=3)
    async with run.inject(step("plane", seconds=300)):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    async with run.inject(step("plane", seconds=-300)):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    run.happened(fault_seen("clock", lasting=4), calls_made(at_least=150), in_flight("clock", at_least=5))
    run.holds(*ALWAYS, in_time("clock"), never_empty(during="clock"))


@scenario(topology=STEPPED, load=BRISK, budget=75)
async def replica_clock_is_an_hour_off(run: Run) -> None:
    """Nothing depends on a replica's wall clock: an hour ahead, it agrees with the others as before."""
    await run.steady(seconds=2)
    async with run.inject(step("picker-0", seconds=3600)):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    run.happened(fault_seen("clock", lasting=4), calls_made(at_least=80), in_flight("clock", at_least=3))
    run.holds(*ALWAYS, in_time("clock"), seen_by_all(during="clock"))
