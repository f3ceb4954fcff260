"""
What events do not tell: what replicas sent to workers without events, learned and told to each other. And, of all
workers, the *tails* of prompts with media, whose blocks no replica can tell from an event.

Each such pick goes out as one record, a bridge's ``stored`` on a subject of the replicas' own:
the prompt's (or the tail's) blocks from the first on. Nothing is numbered for gaps: a lost record makes
the others know a little less until the next one. A replica that starts late learns from then on.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nats.aio.msg import Msg

from picker.core.approximate import MAX_PROMPT_BLOCKS, Approximate
from picker.events.link import Link, Wish
from picker.events.records import SCHEMA, Epoch, Event, Fault, decode_event, encode
from picker.events.subjects import TAILS, Subjects

WAITING_PICKS: Final = 1_024
QUEUE_BYTES: Final = 64 * 1024 * 1024
SWEEP_SECONDS: Final = 1.0
SWEEP_BLOCKS: Final = 4_096
ROOM_BYTES: Final = 512
HASH_BYTES: Final = 9


@dataclass(slots=True)
class Counts:
    """What replicas told each other."""

    told: int = 0
    untold: int = 0
    """Picks that were not told: too many at one time, or NATS away."""
    heard: int = 0
    malformed: int = 0
    unused: int = 0
    """Of workers that are not watched here, or whose own events are known."""


class Picks:
    """
    Learns picks, this replica's and the others'. ``run`` works until cancelled.

    Args:
        subjects: of the pool.
        link: the connection to NATS, which somebody else runs.
        approximate: what is learned.
        wanted: whether that worker is to be learned of now.
        clock: monotonic seconds.
        tails: whether these are the tails.

    """

    def __init__(
        self,
        subjects: Subjects,
        link: Link,
        approximate: Approximate,
        *,
        wanted: Callable[[str], bool],
        clock: Callable[[], float],
        tails: bool = False,
    ) -> None:
        self.counts = Counts()
        self.approximate = approximate
        self._subject_of = subjects.tails if tails else subjects.picks
        self._tails = tails
        self._subjects = subjects
        self._link = link
        self._wanted = wanted
        self._clock = clock
        self._by_subject: dict[str, str] = {}
        self._self = Epoch(time.time_ns(), secrets.randbits(63))
        self._number = 0
        self._waiting: deque[tuple[str, list[int]]] = deque(maxlen=WAITING_PICKS)
        self._filled = asyncio.Event()

    def watch(self, worker: str) -> None:
        """Learn of this worker from now on, whenever its events are silent."""
        self._by_subject[self._subject_of(worker)] = worker

    def unwatch(self, worker: str) -> None:
        """The worker left."""
        self._by_subject.pop(self._subject_of(worker), None)
        self.approximate.forget(worker)

    def picked(self, worker: str, hashes: Sequence[int], now: float) -> None:
        """A request with this prompt was sent to the worker."""
        if not hashes or not self._wanted(worker):
            return
        self.approximate.learn(worker, hashes, now)
        if len(self._waiting) == WAITING_PICKS:
            self.counts.untold += 1
        self._waiting.append((worker, list(hashes[:MAX_PROMPT_BLOCKS])))
        self._filled.set()

    async def run(self) -> None:
        """Tell, hear and forget until cancelled."""
        await self._link.keep(Wish(self._subjects.all_picks, self._arrived, WAITING_PICKS, QUEUE_BYTES))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell(), name="tell picks")
            tasks.create_task(self._sweep(), name="forget old picks")

    async def _tell(self) -> None:
        while True:
            if not self._waiting:
                self._filled.clear()
                await self._filled.wait()
            worker, hashes = self._waiting.popleft()
            most = max((self._link.max_payload - ROOM_BYTES) // HASH_BYTES, 1)
            self._number += 1
            record = Event(SCHEMA, *self._self, self._number, "stored", hashes[:most])
            if await self._link.send(self._subject_of(worker), encode(record)):
                self.counts.told += 1
            else:
                self.counts.untold += 1

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.approximate.expire(self._clock(), SWEEP_BLOCKS)

    async def _arrived(self, message: Msg) -> None:
        if message.subject.endswith(TAILS) is not self._tails:
            return
        record = decode_event(message.data)
        if isinstance(record, Fault) or record.kind != "stored":
            self.counts.malformed += 1
            return
        if record.epoch == self._self:
            return
        worker = self._by_subject.get(message.subject)
        if worker is None or not self._wanted(worker):
            self.counts.unused += 1
            return
        self.counts.heard += 1
        self.approximate.learn(worker, record.hashes, self._clock())
        await asyncio.sleep(0)
