"""Workers from a file that is watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from discovery.found import Endpoint
from discovery.restingfile import RestingFile
from discovery.source import Counts, Freshness
from discovery.workerfile import read_workers

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
MAX_BYTES = 32 * 1024 * 1024
"""Largest file that is read."""


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
        self._path = file
        self._file = RestingFile(file, read_workers, most=MAX_BYTES)
        self._poll = poll_seconds
        self._clock = clock
        self._fresh = Freshness()
        self.counts = Counts()

    def age(self, now: float) -> float:
        """Seconds since the file last was there and in order."""
        return self._fresh.age(now)

    @property
    def fault(self) -> str:
        """What is wrong with the file now; empty: nothing."""
        return self._file.fault

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"source": "file", "file": str(self._path), "fault": self.fault or None}

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
            workers = await asyncio.to_thread(self._file.look)
        except (OSError, ValueError) as error:
            self.counts.failures += 1
            if self._file.failed(error):
                log.warning(
                    "workers file unusable, the last known workers are kept",
                    file=str(self._path),
                    reason=self._file.fault,
                )
            return None
        if workers is not None and self._file.mended():
            log.info("workers file in order again", file=str(self._path))
        if self._file.known:
            self._fresh.confirm(self._clock())
        return workers
