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
from discovery.source import Counts, Freshness

log = structlog.get_logger(__name__)

T = TypeVar("T")
State = Literal["starting", "watching", "away", "missing", "refused"]
"""``missing``: the server does not know the kind; ``refused``: it may not be read."""

PAGE = 500
"""Objects of one page."""
MAX_OBJECTS = 20_000
"""Most objects of one kind that are kept; a pool of so many pods is no pool of one picker."""
MAX_NAME = 512


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


@dataclass(slots=True)
class WatchCounts(Counts):
    """What became of lists and watches, since the start. A look is a list or a watch."""

    lists: int = 0
    """Lists that were answered whole."""
    events: int = 0
    """Objects that watches told of."""
    bookmarks: int = 0
    expired: int = 0
    """Times that the server no longer knew where we were: everything was listed anew."""
    unusable: int = 0
    """Objects that make no sense: what was last known of each stands."""
    overflow: int = 0
    """Objects beyond the most that are kept."""


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
        self.unusable: dict[str, str] = {}
        """What is wrong with objects that make no sense, by name."""
        self._api, self._kinds, self._read, self._changed = api, tuple(kinds), read, changed
        self._pace = Pace() if pace is None else pace
        self._query = dict(query or {})
        self._clock, self._fresh = clock, Freshness()
        self._objects: dict[str, T] = {}
        self._names: set[str] = set()
        self._version = ""
        self._expired = 0
        """Versions in a row that the server no longer knew."""
        self._losses = 0
        """Watches in a row that were of use but lost their connection early."""

    @property
    def objects(self) -> Mapping[str, T]:
        """What is kept, by ``namespace/name``."""
        return self._objects

    def age(self, now: float) -> float:
        """Seconds since the server last confirmed what stands; infinite before it ever did."""
        return self._fresh.age(now)

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        return {
            "path": self._kinds[0],
            "state": self.state,
            "fault": self.fault or None,
            "objects": len(self._objects),
            "unusable": dict(sorted(self.unusable.items())[:16]),
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
        missing = ApiError(404, "the server does not know the kind")
        for path in self._kinds:
            if path != self._kinds[0] and not await self._served(path):
                continue
            try:
                entries, version = await self._pages(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                missing = error
                continue
            self._kinds = (path, *(other for other in self._kinds if other != path))
            self._take_all(entries)
            self._version = version
            self._confirm()
            self.counts.lists += 1
            return
        raise missing

    async def _served(self, path: str) -> bool:
        """Whether the server has this version of the kind; everybody may ask that, so that nobody is denied."""
        group, _, plural = path.partition("/namespaces/")
        try:
            page = await self._api.get(group)
        except ApiError as error:
            if error.status in {403, 404}:
                return False
            raise
        resources = page.get("resources")
        return any(
            isinstance(each, dict) and each.get("name") == plural.rpartition("/")[2]
            for each in (resources if isinstance(resources, list) else ())
        )

    async def _pages(self, path: str) -> tuple[list[Mapping[str, Any]], str]:
        entries: list[Mapping[str, Any]] = []
        following = ""
        while True:
            more = {"continue": following} if following else {}
            page = await self._api.get(path, limit=PAGE, **self._query, **more)
            items, metadata = page.get("items") or [], page.get("metadata")
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            if not isinstance(items, list) or not isinstance(metadata, dict) or not isinstance(version, str):
                raise ApiError(0, "a list without items and resourceVersion")
            entries += (entry for entry in items if isinstance(entry, dict))
            following = metadata.get("continue") or ""
            if not following or len(entries) >= MAX_OBJECTS:
                over = max(0, len(entries) - MAX_OBJECTS) + bool(following)
                if over:
                    self.counts.overflow += over
                    log.error("more objects than are kept", path=path, most=MAX_OBJECTS)
                return entries[:MAX_OBJECTS], version

    def _take_all(self, entries: Sequence[Mapping[str, Any]]) -> None:
        before, first = dict(self._objects), not self.listed
        named = {name: entry for entry in entries if (name := _name(entry))}
        for name in self._names - named.keys():
            self._drop(name)
        for name, entry in named.items():
            self._keep(name, entry)
        self.listed = True
        if first or before != self._objects:
            self._changed()

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
        elif kind in {"ADDED", "MODIFIED", "DELETED"}:
            self._change(str(kind), entry)
        self._version = version
        self._confirm()
        return True

    def _change(self, kind: str, entry: Mapping[str, Any]) -> None:
        self.counts.events += 1
        name = _name(entry)
        if not name:
            self.counts.unusable += 1
            return
        before = self._objects.get(name)
        if kind == "DELETED":
            self._drop(name)
        else:
            self._keep(name, entry)
        if before != self._objects.get(name):
            self._changed()

    def _keep(self, name: str, entry: Mapping[str, Any]) -> None:
        if name not in self._names and len(self._names) >= MAX_OBJECTS:
            self.counts.overflow += 1
            return
        self._names.add(name)
        try:
            kept = self._read(entry)
        except ValueError as error:
            self.counts.unusable += 1
            if self.unusable.get(name) != str(error):
                log.warning("object unusable, what was last known of it stands", name=name, reason=str(error))
            self.unusable[name] = str(error)[:500]
            return
        self.unusable.pop(name, None)
        if kept is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = kept

    def _drop(self, name: str) -> None:
        self._names.discard(name)
        self._objects.pop(name, None)
        self.unusable.pop(name, None)

    def _expire(self) -> None:
        self.counts.expired += 1
        self._version = ""

    def _confirm(self) -> None:
        self._fresh.confirm(self._clock())
        self._note("watching", "")

    def _pause(self, times: int) -> float:
        return min(self._pace.longest, self._pace.first * 2.0 ** min(times, 10)) * random.random()


def _name(entry: Mapping[str, Any]) -> str:
    """``namespace/name``; empty where it has none, or one that no server gives."""
    metadata = entry.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if (
        not isinstance(name, str)
        or not isinstance(namespace, str)
        or not 0 < len(name) + len(namespace) < MAX_NAME
    ):
        return ""
    return f"{namespace}/{name}" if name else ""
