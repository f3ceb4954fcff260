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
from collections.abc import Callable, Iterator, Sequence

import structlog
from nats.aio.msg import Msg

from picker.core.approximate import Approximate
from picker.core.index import PrefixIndex
from picker.events.applying import Applier, Holdings
from picker.events.counts import Counts
from picker.events.cursor import Cursor
from picker.events.dynamo.source import DynamoSource
from picker.events.follower import Follower, Status, worker_status
from picker.events.link import Link, Wish
from picker.events.picks import Picks
from picker.events.records import Ask, Fault, decode_event
from picker.events.recovering import Recovering
from picker.events.subjects import Subjects
from picker.settings import EventSettings

log = structlog.get_logger(__name__)

TURN_MESSAGES = 10
TURN_HASHES = 4096
"""The event loop is given back after so many messages or blocks."""
QUEUE_BYTES = 64 * 1024 * 1024
TAIL_BLOCKS = 1_000_000
"""Most blocks of tails, over all workers."""
SILENT_SECONDS = 5.0
"""Bridges beat more often than this; past it one that speaks again is asked at once."""


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
        self.picks: Picks | None = None
        """What is learned of workers without events, where the settings want it."""
        if settings.approximate:
            learned = Approximate(
                index, ttl=settings.approximate_ttl_seconds, worker_blocks=settings.approximate_blocks
            )
            self.picks = Picks(self._subjects, self.link, learned, wanted=self._untold, clock=clock)
        self.tails = PrefixIndex()
        """What workers probably hold of prompts with media, behind the blocks that events can tell of."""
        tails = Approximate(
            self.tails,
            ttl=settings.approximate_ttl_seconds,
            worker_blocks=settings.approximate_blocks,
            total_blocks=TAIL_BLOCKS,
        )
        self.tail_picks = Picks(
            self._subjects, self.link, tails, wanted=self._tailed, clock=clock, tails=True
        )
        self._applier = Applier(index, on_stored, self.counts, self._cleared)
        self._followers: dict[str, Follower] = {}
        self._by_subject: dict[str, Follower] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._filled = asyncio.Event()
        self._recovering = Recovering(
            settings, self.link, self._subjects, applier=self._applier, counts=self.counts, here=self._here
        )
        self.dynamo: DynamoSource | None = None
        """Workers of Dynamo's that publish on this NATS themselves, where the settings name a subject."""
        if self.enabled and settings.dynamo_subject:
            self.dynamo = DynamoSource(settings, pool, self.link, deliver=self.deliver, clock=clock)

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
        if self.dynamo is not None:
            self.dynamo.watch(worker)
        if self.picks is not None:
            self.picks.watch(worker)
        self.tails.add(worker)
        self.tail_picks.watch(worker)
        self._recovering.see_to(follower)

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
        if self.dynamo is not None:
            self.dynamo.unwatch(worker)
        if self.picks is not None:
            self.picks.unwatch(worker)
        self.tail_picks.unwatch(worker)
        self.tails.drop(worker)
        self._index.drop(worker)

    def routed(self, worker: str, now: float, hashes: Sequence[int] = (), tail: Sequence[int] = ()) -> None:
        """
        A request was sent to this worker: it should soon tell of new blocks. ``now`` in monotonic seconds.

        ``hashes`` are the sequence hashes of the prompt's full blocks: of a worker that no events tell of,
        they are learned and told to the other replicas, where `PICKER_APPROXIMATE` is set. ``tail`` are those of what
        stands behind, of a prompt with media: no events tell of them, so they are learned of every worker whose events
        are followed, too.
        A worker that is sent requests and tells nothing for `PICKER_EVENTS_SILENT_SECONDS` is called silent,
        once in the log, and in `status` until it speaks again.
        """
        if self.picks is not None:
            self.picks.picked(worker, hashes, now)
        self.tail_picks.picked(worker, tail, now)
        follower = self._followers.get(worker) if self.enabled else None
        if follower is None or not follower.routed(now, self._settings.events_silent_seconds):
            return
        self.counts.silences += 1
        log.warning(
            "a worker is sent requests and its KV events are silent: are they switched on, is its bridge there?",
            worker=worker, bridge_answers=follower.answers, seconds=self._settings.events_silent_seconds,
        )  # fmt: skip

    def told_of(self, worker: str) -> bool:
        """Whether events tell of this worker: only then can they confirm a prediction."""
        follower = self._followers.get(worker)
        return self.enabled and follower is not None and follower.cursor.epoch is not None

    def silent(self) -> list[str]:
        """The workers that are sent requests and tell nothing of their cache."""
        return [name for name, follower in self._followers.items() if follower.silent]

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
        learning = [picks for picks in (self.picks, self.tail_picks) if picks is not None]
        if not self.enabled:
            async with asyncio.TaskGroup() as tasks:
                for picks in learning:
                    tasks.create_task(picks.run(), name="picks")
        await self.link.keep(
            Wish(self._subjects.all_events, self._arrived, self._settings.events_queue, QUEUE_BYTES)
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                self._recovering.tasks = tasks
                for follower in self._followers.values():
                    self._recovering.see_to(follower)
                tasks.create_task(self.link.run(), name="nats link")
                tasks.create_task(self._apply(), name="apply events")
                if self.dynamo is not None:
                    tasks.create_task(self.dynamo.run(), name="dynamo's events")
                for picks in learning:
                    tasks.create_task(picks.run(), name="picks")
        finally:
            self._recovering.tasks = None

    def _here(self, worker: str, ask: Ask) -> Iterator[bytes] | None:
        return None if self.dynamo is None else self.dynamo.answers(worker, ask)

    def _untold(self, worker: str) -> bool:
        return worker in self._followers and not self.told_of(worker)

    def _tailed(self, worker: str) -> bool:
        return worker in self._followers and (self.picks is not None or self.told_of(worker))

    def _cleared(self, worker: str) -> None:
        if self.picks is not None:
            self.picks.approximate.forget(worker)
        self.tail_picks.approximate.forget(worker)
        self.tails.clear(worker)

    async def _opened(self) -> None:
        """The connection is there (again): whatever was published meanwhile was missed."""
        if self.dynamo is not None:
            self.dynamo.opened()
        for follower in list(self._followers.values()):
            follower.cursor.doubt()
            follower.wake.set()
            self._recovering.see_to(follower)

    async def _arrived(self, message: Msg) -> None:
        self.deliver(message.subject, message.data)

    def deliver(self, subject: str, data: bytes) -> None:
        """Take a record in, as from a bridge; it is applied soon."""
        if len(self._queue) >= self._settings.events_queue:
            self._queue.popleft()
            self.counts.queue_dropped += 1
        self._queue.append((subject, data))
        self._filled.set()

    def _told(self, follower: Follower, now: float) -> None:
        if follower.told(now):
            log.info("a silent worker's events are back", worker=follower.worker)

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
            self._told(follower, now)
        touched = self._applier.step(follower, follower.cursor.take(event))
        self._recovering.see_to(follower)
        return touched
