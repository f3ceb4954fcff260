"""Drives an ext_proc server from a process of its own: so many streams at a time, or so many new ones each second."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from picker.bench.decide.gateway import Gateway, Stream
from picker.bench.decide.script import Mode, Script, fresh, script, scripts
from picker.bench.fleet import Stage
from picker.bench.timing import process_cpu_ns

WARM_SECONDS = 0.3
WARM_MOST_SECONDS = 8.0
"""Longest time before the measurement in which every prompt is to be answered twice, so that its tokens are known."""
REST_SECONDS = 10.0
"""How long the last answers may take before their streams count as failed."""


@dataclass(frozen=True, slots=True)
class Drive:
    """One round of load."""

    addresses: Sequence[str]
    """Where ext_proc is served; streams go to each in turn."""
    size: int = 1024
    """Bytes of a request's body."""
    prompts: int = 32
    """Different bodies, each sent again and again; 0: none is sent twice."""
    mode: Mode = "full_duplex_streamed"
    streams: int = 16
    """In flight at any moment, on all addresses together; not used with a rate."""
    rate: float = 0.0
    """New streams each second, whatever became of earlier ones; 0: closed loop."""
    seconds: float = 2.0
    warm: float = WARM_SECONDS
    """Seconds of the same load before anything is measured."""
    connections: int = 1
    """To each address."""
    watched: Mapping[str, int] = field(default_factory=dict)
    """Name -> process id: whose processor time is taken."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of it."""

    seconds: float
    done: int
    """Streams that ended within the time."""
    failed: int
    refused: int
    latencies: list[float]
    """Seconds from a stream's opening to its pick."""
    cpu_ns: Mapping[str, int]


class _Load:
    def __init__(self, drive: Drive, gateways: Sequence[Gateway]) -> None:
        self.drive = drive
        self.ended = self.done = self.failed = self.refused = 0
        self.latencies: list[float] = []
        self.going = True
        self.measuring = False
        self.flying = 0
        self._rng = random.Random(f"arrivals {drive.seed}")
        self._numbers = itertools.count(random.Random(monotonic()).getrandbits(30))
        self._gateways = itertools.cycle(gateways)
        self._scripts = _turns(drive)
        self._over: Callable[[Stream], None] = self._open_over if drive.rate else self._closed_over

    def send(self) -> None:
        """Open the next stream."""
        self.flying += 1
        buffered = self.drive.mode == "buffered"
        next(self._gateways).send(next(self._scripts), next(self._numbers), self._over, buffered=buffered)

    def _count(self, stream: Stream) -> None:
        self.flying -= 1
        self.ended += 1
        if self.measuring:
            self.done += 1
            self.failed += stream.failed
            self.refused += stream.refused
            if stream.decided and not stream.failed:
                self.latencies.append(stream.decided - stream.opened)

    def _open_over(self, stream: Stream) -> None:
        self._count(stream)

    def _closed_over(self, stream: Stream) -> None:
        self._count(stream)
        if self.going and not stream.failed:
            self.send()

    async def warm(self) -> None:
        """The same load for a moment, and at least until every prompt was answered twice."""
        most = monotonic() + WARM_MOST_SECONDS
        await self.until(monotonic() + self.drive.warm)
        while self.ended < 2 * self.drive.prompts and monotonic() < most:
            await self.until(monotonic() + 0.1)

    async def until(self, end: float) -> None:
        """Go on until then: in an open loop streams begin at random moments of that rate."""
        if not self.drive.rate:
            await asyncio.sleep(max(0.0, end - monotonic()))
            return
        rng, rate = self._rng, self.drive.rate
        due = monotonic() + rng.expovariate(rate)
        while due < end:
            await asyncio.sleep(max(0.0, due - monotonic()))
            while due <= monotonic() and due < end:
                self.send()
                due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, end - monotonic()))


async def drive_server(stage: Stage, drive: Drive) -> Driven:
    """The round in its process. Raises OSError where nobody listens, and where every stream fails."""
    gateways = [
        await Gateway.open(address) for address in drive.addresses for _ in range(max(1, drive.connections))
    ]
    load = _Load(drive, gateways)
    begun = await stage.ready()
    try:
        await asyncio.sleep(max(0.0, begun - monotonic()))
        if not drive.rate:
            for _ in range(drive.streams):
                load.send()
        await load.warm()
        load.measuring, start = True, monotonic()
        before = cpu_of(drive.watched)
        await load.until(start + drive.seconds)
        after = cpu_of(drive.watched)
        seconds, done = monotonic() - start, load.done
        load.going = False
        await _rest(load)
    finally:
        for gateway in gateways:
            gateway.close()
    return Driven(
        seconds=seconds,
        done=done,
        failed=load.failed + load.flying,
        refused=load.refused,
        latencies=load.latencies,
        cpu_ns={name: after[name] - before[name] for name in before},
    )


async def _rest(load: _Load) -> None:
    until = monotonic() + REST_SECONDS
    while load.flying and monotonic() < until:  # noqa: ASYNC110 - it ends by time, too
        await asyncio.sleep(0.005)


def _turns(drive: Drive) -> Iterator[Script]:
    if drive.prompts:
        return itertools.cycle(scripts(drive.size, drive.prompts, drive.mode, seed=drive.seed))
    start = random.Random(monotonic()).getrandbits(30)
    return (script(fresh(drive.size, start + n, seed=drive.seed), drive.mode) for n in itertools.count())


def cpu_of(watched: Mapping[str, int]) -> dict[str, int]:
    """Processor time of each of these processes so far, in nanoseconds."""
    return {name: process_cpu_ns(pid) for name, pid in watched.items()}
