"""A long run under load, with faults again and again that replicas must get over without a trace."""

from __future__ import annotations

import itertools
import time
from collections import Counter

from chaos.checks import ALWAYS, UNTOLD, answered, calls_made, fault_seen, flat, whole
from chaos.injectors import Injection
from chaos.injectors.links import partition
from chaos.injectors.process import freeze, kill, restart, terminate
from chaos.injectors.workers import leave
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology

MIB = float(1 << 20)
LEAST_SECONDS = 60.0
BETWEEN_SECONDS = 12.0
BUSY = OpenLoop(
    rate=300,
    opening_words=12,
    turn_words=2,
    tokens=(2, 6),
    long_share=0.01,
    long_tokens=(20, 60),
    cancel_share=0.01,
)
"""300 requests/s with short prompts and answers: what grows with the number of requests grows fast."""
LONG_LIVED = "picker-0"
"""Starts anew once, at the beginning, so that what it holds can be judged over all the time that follows."""
LOST_SECONDS = {"envoy": 4.0, "engine": 2.0, "picker": 0.2}
"""For so long requests may fail when one of these is killed: all of them, or those of the one that is away."""


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


@scenario(
    topology=Topology(decode_ms=5, settings={"PICKER_TRANSPORT": "native"}),
    load=BUSY,
    suites=("soak",),
    budget=240,
)
async def everything_restarts_in_turn(run: Run) -> None:
    """Under 300 requests/s every part starts anew in turn, again and again; nothing grows and nothing is left behind.

    On the native transport. Streams, tasks, descriptors and the outbox of every replica stay flat, and so does the
    memory of the one that lives through all of it; no booking outlives its work.
    """
    until = time.monotonic() + max(LEAST_SECONDS, run.soak_seconds)
    struck: Counter[str] = Counter()
    await run.steady(seconds=5)
    async with run.inject(terminate(LONG_LIVED)):
        await run.hold(seconds=1)
    for injection in itertools.cycle(_in_turn(run)):
        await run.hold(seconds=BETWEEN_SECONDS)
        if time.monotonic() > until or not run.faults or not run.soak_seconds:
            break
        struck[injection.target.partition("-")[0]] += 1
        async with run.inject(injection):
            await run.hold(seconds=1)
    lost = sum(int(BUSY.rate * seconds * struck[part]) for part, seconds in LOST_SECONDS.items())
    run.happened(fault_seen("terminate", LONG_LIVED), calls_made(at_least=2_000))
    run.holds(
        answered(lost=lost, around=8, refused=lost),
        whole(by=("envoy", *run.engines)),
        *UNTOLD,
        # at a hundred new prompts a second for each replica its bounded caches are full after a quarter of an hour
        flat("process_resident_memory_bytes", share=0.1, least=8 * MIB, filling=0.5, only=(LONG_LIVED,)),
        flat("process_open_fds", share=0.1, least=20),
        flat("picker_tasks", share=0.1, least=20),
        flat("picker_streams_open", share=0.5, least=60),
        flat("picker_plane_outbox", share=0.1, least=60),
    )


def _in_turn(run: Run) -> list[Injection]:
    """Everything that starts anew, in turn: what ends in good order and what is killed."""
    others = [replica for replica in run.replicas if replica != LONG_LIVED]
    engines = run.engines
    return [
        terminate(others[0]),
        restart("plane"),
        kill(others[-1]),
        *([restart("nats")] if run.topology.plane != "nats" else []),
        restart(engines[0]),
        restart("envoy"),
        terminate(others[-1]),
        restart(engines[-1].replace("engine", "bridge")),
    ]
