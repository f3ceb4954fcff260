"""Asks every worker's list of models now and then: the one place where engines name adapters that rest.

vLLM and SGLang (0.5.5 and later) list what they serve at ``/v1/models``, an adapter with its base model as ``parent``.
The list is asked for seldom and a few at a time, beside the pick path; an engine that does not tell it is a worker of
which nothing is known, never a fault.
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
from picker.workers.adapters import NoModels, read_models
from picker.workers.pages import PageError, fetch, session_for
from picker.workers.registry import Registry

log = structlog.get_logger(__name__)

PATH = "/v1/models"
MAX_BYTES = 2 * 1024 * 1024
"""Largest list that is read."""
PARALLEL = 8
"""Most lists asked for at one time."""
KEPT = 3
"""A list is believed until so many rounds in a row have failed."""
SETTLE_SECONDS = 0.5
"""Workers that join within so long are asked together."""


@dataclass(slots=True)
class Counts:
    """Questions for lists and what became of them."""

    asked: int = 0
    good: int = 0
    failed: int = 0
    """Nobody answered, in time."""
    refused: int = 0
    """Answers other than 200, of engines that want a key for example."""
    unreadable: int = 0
    """Answers that are no list of models, or too large."""


class ModelLists:
    """Keeps the registry's lists of models while `run` runs."""

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
        self._failures: dict[str, int] = {}
        """By address; only those in the registry are kept."""
        self._joined = asyncio.Event()
        self._parallel = asyncio.Semaphore(PARALLEL)
        registry.listen(joined=lambda _worker: self._joined.set())

    async def run(self) -> None:
        """Ask until cancelled; where the interval is 0 nobody is ever asked."""
        every = self._settings.models_seconds
        if not every:
            await asyncio.Event().wait()
        connector = aiohttp.TCPConnector(limit=PARALLEL, force_close=True)
        seconds = self._settings.scrape_timeout_seconds
        async with session_for("application/json", seconds=seconds, connector=connector) as session:
            due = self._clock()
            while True:
                whole = self._clock() >= due
                if whole:
                    due = self._clock() + every * self._rng.uniform(0.9, 1.1)
                await self._round(session, whole=whole)
                await self._pause(due)

    async def _pause(self, due: float) -> None:
        """Until the next round is due, or workers have joined."""
        try:
            async with asyncio.timeout(max(due - self._clock(), 0.0)):
                await self._joined.wait()
                await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            return
        finally:
            self._joined.clear()

    async def _round(self, session: aiohttp.ClientSession, *, whole: bool) -> None:
        addresses = self._registry.addresses
        here = set(addresses)
        for address in self._failures.keys() - here:
            del self._failures[address]
        wanted = [address for address in addresses if whole or address not in self._failures]
        async with asyncio.TaskGroup() as group:
            for address in wanted:
                group.create_task(self._ask(session, address), name=f"models {address}")

    async def _ask(self, session: aiohttp.ClientSession, address: str) -> None:
        async with self._parallel:
            if address not in self._registry.addresses:
                return
            self.counts.asked += 1
            try:
                url = f"{self._settings.metrics_scheme}://{address}{PATH}"
                models = read_models(await fetch(session, url, most=MAX_BYTES))
            except NoModels as error:
                self._fail(address, "unreadable", str(error))
            except PageError as error:
                self._fail(address, "refused" if error.kind == "refused" else "unreadable", str(error))
            except (aiohttp.ClientError, OSError, ValueError) as error:  # OSError: a timeout too
                self._fail(address, "failed", f"{type(error).__name__}: {error}"[:200])
            else:
                self.counts.good += 1
                self._failures[address] = 0
                self._registry.listed(address, models)

    def _fail(self, address: str, kind: str, reason: str) -> None:
        setattr(self.counts, kind, getattr(self.counts, kind) + 1)
        failures = self._failures[address] = self._failures.get(address, 0) + 1
        log.debug("worker does not list its models", worker=address, reason=reason)
        if failures == KEPT:
            self._registry.listed(address, None)
