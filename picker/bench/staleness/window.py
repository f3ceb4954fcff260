"""One process in one window of time: a replica that books and hears, or the bare hop beside it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from picker.bench.bare import TIMEOUT, open_bare
from picker.bench.fleet import Fleet, Stage
from picker.bench.servers import Server
from stateplane.backends import open_plane
from stateplane.booking import Amount, Cause, Owner, Rules
from stateplane.desk import Desk
from stateplane.plane import StatePlane
from stateplane.redis.probe import ProbedPlane

LIFE_SECONDS = 0.5
"""How long a booking stands."""
SETTLE_SECONDS = 1.0
"""Left for what is still on its way."""
BATCH = 64
"""Most bookings made at once by a process that has fallen behind."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What one process is to do."""

    server: Server
    pool: str
    name: str
    rate: float
    """Bookings of this process per second (or messages, on the bare hop)."""
    seconds: float
    seed: int
    poll: float = 0.0
    """Seconds between two reads of the feed; 0: as the product does."""
    hop: bool = False
    """Bare publish and subscribe instead of bookings."""


@dataclass(slots=True)
class Heard:
    """What one process said and heard, in monotonic seconds by id."""

    said: dict[str, float] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0
    """CPU seconds of the process within the window."""
    changes: int = 0
    """Changes that its feed brought."""


async def window(stage: Stage, spec: Spec) -> Heard:
    """Take part in one window."""
    return await (_hop(stage, spec) if spec.hop else _replica(stage, spec))


async def _replica(stage: Stage, spec: Spec) -> Heard:
    told = Heard()
    owner = Owner(spec.name, f"{spec.seed}")
    plane = _open(spec, owner)
    desk = Desk(plane, owner, rules=Rules(), timeout=TIMEOUT)

    def hear(worker: str, requests: int, blocks: int, now: float) -> None:
        if requests and worker not in told.said:
            told.heard.setdefault(worker, now)

    # each booking is on a worker of its own name, so that the view's listeners tell bookings apart
    desk.view.listen(hear)
    await desk.start(20.0)
    task = asyncio.create_task(desk.run())
    standing: deque[tuple[float, str]] = deque()

    def book(booking_id: str) -> None:
        now = time.monotonic()
        told.said[booking_id] = now
        desk.book(booking_id, key="", worker=booking_id, amount=Amount(1024, 64), now=now)
        standing.append((now + LIFE_SECONDS, booking_id))
        while standing and standing[0][0] <= now:
            desk.end(standing.popleft()[1], Cause.ENDED)

    try:
        start = await stage.ready()
        began, before = time.process_time(), desk.counts.calls.changes
        await _paced(spec, start, book)
        told.cpu = time.process_time() - began
        told.changes = desk.counts.calls.changes - before
        await asyncio.sleep(SETTLE_SECONDS)
        await desk.leave()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await plane.close()
    return told


def _open(spec: Spec, owner: Owner) -> StatePlane:
    if spec.poll:
        return ProbedPlane(
            spec.server.url, pool=spec.pool, owner=owner, rules=Rules(), timeout=TIMEOUT, poll=spec.poll
        )
    return open_plane(spec.server.url, pool=spec.pool, owner=owner, rules=Rules(), timeout=TIMEOUT)


async def _hop(stage: Stage, spec: Spec) -> Heard:
    told = Heard()
    bare = await open_bare(spec.server, spec.pool, Owner(spec.name, f"{spec.seed}"))
    stands = asyncio.Event()

    async def hear() -> None:
        async for message in bare.subscribe():
            now = time.monotonic()
            stands.set()
            if message and (name := message.decode()) not in told.said:
                told.heard[name] = now

    hearing = asyncio.create_task(hear())
    publishing: set[asyncio.Task[None]] = set()

    def publish(name: str) -> None:
        told.said[name] = time.monotonic()
        task = asyncio.create_task(bare.publish(name.encode()))
        publishing.add(task)
        task.add_done_callback(publishing.discard)

    try:
        await stands.wait()
        start = await stage.ready()
        began = time.process_time()
        await _paced(spec, start, publish)
        told.cpu, told.changes = time.process_time() - began, len(told.heard)
        await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.gather(*publishing)
    finally:
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing
        await bare.close()
    return told


async def _paced(spec: Spec, start: float, act: Callable[[str], None]) -> None:
    """Act at random moments of the given mean rate until the window is over, whether all was done by then or not."""
    rng = random.Random(f"{spec.seed}/{spec.name}")
    due, number, over = start + rng.expovariate(spec.rate), 0, start + spec.seconds
    while due < over and time.monotonic() < over:
        await asyncio.sleep(max(due - time.monotonic(), 0))
        for _ in range(BATCH):
            if due > min(time.monotonic(), over):
                break
            act(f"{spec.name}.{spec.seed}.{number}")
            number += 1
            due += rng.expovariate(spec.rate)


@dataclass(frozen=True, slots=True)
class Delays:
    """What a window showed."""

    seconds: list[float]
    """From the booking at one replica to each other replica's view."""
    said: int
    missing: int
    """Pairs of booking and other replica of which nothing was heard."""
    cpu_us_per_change: float
    """CPU time of one process for each change that its feed brought, its share of the bookings included."""
    cpu_share: float
    """CPU seconds of one process per second, mean."""
    changes_per_s: float
    """As one replica heard them."""


async def measure(
    fleet: Fleet,
    server: Server,
    *,
    replicas: int,
    rate: float,
    seconds: float,
    seed: int,
    poll: float = 0.0,
    hop: bool = False,
) -> Delays:
    """One window of so many processes that book at ``rate`` per second together."""
    kind = "hop" if hop else "desk"
    specs = [
        Spec(server, f"bench/{kind}-{seed}", f"r{n}", rate / replicas, seconds, seed, poll, hop)
        for n in range(replicas)
    ]
    told = await fleet.together(window, specs)
    return delays(told, seconds)


def delays(told: list[Heard], seconds: float) -> Delays:
    """Put what the processes said beside what they heard."""
    found: list[float] = []
    missing = 0
    for speaker in told:
        for name, at in speaker.said.items():
            for hearer in told:
                if hearer is speaker:
                    continue
                if name in hearer.heard:
                    found.append(hearer.heard[name] - at)
                else:
                    missing += 1
    changes = sum(one.changes for one in told)
    cpu = sum(one.cpu for one in told)
    return Delays(
        seconds=found,
        said=sum(len(one.said) for one in told),
        missing=missing,
        cpu_us_per_change=1e6 * cpu / max(changes, 1),
        cpu_share=cpu / len(told) / seconds,
        changes_per_s=changes / len(told) / seconds,
    )
