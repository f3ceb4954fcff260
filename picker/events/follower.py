"""One watched worker as the subscriber sees it, and what is told about it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from picker.events.cursor import Cursor
from picker.events.records import Epoch

SILENT_REQUESTS = 8
"""Fewer requests may all have been served from the cache without a new block."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How well one worker is followed."""

    recovered: bool
    answers: bool | None
    """Whether a bridge answered the last question; ``None`` before the first one is over."""
    epoch: Epoch | None
    sequence: int
    partial: bool
    note: str
    """Why the bridge cannot know this worker; empty when all is well."""
    event_age: float | None
    """Seconds since the last change came in; ``None`` before the first."""
    heard_age: float | None
    """Seconds since anything came in, a beat included: a bridge beats every few seconds."""
    silent: bool
    """It is sent requests and tells nothing of its cache: broken, or its events are switched off."""
    routed_age: float | None
    """Seconds since the last request was sent there; ``None`` before the first."""
    last_error: str


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the event path."""

    enabled: bool
    connected: bool
    away_seconds: float | None
    """For how long NATS has been away; ``None`` while connected."""
    last_error: str
    waiting: int
    """Messages not yet applied."""
    workers: dict[str, WorkerStatus]


@dataclass(slots=True, eq=False)
class Follower:
    """One watched worker."""

    worker: str
    cursor: Cursor
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    answers: bool | None = None
    event_at: float | None = None
    heard_at: float | None = None
    last_error: str = ""
    routed_at: float | None = None
    silent: bool = False
    _routed: int = 0
    _waiting_since: float = 0.0

    def routed(self, now: float, patience: float) -> bool:
        """A request was sent to the worker; whether its silence is noticed just now."""
        self.routed_at = now
        self._routed += 1
        if self._routed == 1:
            self._waiting_since = now
        if self.silent or self._routed < SILENT_REQUESTS or now - self._waiting_since < patience:
            return False
        self.silent = True
        return True

    def told(self, now: float) -> bool:
        """The worker told a change; whether that ends a silence."""
        self.event_at = now
        self._routed = 0
        ended, self.silent = self.silent, False
        return ended

    async def rest(self, seconds: float) -> None:
        """Pause between two questions; a sign of life of the bridge ends it."""
        self.wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            return


def worker_status(follower: Follower, now: float) -> WorkerStatus:
    """How well this worker is followed, as of ``now``."""
    cursor = follower.cursor
    return WorkerStatus(
        recovered=cursor.current,
        answers=follower.answers,
        epoch=cursor.epoch,
        sequence=cursor.sequence,
        partial=cursor.partial,
        note=cursor.note,
        event_age=None if follower.event_at is None else now - follower.event_at,
        heard_age=None if follower.heard_at is None else now - follower.heard_at,
        silent=follower.silent,
        routed_age=None if follower.routed_at is None else now - follower.routed_at,
        last_error=follower.last_error,
    )
