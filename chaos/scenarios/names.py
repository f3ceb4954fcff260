"""The name by which replicas find each other: stale, empty, failing, silent."""

from __future__ import annotations

from chaos.checks import ALWAYS, calls_made, fault_seen, peers_differed, peers_kept, seen_by_all
from chaos.injectors.dns import empty, servfail, silent, stale
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, in_time
from chaos.topology import Topology

NAMED = Topology(dns=True)


@scenario(topology=NAMED, load=BRISK, budget=90)
async def peers_name_is_empty_fails_and_falls_silent(run: Run) -> None:
    """A name server that knows nobody, fails or says nothing parts no replicas: the last known peers stay."""
    await run.steady(seconds=2)
    for mood in (empty(), servfail(), silent()):
        async with run.inject(mood):
            await run.hold(seconds=3)
    await run.settle(seconds=3)
    run.happened(
        fault_seen("dns-empty", lasting=2), fault_seen("dns-servfail"), fault_seen("dns-silent"),
        calls_made(at_least=100),
    )  # fmt: skip
    run.holds(*ALWAYS, in_time("dns-silent"), peers_kept())


@scenario(topology=NAMED, load=BRISK, budget=75)
async def peers_name_is_stale(run: Run) -> None:
    """A stale list of peers, with strangers and without the true ones, changes nothing: bookings are shared."""
    await run.steady(seconds=2)
    async with run.inject(stale("127.0.0.9")):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    run.happened(fault_seen("dns-stale", lasting=5), calls_made(at_least=80))
    run.holds(*ALWAYS, in_time("dns-stale"), seen_by_all(during="dns-stale"))


@scenario(topology=NAMED, load=BRISK, budget=75)
async def replicas_see_different_peers(run: Run) -> None:
    """Where the name tells one replica of strangers and the next of the true ones, bookings are shared all the same."""
    await run.steady(seconds=2)
    async with run.inject(stale("127.0.0.8", "127.0.0.9", every=3)):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    run.happened(fault_seen("dns-stale", lasting=5), calls_made(at_least=80), peers_differed())
    run.holds(*ALWAYS, in_time("dns-stale"), seen_by_all(during="dns-stale"))
