"""Child processes of a local cluster: started, watched, started again, stopped; never one left behind.

Each child is the leader of its own process group, logs into a file, and dies with its parent even when that one is
killed. Only processes started here are ever signalled, each by its own id.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

T = TypeVar("T")
Probe = Callable[[], Awaitable[bool]]
Say = Callable[[str], None]

_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_PORTS = range(20_000, 32_000)
"""Below the range that the kernel gives to outgoing connections, so that a port stays free for a restart."""
_ENDING = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT})
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProcessError(Exception):
    """A child could not be started or kept alive. Says which one, how it ended, and the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how to tell that it serves."""

    name: str
    argv: tuple[str, ...]
    ready: Probe
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""
    ready_seconds: float = 90.0
    """For a slow child; one that ends is noticed at once. Seven at once took over 30 s to start on a busy machine."""
    stop_seconds: float = 5.0
    """Between SIGTERM and SIGKILL."""


@dataclass(slots=True)
class Child:
    """One program and the process that runs it at present."""

    program: Program
    log_file: Path
    process: asyncio.subprocess.Process | None = None
    revive: bool = True
    """Whether an end that nobody here asked for is followed by a new start."""
    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=8))
    watcher: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def pid(self) -> int:
        """Process id of the present life, or of the last one."""
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    def last_lines(self, count: int = 8) -> list[str]:
        """The end of its log."""
        with contextlib.suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(0, self.log_file.stat().st_size - 16_384))
            return file.read().decode(errors="replace").splitlines()[-count:]
        return []

    def obituary(self) -> str:
        """How it ended, for people: the signal or exit code and the last log lines."""
        code = self.process.returncode if self.process else None
        how = f"ended with exit code {code}"
        if code is None:
            how = f"did not get ready in {self.program.ready_seconds:g} s"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        lines = "".join(f"\n    {line}" for line in self.last_lines())
        return f"{self.name} {how}; its log ({self.log_file}) ends with:{lines or ' (empty)'}"


class Children:
    """The children of one cluster; ``async with`` stops them all at the end.

    A child that ends without having been asked to is started again after ``restart_seconds`` with the same program
    (so on the same ports); one that ends ``most_deaths`` times within ``deaths_seconds`` is given up, and
    ``given_up()`` raises. ``changed`` is called after every start of a new life.
    """

    def __init__(
        self,
        folder: Path,
        *,
        say: Say,
        changed: Callable[[], None] = lambda: None,
        restart_seconds: float = 2.0,
        most_deaths: int = 5,
        deaths_seconds: float = 30.0,
    ) -> None:
        self._folder = folder
        self._say = say
        self.changed = changed
        self._restart_seconds = restart_seconds
        self._most_deaths = most_deaths
        self._deaths_seconds = deaths_seconds
        self._children: dict[str, Child] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getitem__(self, name: str) -> Child:
        """Return the child of that name; KeyError says which names there are."""
        if name not in self._children:
            raise KeyError(f"no child named {name!r}; there are: {', '.join(self._children)}")
        return self._children[name]

    def names(self) -> list[str]:
        """All children, in the order of their start."""
        return list(self._children)

    async def start(self, program: Program) -> Child:
        """Start a program and return when it is ready; raises ProcessError when that does not come about."""
        if self._closing:
            raise ProcessError(f"{program.name} is not started: everything is being stopped")
        child = Child(program, self._folder / f"{program.name}.log")
        self._children[program.name] = child
        await self._launch(child)
        try:
            await self._until_ready(child)
        except ProcessError:
            await self._end(child)
            raise
        self._watch(child)
        return child

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, revive: bool = False) -> None:
        """Send a signal on purpose. Only SIGKILL's effect is awaited; ``revive``: the usual new start follows."""
        child = self[name]
        if child.process is None or not child.alive:
            return
        if number in _ENDING:
            child.revive = revive
        child.process.send_signal(number)
        if number == signal.SIGKILL:
            await child.process.wait()

    async def restart(self, name: str) -> Child:
        """Start a child that has ended, or end it first, and return when it is ready again."""
        child = self[name]
        await self._end(child)
        await self._launch(child)
        await self._until_ready(child)
        self._watch(child)
        self.changed()
        return child

    async def given_up(self) -> None:
        """Wait until everything is stopped; raises ProcessError when a child was given up."""
        await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Stop all children, the last started first; those of one kind at the same time. Never raises."""
        self._closing = True
        if not self._failure.done():
            self._failure.set_result(None)
        kinds: dict[str, list[Child]] = {}
        for child in reversed(self._children.values()):
            kinds.setdefault(child.name.rstrip("0123456789"), []).append(child)
        try:
            for children in kinds.values():
                await asyncio.gather(*(self._end(child) for child in children), return_exceptions=True)
        finally:
            self.end_now()

    def end_now(self) -> None:
        """SIGKILL whatever still runs, without waiting."""
        self._closing = True
        for child in self._children.values():
            if child.process is not None and child.alive:
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()

    async def _launch(self, child: Child) -> None:
        child.revive = True
        try:
            with child.log_file.open("ab") as file:
                child.process = await asyncio.create_subprocess_exec(
                    *_dying_with_us(child.program.argv),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **child.program.environment},
                    process_group=0,
                )
        except OSError as error:
            raise ProcessError(f"{child.name} does not start: {child.program.argv[0]}: {error}") from error

    async def _until_ready(self, child: Child) -> None:
        deadline = time.monotonic() + child.program.ready_seconds
        while time.monotonic() < deadline:
            if not child.alive:
                break
            with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError):
                if await asyncio.wait_for(child.program.ready(), 2.0) and child.alive:
                    return
            await asyncio.sleep(0.05)
        raise ProcessError(child.obituary())

    def _watch(self, child: Child) -> None:
        child.watcher = asyncio.create_task(self._keep(child), name=f"watch {child.name}")

    async def _keep(self, child: Child) -> None:
        while child.process is not None:
            await child.process.wait()
            if self._closing or not child.revive:
                return
            now = time.monotonic()
            child.deaths.append(now)
            self._say(child.obituary())
            recent = sum(1 for death in child.deaths if now - death <= self._deaths_seconds)
            if recent >= self._most_deaths:
                self._give_up(f"{child.name} ended {recent} times in a row. {child.obituary()}")
                return
            await asyncio.sleep(self._restart_seconds)
            await self._revive(child)

    async def _revive(self, child: Child) -> None:
        try:
            await self._launch(child)
            await self._until_ready(child)
        except ProcessError as error:
            if child.alive and child.process is not None:
                child.process.kill()
            self._say(f"{child.name} did not come back: {error}")
            return
        self._say(f"{child.name} is back, pid {child.pid}")
        self.changed()

    def _give_up(self, why: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(ProcessError(why))

    async def _end(self, child: Child) -> None:
        """End one child for good: no new start follows."""
        child.revive = False
        if child.watcher is not None:
            child.watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await child.watcher
            child.watcher = None
        if child.process is None or not child.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            child.process.terminate()
            # a stopped process would sit on the SIGTERM until it goes on
            child.process.send_signal(signal.SIGCONT)
        try:
            await asyncio.wait_for(child.process.wait(), child.program.stop_seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
            await child.process.wait()


def _dying_with_us(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line of a process that the kernel kills once this one has gone, where the kernel can.

    Said by the child itself once it has begun: code between fork and exec lets the handlers run that threads of this
    process have for a fork, and gRPC's have ended children before they began.
    """
    program = shutil.which(argv[0])
    if sys.platform != "linux" or program is None:
        return tuple(argv)
    return (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), program, *argv[1:])


def lives(pid: int) -> bool:
    """Whether a process of that id runs; one that has ended and is not yet reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


async def until(look: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until ``look()`` is true; TimeoutError that says ``what`` did not come about."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.05)


async def interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    """Run ``work``; SIGINT, SIGTERM or SIGHUP cancels it, waits for its clean-up, and returns None."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:  # a second Ctrl-C must not break the clean-up
            interrupted = True
            task.cancel()

    for number in _INTERRUPTS:
        loop.add_signal_handler(number, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        if not interrupted:
            raise
        return None
    finally:
        for number in _INTERRUPTS:
            loop.remove_signal_handler(number)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, all different."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise ProcessError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} of 127.0.0.1")


def accepts(address: str) -> Probe:
    """A probe: the ``host:port`` accepts a connection."""
    host, _, port = address.rpartition(":")

    async def probe() -> bool:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        return True

    return probe


def answers(url: str) -> Probe:
    """A probe: a GET of the URL is answered with 200."""

    async def probe() -> bool:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.5)) as session,
            session.get(url) as response,
        ):
            return response.status == 200

    return probe
