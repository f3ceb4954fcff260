"""The wall clock of one process, stepped while it runs; its monotonic clock goes on as it was.

Programs that ask the C library for the time (Valkey, replicas, bridges, engines) are started under libfaketime, which
reads the offset from a file once a second. The NATS server is a Go program and asks the kernel: there the
times that its clients are told are moved instead, see `natsclock`; for that every replica's link to the plane has to go
through a wire.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, asked, life, seen
from chaos.injectors.nats import NatsWire
from chaos.injectors.natsclock import ServerClock
from chaos.injectors.servers import valkey_says

LIBRARY_VARIABLE = "CHAOS_FAKETIME_LIBRARY"
STREAMS = "PICKER_PLANE_"
"""Prefix of the streams that hold bookings."""
NEAR_SECONDS = 2.5
"""Clocks are read in whole seconds and take a moment to ask."""
_NAME = "libfaketimeMT.so.1"
_CHECKOUT = Path(__file__).resolve().parents[2]
_PLACES = (
    _CHECKOUT / ".tools/debian/usr/lib",
    Path("/usr/lib"),
    Path("/usr/local/lib"),
)


def library() -> Path:
    """Where libfaketime is. Raises InjectionError that says how to get it."""
    told = os.environ.get(LIBRARY_VARIABLE)
    if told:
        if Path(told).is_file():
            return Path(told)
        raise InjectionError(f"{LIBRARY_VARIABLE}={told}: there is no such file")
    for place in _PLACES:
        for found in (*place.glob(f"faketime/{_NAME}"), *place.glob(f"*/faketime/{_NAME}")):
            return found
    raise InjectionError(
        f"stepping a clock needs {_NAME}: install Debian's package libfaketime, or name the file in {LIBRARY_VARIABLE}"
    )


def environment(folder: Path, child: str) -> Mapping[str, str]:
    """What a child must be started with so that its clock can be stepped; nothing for NATS.

    Raises InjectionError where libfaketime is missing.
    """
    if child == "nats":
        return {}
    file = _file(folder, child)
    _write(file, 0)
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        # read again once a second only: a replica asks so often that reading the file each time would slow it down
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@dataclass(frozen=True, slots=True)
class Step:
    """The clock of one child is ahead by so many seconds, behind with a negative number."""

    target: str
    seconds: float
    kind: str = field(default="clock", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"step the wall clock of {self.target} by {self.seconds:+g} s, then back"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Stepped at the entering, proven by asking the child; stepped back when left."""
        clock: list[_FileClock | _ToldClock] = []

        async def act() -> Evidence:
            name = running.resolve(self.target)
            clock.append(_ToldClock(running) if name == "nats" else _FileClock(running, name))
            return await clock[0].move(self.seconds)

        async def heal() -> Evidence:
            return await clock[0].move(0) if clock else {}

        value = {"seconds": self.seconds}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


def step(target: str, *, seconds: float) -> Step:
    """The child's clock is ahead by that until the block is left; its topology names it in ``clocks``."""
    return Step(target, seconds)


class _FileClock:
    def __init__(self, running: Running, name: str) -> None:
        self._running, self._name = running, name
        self._path = _file(running.folder, name)
        if not self._path.exists():
            raise InjectionError(
                f"the clock of {name} cannot be stepped: the topology does not name it in clocks"
            )

    async def move(self, seconds: float) -> Evidence:
        _write(self._path, seconds)
        if not self._running.cluster.children[self._name].alive:
            return {"alive": False}
        found = 0.0

        async def there() -> bool:
            nonlocal found
            found = await ahead(self._running, self._name)
            return abs(found - seconds) < NEAR_SECONDS

        await asked(there, what=f"the clock of {self._name} {seconds:+g} s from ours")
        return {"ahead": round(found, 3)}


class _ToldClock:
    """One clock before all links to the plane on NATS."""

    def __init__(self, running: Running) -> None:
        wires: list[NatsWire] = []
        for replica in running.cluster.replicas:
            wire = running.wires.get(f"{replica.name}>plane")
            if not isinstance(wire, NatsWire):
                raise InjectionError(
                    "the clock of NATS can be stepped only in what replicas are told of it: the topology needs the "
                    f"links *>plane, and there is no wire that knows NATS on {replica.name}>plane"
                )
            wires.append(wire)
        self._clock = wires[0].clock or ServerClock(STREAMS)
        for wire in wires:
            wire.clock = self._clock

    async def move(self, seconds: float) -> Evidence:
        clock = self._clock
        clock.set(seconds)
        before, plain = clock.stamped, clock.plain
        what = f"a message of the plane's log told {seconds:+g} s from its time"
        await seen(lambda: (clock.stamped > before) if seconds else (clock.plain > plain), what=what)
        return {"ahead": seconds, "stamped": clock.stamped}


async def ahead(running: Running, name: str) -> float:
    """By how many seconds a child's wall clock is ahead of ours, asked from the outside.

    Raises OSError or TimeoutError where it does not answer, InjectionError for a child that tells no time.
    """
    cluster = running.cluster
    if name == "valkey":
        seconds, micro = await valkey_says(cluster.valkey, "TIME")
        return float(seconds) + float(micro) / 1e6 - time.time()
    urls = {each.name: f"http://{each.admin}/healthz" for each in cluster.replicas}
    urls |= {each.name: f"http://{each.listens or each.address}/health" for each in cluster.workers}
    urls |= {each.bridge: f"http://{each.bridge_admin}/healthz" for each in cluster.workers}
    if name not in urls:
        raise InjectionError(f"{name} tells nobody the time, so a step of its clock could not be proven")
    timeout = aiohttp.ClientTimeout(total=5)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(urls[name]) as response:
            told = parsedate_to_datetime(response.headers["Date"])
    except (aiohttp.ClientError, KeyError, ValueError) as error:
        raise OSError(f"{name} does not tell the time: {error}") from error
    return told.timestamp() - time.time()


def _file(folder: Path, child: str) -> Path:
    return folder / f"{child}.clock"


def _write(file: Path, seconds: float) -> None:
    """In one step: a child that finds half a line would end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(f"{seconds:+g}\n")
    draft.replace(file)
