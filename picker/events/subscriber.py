"""
The replica's end of the events: follows every watched worker and keeps the index equal to what its bridge
announces.

Subscribe first, then ask: the answer is covered by the stream. Each worker's position is a `Cursor`;
whatever it finds missing is asked for in the background, a bounded number of workers at one time, with
growing pauses, until the worker is let go. NATS away, at the start or later, leaves the index as it is; on
its return every worker is asked for what was missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from nats.aio.msg import Msg
from tenacity import AsyncRetrying, retry_if_result, stop_never, wait_random_exponential

from picker.events import cursor as cursors
from picker.events import link as links
from picker.events.cursor import Cursor, Step
from picker.events.follower import Follower, Status, worker_status
from picker.events.link import Link, Wish
from picker.events.records import Answer, Epoch, Fault, decode_event
from picker.events.recovery import Silence, question
from picker.events.subjects import Subjects
from picker.settings import EventSettings

log = structlog.get_logger(__name__)

TURN_MESSAGES = 10
TURN_HASHES = 4096
"""The event loop is given back after so many messages or blocks."""
SWAP_HASHES = 1024
QUEUE_BYTES = 64 * 1024 * 1024
SILENT_SECONDS = 5.0
"""Bridges beat more often than this; past it one that speaks again is asked at once."""
RETRY_FIRST_SECONDS = 0.2
RETRY_MOST_SECONDS = 5.0


class Holdings(Protocol):
    """What the subscriber needs of the index: `picker.core.index.PrefixIndex`."""

    def add(self, worker: str) -> None:
        """A worker is there."""

    def store(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It holds these blocks."""

    def remove(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It no longer does."""

    def clear(self, worker: str) -> object:
        """It holds nothing."""

    def drop(self, worker: str) -> object:
        """It left."""


@dataclass(slots=True)
class Counts:
    """What the subscriber met."""

    messages: int = 0
    malformed: int = 0
    """Messages that are no event: not msgpack, wrong shape, out of bounds."""
    unknown_schema: int = 0
    unwatched: int = 0
    """Messages for workers that are not watched; ignored."""
    queue_dropped: int = 0
    """Messages dropped, the oldest first, because they came faster than they could be applied."""
    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    asks: int = 0
    answers: int = 0
    snapshots: int = 0
    unanswered: int = 0
    listener_errors: int = 0
    stream: cursors.Counts = field(default_factory=cursors.Counts)
    nats: links.Counts = field(default_factory=links.Counts)


class Subscriber:
    """
    Follows the events of the watched workers and keeps the index.

    Args:
        settings: where NATS is. An empty URL: no events; `run` then does nothing, and says so in `status`.
        pool: ``namespace/name``.
        index: where blocks are stored. Workers are added and dropped here as they are watched and let go.
        clock: monotonic seconds.
        on_stored: called with a worker and the blocks that it announced on its device; it must be quick.
            What it raises is counted.

    """

    def __init__(
        self,
        settings: EventSettings,
        pool: str,
        index: Holdings,
        *,
        clock: Callable[[], float],
        on_stored: Callable[[str, Sequence[int]], None],
    ) -> None:
        self.enabled = bool(settings.nats_url.get_secret_value())
        self.link = Link(settings, name=f"picker {pool}", clock=clock, opened=self._opened)
        self.counts = Counts(nats=self.link.counts)
        self._settings = settings
        self._subjects = Subjects(pool)
        self._index = index
        self._clock = clock
        self._on_stored = on_stored
        self._followers: dict[str, Follower] = {}
        self._by_subject: dict[str, Follower] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._filled = asyncio.Event()
        self._gate = asyncio.Semaphore(settings.recovery_parallel)
        self._tasks: asyncio.TaskGroup | None = None

    def watch(self, worker: str) -> None:
        """Follow this worker from now on; watched already: nothing changes."""
        if worker in self._followers:
            return
        try:
            subject = self._subjects.events(worker)
        except ValueError as error:
            log.warning("a worker's events cannot be followed", worker=worker[:100], error=str(error))
            return
        follower = Follower(worker, Cursor(self.counts.stream))
        self._followers[worker] = self._by_subject[subject] = follower
        self._index.add(worker)
        self._recover(follower)

    def unwatch(self, worker: str) -> None:
        """
        Let this worker go: what it held is dropped, a recovery in progress ends at once, late events are
        ignored.
        """
        follower = self._followers.pop(worker, None)
        if follower is None:
            return
        del self._by_subject[self._subjects.events(worker)]
        if follower.task is not None:
            follower.task.cancel()
        self._index.drop(worker)

    def recovered(self, worker: str) -> bool:
        """Whether the index holds all that this worker's bridge has announced, as far as is known here."""
        follower = self._followers.get(worker)
        return follower is not None and follower.cursor.current

    def unrecovered(self) -> list[str]:
        """The watched workers that are not recovered; none where events are switched off."""
        return [
            name for name, follower in self._followers.items() if self.enabled and not follower.cursor.current
        ]

    def pending(self) -> list[str]:
        """
        The unrecovered workers worth waiting for: those whose bridge answers, or that were not asked in
        vain yet.
        """
        return [name for name in self.unrecovered() if self._followers[name].answers is not False]

    def status(self) -> Status:
        """How well the workers are followed."""
        now = self._clock()
        connected = self.link.connected
        away = now if self.link.away_since is None else self.link.away_since
        return Status(
            enabled=self.enabled,
            connected=connected,
            away_seconds=None if connected or not self.enabled else now - away,
            last_error=self.link.last_error,
            waiting=len(self._queue),
            workers={name: worker_status(follower, now) for name, follower in self._followers.items()},
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        if not self.enabled:
            await asyncio.Event().wait()
        await self.link.keep(
            Wish(self._subjects.all_events, self._arrived, self._settings.events_queue, QUEUE_BYTES)
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for follower in self._followers.values():
                    self._recover(follower)
                tasks.create_task(self.link.run(), name="nats link")
                tasks.create_task(self._apply(), name="apply events")
        finally:
            self._tasks = None

    async def _opened(self) -> None:
        """The connection is there (again): whatever was published meanwhile was missed."""
        for follower in list(self._followers.values()):
            follower.cursor.doubt()
            follower.wake.set()
            self._recover(follower)

    async def _arrived(self, message: Msg) -> None:
        if len(self._queue) >= self._settings.events_queue:
            self._queue.popleft()
            self.counts.queue_dropped += 1
        self._queue.append((message.subject, message.data))
        self._filled.set()

    async def _apply(self) -> None:
        """Apply what arrived, in turns short enough that picks do not wait."""
        while True:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
            hashes = 0
            for _ in range(min(TURN_MESSAGES, len(self._queue))):
                hashes += self._message(*self._queue.popleft())
                if hashes >= TURN_HASHES:
                    break
            await asyncio.sleep(0)

    def _message(self, subject: str, data: bytes) -> int:
        """Judge one message; how many blocks it touched."""
        self.counts.messages += 1
        follower = self._by_subject.get(subject)
        if follower is None:
            self.counts.unwatched += 1
            return 0
        event = decode_event(data)
        if isinstance(event, Fault):
            if event.reason == "schema":
                self.counts.unknown_schema += 1
            else:
                self.counts.malformed += 1
            follower.last_error = f"an event that cannot be read: {event.reason}"
            return 0
        now = self._clock()
        silent = follower.heard_at is None or now - follower.heard_at > SILENT_SECONDS
        if silent or event.epoch != follower.cursor.epoch:
            follower.wake.set()  # the bridge is back: a pause made for its absence is over
        follower.heard_at = now
        if event.kind != "beat":
            follower.event_at = follower.heard_at
        touched = self._step(follower, follower.cursor.take(event))
        self._recover(follower)
        return touched

    def _step(self, follower: Follower, step: Step) -> int:
        """Bring the index to where the cursor is."""
        if step.clear:
            self.counts.clears += 1
            self._index.clear(follower.worker)
        touched = 0
        for event in step.apply:
            touched += len(event.hashes)
            if event.kind == "stored":
                self._store(follower, event.hashes, event.tier)
            elif event.kind == "removed":
                self.counts.removed_blocks += len(event.hashes)
                self._index.remove(follower.worker, event.hashes, event.tier)
        return touched

    def _store(self, follower: Follower, hashes: Sequence[int], tier: int) -> None:
        self.counts.stored_blocks += len(hashes)
        self._index.store(follower.worker, hashes, tier)
        if tier == 0:
            try:
                self._on_stored(follower.worker, hashes)
            except Exception:
                # A listener's fault must not stop the events of every worker.
                self.counts.listener_errors += 1
                log.exception("a listener of stored blocks failed", worker=follower.worker)

    def _recover(self, follower: Follower) -> None:
        """See to it that this worker is being recovered, unless it is current or nothing runs yet."""
        if self._tasks is None or follower.task is not None or follower.cursor.current:
            return
        follower.task = self._tasks.create_task(self._recovery(follower), name=f"recover {follower.worker}")

    async def _recovery(self, follower: Follower) -> None:
        """Ask until the worker is current; `unwatch` cancels this."""
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda done: not done),
            wait=wait_random_exponential(multiplier=RETRY_FIRST_SECONDS, max=RETRY_MOST_SECONDS),
            stop=stop_never,
            sleep=follower.rest,
        )
        try:
            await retrying(self._once, follower)
        finally:
            follower.task = None
        self._recover(follower)  # what arrived while this task was ending

    async def _once(self, follower: Follower) -> bool:
        """One question, and its answer applied. Whether the worker is current."""
        async with self._gate:
            if follower.cursor.current:
                return True
            self.counts.asks += 1
            asked = follower.cursor.epoch
            subject = self._subjects.asks(follower.worker)
            answer = await question(
                self.link, subject, follower.cursor.ask(), timeout=self._settings.recovery_timeout_seconds
            )
            if isinstance(answer, Silence):
                self.counts.unanswered += 1
                follower.last_error = answer.reason
                if self.link.connected:
                    follower.answers = answer.reached
                return False
            self.counts.answers += 1
            follower.answers = True
            await self._accept(follower, answer, asked)
        if follower.cursor.current:
            follower.last_error = ""
        return follower.cursor.current

    async def _accept(self, follower: Follower, pieces: list[Answer], asked: Epoch | None) -> None:
        first, cursor = pieces[0], follower.cursor
        if not cursor.accept(first, asked):
            follower.last_error = "an answer from before what is known already"
            return
        if first.kind == "snapshot":
            await self._swap(follower, pieces)
            return
        for piece in pieces:
            for data in piece.events:
                event = decode_event(data)
                if isinstance(event, Fault):
                    self.counts.malformed += 1
                    continue
                self._step(follower, cursor.take(event))
                await asyncio.sleep(0)
        self._step(follower, cursor.settle(pieces[-1]))

    async def _swap(self, follower: Follower, pieces: list[Answer]) -> None:
        """Put a snapshot in place of what is held, in small steps; a newer life of the source stops it."""
        cursor = follower.cursor
        life = cursor.begin_snapshot(pieces[0].epoch)
        self.counts.snapshots += 1
        self._index.clear(follower.worker)
        for piece in pieces:
            for part in piece.blocks:
                for start in range(0, len(part.hashes), SWAP_HASHES):
                    self._store(follower, part.hashes[start : start + SWAP_HASHES], part.tier)
                    await asyncio.sleep(0)
                    if cursor.lives != life:
                        return
        self._step(follower, cursor.end_snapshot(pieces[-1], life))
