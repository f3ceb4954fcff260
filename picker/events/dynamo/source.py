"""
Dynamo's workers as a source of events inside the replica, beside the bridges' records.

Their router events are normalised as a bridge does it, and told to the subscriber in the bridge's own
records; the subscriber's questions about these workers are answered here. A rank whose numbers show a gap,
or that is met for the first time, is asked over NATS, a bounded number at one time; where the worker does
not answer, what is known is used and the rank called partial.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import structlog
from nats.aio.msg import Msg

from picker.core.worker import worker_address, worker_name, worker_rank
from picker.events.bridge.publisher import Counts as PublisherCounts
from picker.events.dynamo.rank import Counts, DynamoRank
from picker.events.dynamo.wire import Answered, decode_answer, decode_events, encode_query
from picker.events.link import Link, Wish
from picker.events.records import Ask, Epoch
from picker.events.subjects import Subjects
from picker.settings import EventSettings, SettingsError

log = structlog.get_logger(__name__)

KEEP_EVENTS: Final = 1024
MAX_RANKS: Final = 64
TRIES: Final = 4
FIRST_PAUSE_SECONDS: Final = 0.2
FIRST_REST_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 30.0
"""A rank that did not answer is asked again after so long, in the end."""
QUEUE_BYTES: Final = 64 * 1024 * 1024
ANSWER_BYTES: Final = 256 * 1024 * 1024


def instances(words: tuple[str, ...]) -> dict[int, str]:
    """
    Which instance is at which address.

    Raises:
        SettingsError: a word is not ``ID=host:port``.

    """
    found: dict[int, str] = {}
    for word in words:
        number, separator, address = word.partition("=")
        if not (separator and number.isascii() and number.isdigit() and ":" in address):
            raise SettingsError([f"PICKER_DYNAMO_WORKERS: {word[:60]!r} is not ID=host:port"])
        found[int(number)] = address
    return found


class DynamoSource:
    """
    Follows Dynamo's workers. ``run`` works until cancelled.

    Args:
        settings: the subject and the instances.
        pool: ``namespace/name``.
        link: the connection to NATS, which somebody else runs.
        deliver: takes a record and its subject, as if it had come from a bridge.
        clock: monotonic seconds.
        wall: nanoseconds since 1970, for epochs alone.

    Raises:
        SettingsError: a setting cannot work.

    """

    def __init__(
        self,
        settings: EventSettings,
        pool: str,
        link: Link,
        *,
        deliver: Callable[[str, bytes], None],
        clock: Callable[[], float],
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.counts = Counts()
        self.published = PublisherCounts()
        self._prefix = settings.dynamo_subject.removesuffix(".kv-events").rstrip(".")
        if any(not part or part in "*>" or " " in part for part in self._prefix.split(".")):
            raise SettingsError(
                [f"PICKER_DYNAMO_SUBJECT: {settings.dynamo_subject[:80]!r} is no subject without wildcards"]
            )
        self._timeout = settings.recovery_timeout_seconds
        self._most = settings.events_queue
        self._subjects = Subjects(pool)
        self._link = link
        self._deliver = deliver
        self._clock = clock
        self._wall = wall
        self._started = wall()
        self._life = 0
        self._address = instances(settings.dynamo_workers)
        self._watched: set[str] = set()
        self._ranks: dict[str, DynamoRank] = {}
        self._recovering: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._gate = asyncio.Semaphore(settings.recovery_parallel)
        self._tasks: asyncio.TaskGroup | None = None

    def instance(self, worker_id: int, address: str) -> None:
        """That instance is at that ``host:port``, for whoever learns it from elsewhere than the settings."""
        self._address = {old: at for old, at in self._address.items() if at != address}
        self._address[worker_id] = address
        for worker in [name for name in self._watched if worker_address(name) == address]:
            self._rank(worker, worker_id)

    def watch(self, worker: str) -> None:
        """Follow this worker if it is one of Dynamo's."""
        self._watched.add(worker)
        for worker_id, address in self._address.items():
            if address == worker_address(worker):
                self._rank(worker, worker_id)

    def unwatch(self, worker: str) -> None:
        """Let it go; a recovery in progress ends at once."""
        self._watched.discard(worker)
        self._ranks.pop(worker, None)
        self._wakes.pop(worker, None)
        task = self._recovering.pop(worker, None)
        if task is not None:
            task.cancel()

    def answers(self, worker: str, ask: Ask) -> Iterator[bytes] | None:
        """The answer to a question about one of Dynamo's workers, in pieces; ``None``: it is none of them."""
        rank = self._ranks.get(worker)
        return None if rank is None else rank.publisher.answers(ask)

    def partial(self) -> list[str]:
        """Workers whose past could not be had."""
        return [worker for worker, rank in self._ranks.items() if rank.partial]

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._link.keep(Wish(f"{self._prefix}.kv-events", self._arrived, self._most, QUEUE_BYTES))
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for worker in list(self._ranks):
                    self._recover(worker)
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def opened(self) -> None:
        """The connection was away: numbers show what was missed, but a lost last event shows in none."""
        for worker in list(self._ranks):
            self._recover(worker, doubt=True)

    async def _arrived(self, message: Msg) -> None:
        self.counts.messages += 1
        told = decode_events(message.data)
        self.counts.skipped += told.skipped
        for event in told.events:
            self.counts.events += 1
            address = self._address.get(event.worker_id)
            if address is None:
                self.counts.unknown_worker += 1
                continue
            worker = worker_name(address, event.rank)
            if worker not in self._watched or event.rank >= MAX_RANKS:
                self.counts.other_ranks += 1
                continue
            rank = self._rank(worker, event.worker_id)
            self._tell(rank, rank.take(event, self._clock()))
            if rank.waiting and worker in self._wakes:
                self._wakes[worker].set()
            self._recover(worker)

    def _rank(self, worker: str, worker_id: int) -> DynamoRank:
        rank = self._ranks.get(worker)
        if rank is None or rank.worker_id != worker_id:
            self.counts.restarts += rank is not None
            rank = DynamoRank(
                worker, worker_id, worker_rank(worker), epoch=self._epoch, keep=KEEP_EVENTS,
                counts=self.counts, published=self.published,
            )  # fmt: skip
            self._ranks[worker] = rank
            task = self._recovering.pop(worker, None)
            if task is not None:
                task.cancel()
            self._recover(worker)
        return rank

    def _epoch(self) -> Epoch:
        self._life = max(self._life + 1, self._wall())
        return Epoch(self._started, self._life)

    def _tell(self, rank: DynamoRank, messages: list[bytes]) -> None:
        subject = self._subjects.events(rank.worker)
        for message in messages:
            self._deliver(subject, message)

    def _recover(self, worker: str, *, doubt: bool = False) -> None:
        rank = self._ranks[worker]
        if self._tasks is None or worker in self._recovering or not (rank.waiting or doubt):
            return
        name = f"recover dynamo {worker}"
        self._recovering[worker] = self._tasks.create_task(self._recovery(rank), name=name)

    async def _recovery(self, rank: DynamoRank) -> None:
        """Ask until nothing is missing; after some vain tries go on with what is known, and ask again later."""
        try:
            pause = FIRST_REST_SECONDS
            while not await self._tries(rank):
                if rank.waiting:
                    self._tell(rank, rank.give_up(self._clock()))
                    log.warning("a dynamo worker's past cannot be had", worker=rank.worker)
                await self._rest(rank.worker, pause)
                pause = min(2 * pause, AGAIN_SECONDS)
        finally:
            if self._recovering.get(rank.worker) is asyncio.current_task():
                del self._recovering[rank.worker]
        if self._ranks.get(rank.worker) is rank:
            self._recover(rank.worker)  # what arrived while this task was ending

    async def _rest(self, worker: str, seconds: float) -> None:
        """Pause before the next questions; a new gap ends it."""
        wake = self._wakes.setdefault(worker, asyncio.Event())
        wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wake.wait()

    async def _tries(self, rank: DynamoRank) -> bool:
        """Some questions; whether everything is known in the end."""
        whole = rank.partial
        for number in range(TRIES):
            async with self._gate:
                rank.ask()
                answer = await self._query(rank, None if rank.last is None or whole else rank.last + 1)
            messages, settled = rank.answered(answer, self._clock())
            self._tell(rank, messages)
            if settled:
                return True
            whole = whole or answer.kind == "events"  # the worker keeps too little: all of it, then
            if number < TRIES - 1:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**number)
        return False

    async def _query(self, rank: DynamoRank, start: int | None) -> Answered:
        self.counts.queries += 1
        nothing = Answered("none", why="unanswered")
        opened = await self._link.inbox(ANSWER_BYTES)
        if opened is None:
            return nothing
        inbox, subscription = opened
        subject = f"{self._prefix}.worker_kv_indexer_query.{rank.worker_id}"
        try:
            if await self._link.send(subject, encode_query(rank.worker_id, rank.number, start), reply=inbox):
                message = await self._link.hear(subscription, self._timeout)
                if message is not None and not (message.headers and message.headers.get("Status") == "503"):
                    return decode_answer(message.data)
        finally:
            await self._link.leave(subscription)
        self.counts.unanswered += 1
        return nothing
