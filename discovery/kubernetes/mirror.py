"""One kind of objects in one namespace, kept as the API server has them: listed in pages, then watched."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_never, wait_random_exponential

from discovery.kubernetes.api import Api, ApiError
from discovery.kubernetes.keeping import Kept, WatchCounts
from discovery.kubernetes.listing import read_list
from discovery.source import Freshness

log = structlog.get_logger(__name__)

T = TypeVar("T")
State = Literal["starting", "watching", "away", "missing", "refused"]
"""``missing``: the server does not know the kind; ``refused``: it may not be read."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a watch, in seconds."""

    watch: float = 60.0
    """Longest life of one watch; each one lives half of that at least."""
    silence: float = 5.0
    """So much longer may a connection be silent before it counts as lost."""
    first: float = 0.2
    """Pauses after failures are drawn from 0 to a bound that begins here and doubles,"""
    longest: float = 10.0
    """up to here."""
    missing: float = 30.0
    """Between two looks for a kind that the server does not know or does not let us read."""


class Mirror(Generic[T]):
    """
    Keeps the objects of one kind. What is known stands while the server is away, and is never taken from a page alone.

    Args:
        api: The server.
        kinds: Paths of the kind, the first that the server knows is used.
        read: From JSON to what is kept of an object; None: nothing. Raises ValueError for what makes no sense.
        changed: Called after each change of `objects`, and when the first list is whole.
        counts: Where it counts; may be shared.
        pace: Its times.
        query: Selectors.
        clock: Monotonic seconds.

    """

    def __init__(
        self,
        api: Api,
        kinds: Sequence[str],
        *,
        read: Callable[[Mapping[str, Any]], T | None],
        changed: Callable[[], None],
        counts: WatchCounts | None = None,
        pace: Pace | None = None,
        query: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = WatchCounts() if counts is None else counts
        self.state: State = "starting"
        self.fault = ""
        """Why it is not watching; empty: it is, or has not begun."""
        self.listed = False
        """Whether everything was known once."""
        self._api, self._kinds, self._changed = api, tuple(kinds), changed
        self._pace = Pace() if pace is None else pace
        self._query = dict(query or {})
        self._clock, self._fresh = clock, Freshness()
        self._kept = Kept(read, self.counts)
        self._version = ""
        self._expired = 0
        """Versions in a row that the server no longer knew."""
        self._losses = 0
        """Watches in a row that were of use but lost their connection early."""

    @property
    def objects(self) -> Mapping[str, T]:
        """What is kept, by ``namespace/name``."""
        return self._kept.objects

    def age(self, now: float) -> float:
        """Seconds since the server last confirmed what stands; infinite before it ever did."""
        return self._fresh.age(now)

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        return {
            "path": self._kinds[0],
            "state": self.state,
            "fault": self.fault or None,
            "objects": len(self._kept.objects),
            "unusable": dict(sorted(self._kept.unusable.items())[:16]),
        }

    async def run(self) -> None:
        """List, then watch; again and again. Never returns."""
        while True:
            await self._retried(self._list)
            while self._version:
                await self._retried(self._watch)
            # everybody who watched was told so at the same time
            await asyncio.sleep(self._pause(self._expired))
            self._expired += 1

    async def _retried(self, step: Callable[[], Awaitable[None]]) -> None:
        retrying = AsyncRetrying(
            wait=wait_random_exponential(multiplier=self._pace.first, max=self._pace.longest),
            retry=retry_if_exception_type(ApiError),
            stop=stop_never,
        )
        async for attempt in retrying:
            with attempt:
                await self._noted(step)

    async def _noted(self, step: Callable[[], Awaitable[None]]) -> None:
        """One look; a fault is counted, and said where it is news."""
        self.counts.looks += 1
        try:
            await step()
        except ApiError as error:
            self.counts.failures += 1
            state: State = {404: "missing", 403: "refused"}.get(error.status, "away")  # type: ignore[assignment]
            self._note(state, str(error))
            if state != "away":
                await asyncio.sleep(self._pace.missing * random.uniform(0.5, 1))
            raise

    def _note(self, state: State, fault: str) -> None:
        before, self.state, self.fault = self.state, state, fault
        if state == before:
            return
        if state == "watching":
            if before != "starting":
                log.info("watching again", path=self._kinds[0])
        elif state == "missing":
            log.warning(
                "the API server does not know this kind; are its CRDs installed?", path=self._kinds[0]
            )
        elif state == "refused":
            log.warning("the API server does not let us read this kind; see the chart's Roles",
                        path=self._kinds[0], reason=fault)  # fmt: skip
        else:
            log.warning("the API server is away, what is known stands", path=self._kinds[0], reason=fault)

    # listing

    async def _list(self) -> None:
        listed = await read_list(self._api, self._kinds, self._query, self.counts)
        self._kinds = (listed.path, *(other for other in self._kinds if other != listed.path))
        changed = self._kept.replace(listed.entries)
        first, self.listed = not self.listed, True
        if first or changed:
            self._changed()
        self._version = listed.version
        self._confirm()
        self.counts.lists += 1

    # watching

    async def _watch(self) -> None:
        """One watch: to its end, to the loss of its connection after it was of use, or to an expired version."""
        life = self._pace.watch * random.uniform(0.5, 1)
        began, told = self._clock(), 0
        try:
            async with aclosing(
                self._api.lines(
                    self._kinds[0], silent=life + self._pace.silence, watch="true", allowWatchBookmarks="true",
                    resourceVersion=self._version, timeoutSeconds=max(1, round(life)), **self._query,
                )
            ) as lines:  # fmt: skip
                async for line in lines:
                    if not self._take(line):
                        return
                    told += 1
        except ApiError as error:
            if error.status == 410:
                self._expire()
                return
            if not told:
                raise
            self.counts.failures += 1
            self._note("away", str(error))
            self._losses = 0 if self._clock() - began > self._pace.longest else self._losses + 1
            await asyncio.sleep(self._pause(self._losses))
            return
        if not told and self._clock() - began < min(1.0, life / 2):
            raise ApiError(0, "a watch that ended as soon as it had begun")
        self._confirm()

    def _take(self, line: Mapping[str, Any]) -> bool:
        """One event; False where nothing more is to be had from this version."""
        kind, entry = line.get("type"), line.get("object")
        entry = entry if isinstance(entry, dict) else {}
        if kind == "ERROR":
            code = entry.get("code")
            if code == 410:
                self._expire()
                return False
            raise ApiError(code if isinstance(code, int) else 0, str(entry.get("message"))[:500])
        metadata = entry.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(version, str) or not version:
            raise ApiError(0, "an event without resourceVersion")
        self._expired = 0
        if kind == "BOOKMARK":
            self.counts.bookmarks += 1
        elif kind in {"ADDED", "MODIFIED", "DELETED"} and self._kept.change(entry, deleted=kind == "DELETED"):
            self._changed()
        self._version = version
        self._confirm()
        return True

    def _expire(self) -> None:
        self.counts.expired += 1
        self._version = ""

    def _confirm(self) -> None:
        self._fresh.confirm(self._clock())
        self._note("watching", "")

    def _pause(self, times: int) -> float:
        return min(self._pace.longest, self._pace.first * 2.0 ** min(times, 10)) * random.random()
