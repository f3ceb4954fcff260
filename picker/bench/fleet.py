"""Several real processes that do one thing at the same moment: the replicas of a bench.

A process is started once and takes part in many rounds; each round is one coroutine function, called in every process
with a `Stage` and its own argument. Times are monotonic seconds, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

T = TypeVar("T")
A = TypeVar("A")

LEAD_SECONDS = 0.15
"""Between the moment that all are ready and the common start."""
POLL_SECONDS = 0.01
LATE_SECONDS = 60.0
"""A process that says nothing for so long is given up."""


class FleetError(Exception):
    """A process failed, or fell silent; the text holds its traceback."""


class Stage:
    """What a process sees of the round."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def ready(self) -> float:
        """Say that this process is ready; gives the common start (monotonic seconds, a moment ahead)."""
        self._pipe.send(("ready", None))
        start: float = await asyncio.to_thread(self._pipe.recv)
        return start


Part = Callable[[Stage, A], Awaitable[T]]


class Fleet:
    """So many processes; ``with`` stops them at the end."""

    def __init__(self, size: int) -> None:
        context = get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), name=f"bench {number}", daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()

    async def together(
        self, part: Part[A, T], arguments: Sequence[A], *, started: Callable[[float], None] = lambda _: None
    ) -> list[T]:
        """Run one round in the first ``len(arguments)`` processes; gives what each returned.

        ``started`` is told the common start. Raises FleetError.
        """
        pipes = self._pipes[: len(arguments)]
        if len(pipes) < len(arguments):
            raise ValueError(f"{len(arguments)} processes were asked for, the fleet has {len(self._pipes)}")
        for pipe, argument in zip(pipes, arguments, strict=True):
            pipe.send((part, argument))
        for pipe in pipes:
            await self._next(pipe, "ready")
        start = monotonic() + LEAD_SECONDS
        started(start)
        for pipe in pipes:
            pipe.send(start)
        return [await self._next(pipe, "done") for pipe in pipes]

    async def _next(self, pipe: Connection, wanted: str) -> Any:
        until = monotonic() + LATE_SECONDS
        try:
            while not pipe.poll():
                if monotonic() > until:
                    raise FleetError(f"a process of the bench has said nothing for {LATE_SECONDS:g} s")
                await asyncio.sleep(POLL_SECONDS)
            said = pipe.recv()
        except (EOFError, OSError) as error:
            raise FleetError("a process of the bench has ended") from error
        kind, value = said
        if kind != wanted:
            raise FleetError(f"a process of the bench failed:\n{value}")
        return value


def quiet_logs() -> None:
    """Let the parts under measurement log errors only, and on stderr: what a bench prints is its result alone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _serve(pipe: Connection) -> None:
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and closes the pipe
    quiet_logs()
    while True:
        try:
            part, argument = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            told = ("done", asyncio.run(part(Stage(pipe), argument)))
        except Exception:  # noqa: BLE001 - whatever it is, the parent shows it
            told = ("failed", traceback.format_exc())
        pipe.send(told)
