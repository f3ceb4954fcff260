"""Workers from a file that is watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from discovery.found import Endpoint
from discovery.source import Counts, Freshness
from discovery.workerfile import WorkerFileError, read_workers

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
MAX_BYTES = 32 * 1024 * 1024
"""Largest file that is read."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells one state of a file from the next, without reading it."""

    inode: int
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the file: its mark, and its workers where it was read."""

    mark: _Mark
    workers: frozenset[Endpoint] | None = None


class WatchedWorkers:
    """
    Looks at a file twice a second; what it says counts once it has rested for one look, for it may be half written.

    A file that is broken or gone changes nothing: the last known set stays, the fault is counted and said once.

    Args:
        file: As `read_workers` reads it.
        poll_seconds: Between two looks.
        clock: Monotonic seconds.

    """

    def __init__(
        self,
        file: Path,
        *,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._poll = poll_seconds
        self._clock = clock
        self._fresh = Freshness()
        self._seen: _Mark | None = None
        self._read: _Mark | None = None
        self._fault = ""
        self.counts = Counts()

    def age(self, now: float) -> float:
        """Seconds since the file last was there and in order."""
        return self._fresh.age(now)

    async def sets(self) -> AsyncIterator[frozenset[Endpoint]]:
        """Every set of workers; nothing before the file was in order for the first time."""
        last: frozenset[Endpoint] | None = None
        while True:
            workers = await self._look()
            if workers is not None and workers != last:
                self.counts.changes += 1
                last = workers
                yield workers
            await asyncio.sleep(self._poll)

    async def _look(self) -> frozenset[Endpoint] | None:
        """The workers, where the file says something new."""
        self.counts.looks += 1
        try:
            look = await asyncio.to_thread(self._examine)
        except (OSError, ValueError) as error:
            self._failed(error)
            return None
        if look.mark == self._read and not self._fault:
            self._fresh.confirm(self._clock())
        return look.workers

    def _examine(self) -> _Look:
        """In a thread: look, and read where the file is new and at rest. The very first look reads at once."""
        mark, before = self._mark(), self._seen
        self._seen = mark
        if mark == self._read or (before is not None and mark != before):
            return _Look(mark)
        self._read = mark
        if mark.size > MAX_BYTES:
            raise WorkerFileError(f"it has {mark.size} bytes; at most {MAX_BYTES} are read")
        text = self._file.read_text("utf-8")
        if self._mark() != mark:
            return _Look(mark)
        workers = read_workers(text)
        self._mended()
        return _Look(mark, workers)

    def _mark(self) -> _Mark:
        stat = self._file.stat()
        return _Mark(stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def _failed(self, error: Exception) -> None:
        self.counts.failures += 1
        if isinstance(error, OSError):
            # It may come back as it was.
            self._read = None
        fault = f"{type(error).__name__}: {error}"[:500]
        if fault != self._fault:
            log.warning(
                "workers file unusable, the last known workers are kept", file=str(self._file), reason=fault
            )
        self._fault = fault

    def _mended(self) -> None:
        if self._fault:
            log.info("workers file in order again", file=str(self._file))
        self._fault = ""
