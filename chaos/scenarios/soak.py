"""A long run under load, with faults again and again that replicas must get over without a trace."""

from __future__ import annotations

import itertools
import time

from chaos.checks import ALWAYS, calls_made, fault_seen, flat
from chaos.injectors.links import partition
from chaos.injectors.process import freeze, restart
from chaos.injectors.workers import leave
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology

MIB = float(1 << 20)
LEAST_SECONDS = 60.0
BETWEEN_SECONDS = 12.0


@scenario(
    topology=Topology(links=("*>plane",)),
    load=OpenLoop(rate=8, long_share=0.1, long_tokens=(100, 200)),
    suites=("soak",),
    budget=150,
)
async def nothing_grows(run: Run) -> None:
    """Under steady load and one fault after the other, a replica's memory, tasks and descriptors stay as they are."""
    until = time.monotonic() + max(LEAST_SECONDS, run.soak_seconds)
    await run.steady(seconds=5)
    for number in itertools.count():
        replica, engine = run.a_replica(), run.an_engine()
        faults = (freeze("plane"), partition(f"{replica}>plane"), leave(engine), restart("plane"))
        async with run.inject(faults[number % len(faults)]):
            await run.hold(seconds=3)
        await run.hold(seconds=BETWEEN_SECONDS)
        if time.monotonic() > until or not run.faults or not run.soak_seconds:
            break
    run.happened(fault_seen("freeze"), calls_made(at_least=100))
    run.holds(
        *ALWAYS,
        flat("process_resident_memory_bytes", share=0.1, least=8 * MIB),
        flat("process_open_fds", share=0.1, least=10),
        flat("picker_tasks", share=0.1, least=15),
        flat("picker_plane_outbox", share=0.1, least=20),
    )
