"""Asks every worker's metrics page again and again.

Each address has a loop of its own, begun at a random moment and jittered, so that scrapes spread evenly and replicas do
not beat together. Scrapes in flight are bounded in two lanes: addresses that were slow or failed use the smaller one,
and those that fail are asked less often, so that however many hang, those that answer are not delayed.

An address that answers JSON is asked at TensorRT-LLM's path instead, from then on and for as long as that page is one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import structlog

from picker.settings import WorkerSettings
from picker.workers.engines import TENSORRT_LLM_PATH
from picker.workers.pages import PageError, fetch, session_for
from picker.workers.reading import Reader, Reading, Unreadable
from picker.workers.registry import Registry

log = structlog.get_logger(__name__)

JITTER = 0.1
"""Part of the interval by which a scrape comes earlier or later."""

SLOWEST = 8
"""An address that keeps failing is asked at most so many times less often."""


@dataclass(slots=True)
class Counts:
    """Scrapes and what became of them."""

    scrapes: int = 0
    good: int = 0
    timeouts: int = 0
    unconnected: int = 0
    """Nobody listened at the address."""
    unreachable: int = 0
    """The connection broke."""
    refused: int = 0
    """Answers other than 200, redirects among them: they are never followed."""
    too_large: int = 0
    unreadable: int = 0
    other_path: int = 0
    """Times that an address answered JSON and was found to have its page at TensorRT-LLM's path."""
    unexpected: int = 0
    """Failures of our own in reading a page; logged."""
    faults: int = 0
    """Wanted lines or values on otherwise good pages that could not be used."""


class ScrapeError(Exception):
    """A scrape brought nothing: ``kind`` names the counter, the text says what happened."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Scraper:
    """Keeps the registry's reports fresh while `run` runs."""

    def __init__(
        self,
        registry: Registry,
        settings: WorkerSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.counts = Counts()
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._rng = rng or random.Random()
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._paths: dict[str, str] = {}
        """Of addresses whose page is not where it is set to be; each has a loop."""
        self._readers: dict[str, Reader] = {}
        """By address; each has a loop."""
        self._group: asyncio.TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None
        suspects = max(1, settings.scrape_parallel // 4)
        self._suspect = asyncio.Semaphore(suspects)
        others = settings.scrape_parallel - suspects
        self._healthy = asyncio.Semaphore(others) if others else self._suspect
        registry.listen(joined=self._changed, left=self._changed)

    async def run(self) -> None:
        """Scrape until cancelled."""
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=max(15.0, 2 * self._settings.scrape_seconds)
        )
        async with (
            session_for(
                "text/plain", seconds=self._settings.scrape_timeout_seconds, connector=connector
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            self._session, self._group = session, group
            try:
                self._changed("")
                await asyncio.Event().wait()
            finally:
                self._session = self._group = None
                self._loops.clear()
                self._paths.clear()
                self._readers.clear()

    def _changed(self, _worker: str) -> None:
        """Begin loops for new addresses, end those of addresses that left."""
        if self._group is None:
            return
        addresses = set(self._registry.addresses)
        for address in self._loops.keys() - addresses:
            self._loops.pop(address).cancel()
            self._paths.pop(address, None)
            self._readers.pop(address, None)
        for address in addresses - self._loops.keys():
            self._loops[address] = self._group.create_task(self._loop(address), name=f"scrape {address}")

    async def _loop(self, address: str) -> None:
        await asyncio.sleep(self._rng.random() * self._settings.scrape_seconds)
        failures, slow = 0, False
        while True:
            begun = self._clock()
            async with self._suspect if failures or slow else self._healthy:
                asked = self._clock()
                failures = 0 if await self._scrape(address, failures) else failures + 1
            slow = self._clock() - asked > self._settings.scrape_timeout_seconds / 2
            every = self._settings.scrape_seconds * min(1 << min(max(failures - 1, 0), 10), SLOWEST)
            due = begun + every * self._rng.uniform(1 - JITTER, 1 + JITTER)
            await asyncio.sleep(max(due - self._clock(), 0.0))

    async def _scrape(self, address: str, failures: int) -> bool:
        """One scrape; whether it brought a report."""
        self.counts.scrapes += 1
        try:
            reading = await self._ask(address)
        except ScrapeError as error:
            setattr(self.counts, error.kind, getattr(self.counts, error.kind) + 1)
            self._registry.unheard(address, str(error), unconnected=error.kind == "unconnected")
            if not failures:
                log.warning("worker does not report", worker=address, error=str(error))
            return False
        self.counts.good += 1
        self.counts.faults += reading.faults
        self._registry.heard(address, reading.reports)
        if failures:
            log.info("worker reports again", worker=address, after_failures=failures)
        return True

    async def _ask(self, address: str) -> Reading:
        """Fetch and read one page.

        Raises:
            ScrapeError: whatever went wrong.
        """
        try:
            return await self._look(address)
        except ScrapeError:
            raise
        except TimeoutError:
            raise ScrapeError(
                "timeouts", f"no answer in {self._settings.scrape_timeout_seconds:g} s"
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise ScrapeError("unconnected", f"{type(error).__name__}: {error}"[:200]) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScrapeError("unreachable", f"{type(error).__name__}: {error}"[:200]) from None
        except Exception as error:  # no worker's page may end the replica
            log.exception("reading a metrics page failed", worker=address)
            raise ScrapeError("unexpected", f"{type(error).__name__}: {error}"[:200]) from None

    async def _look(self, address: str) -> Reading:
        """Read the page where it was found last; where that is JSON, at TensorRT-LLM's path."""
        path = self._paths.get(address, self._settings.metrics_path)
        try:
            reading = await self._page(address, path)
        except ScrapeError:
            self._paths.pop(address, None)  # another engine may have come to that address
            raise
        if isinstance(reading, Reading):
            return reading
        self._paths.pop(address, None)
        if not reading.json or path == TENSORRT_LLM_PATH:
            raise ScrapeError("unreadable", reading.reason)
        return await self._elsewhere(address, path)

    async def _elsewhere(self, address: str, path: str) -> Reading:
        told = f"{path} is JSON, as of TensorRT-LLM, and at {TENSORRT_LLM_PATH}"
        try:
            reading = await self._page(address, TENSORRT_LLM_PATH)
        except ScrapeError as error:
            raise ScrapeError(error.kind, f"{told} {error}: is return_perf_metrics set there?") from None
        if isinstance(reading, Unreadable):
            raise ScrapeError("unreadable", f"{told}: {reading.reason}")
        if address in self._loops:
            self._paths[address] = TENSORRT_LLM_PATH
            self.counts.other_path += 1
            log.info("worker's metrics are at another path", worker=address, path=TENSORRT_LLM_PATH)
        return reading

    async def _page(self, address: str, path: str) -> Reading | Unreadable:
        self._registry.asked(address)
        begun = self._clock()  # after what is noted at the beginning, which is then known to be older
        assert self._session is not None, "scrapes happen inside run"
        url = f"{self._settings.metrics_scheme}://{address}{path}"
        try:
            page = await fetch(self._session, url, most=self._settings.scrape_max_bytes)
        except PageError as error:
            raise ScrapeError(error.kind, str(error)) from error
        return self._reader(address).read(page, begun=begun, ended=self._clock())

    def _reader(self, address: str) -> Reader:
        reader = self._readers.get(address)
        if reader is None:
            reader = Reader(self._settings.kv_cache_usage_percentage_metric)
            if address in self._loops:
                self._readers[address] = reader
        return reader
