"""
Whether the engine sleeps, read from its own metrics: an engine put to sleep drops its cache, and may say so
only at its next step, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

log = structlog.get_logger(__name__)

METRIC: Final = "vllm:engine_sleep_state"
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
TIMEOUT_SECONDS: Final = 2.0

States = Mapping[int | None, bool]
"""Rank -> whether it sleeps; the rank ``None`` is all of them."""


@dataclass(slots=True)
class Counts:
    """How the engine's page was read."""

    polls: int = 0
    poll_failures: int = 0
    """Pages that could not be fetched or read; what was known then stays."""


def sleep_states(page: str) -> dict[int | None, bool]:
    """Who sleeps, by a page of metrics; empty where it does not say. Raises ValueError for no such page."""
    lines = [line for line in page.splitlines() if line.startswith(METRIC)]
    states: dict[int | None, bool] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name == METRIC and sample.labels.get("sleep_state") == "awake":
                engine = sample.labels.get("engine", "")
                states[int(engine) if engine.isascii() and engine.isdigit() else None] = sample.value == 0
    return states


class SleepWatch:
    """
    Polls the metrics page and tells what it says. ``run`` works until cancelled.

    Args:
        url: the page.
        seconds: between two polls.
        told: called with what each page says.

    """

    def __init__(self, url: str, seconds: float, told: Callable[[States], Awaitable[None]]) -> None:
        self.counts = Counts()
        self._url = url
        self._seconds = seconds
        self._told = told
        self._failing = False

    async def run(self) -> None:
        """Poll for ever; a page that fails changes nothing and is said once."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                self.counts.polls += 1
                try:
                    states = sleep_states(await self._page(session))
                except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                    self._failed(error)
                else:
                    self._failing = False
                    if states:
                        await self._told(states)
                await asyncio.sleep(self._seconds)

    async def _page(self, session: aiohttp.ClientSession) -> str:
        async with session.get(self._url) as response:
            response.raise_for_status()
            data = await response.content.read(MAX_PAGE_BYTES + 1)
            while len(data) <= MAX_PAGE_BYTES and (more := await response.content.read(MAX_PAGE_BYTES)):
                data += more
            if len(data) > MAX_PAGE_BYTES:
                raise ValueError(f"a page of more than {MAX_PAGE_BYTES} bytes")
            return data.decode("utf-8", "replace")

    def _failed(self, error: Exception) -> None:
        self.counts.poll_failures += 1
        if not self._failing:
            self._failing = True
            log.warning("the engine's metrics cannot be read", url=self._url, error=str(error)[:200])
