"""
The bridge at work: one engine's stream in, clean events on NATS out, and answers for replicas that missed
some.

Whatever breaks the engine's stream beyond repair (a restart, batches that no replay returns) begins a new
life: a new epoch, first a ``cleared``, then what can be rebuilt. NATS away changes nothing here: numbers go
on, and replicas ask when they see the gap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from nats.aio.msg import Msg

from picker.events.bridge.continuity import Position, contiguous
from picker.events.bridge.engine_events import Frames
from picker.events.bridge.ranks import Outgoing, Past, Ranks
from picker.events.bridge.sleep import SleepWatch, States
from picker.events.bridge.sources import Connected, Disconnected, EngineFeed
from picker.events.link import Link, Wish
from picker.events.records import Epoch, Fault, decode_ask
from picker.events.subjects import ROOT
from picker.settings import BridgeSettings, EventSettings

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 2.0
PROBE_FIRST_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 10.0
"""An idle engine is asked whether something was lost: a lost last batch shows itself in no later number."""
TRIES: Final = 3
MAX_HOLES: Final = 8
REBUILD_TURN: Final = 16
READY_SECONDS: Final = 3.0
WAITING_ASKS: Final = 256


@dataclass(slots=True)
class Counts:
    """What happened to the stream as a whole."""

    lives: int = 0
    """Epochs begun: the start, restarts of the engine, and losses that no replay could mend."""
    restarts: int = 0
    gaps: int = 0
    lost: int = 0
    """Times that batches were lost for good."""
    stale: int = 0
    """Messages of an engine that is dead, read after its successor was known."""
    bad_asks: int = 0


class Bridge:
    """
    One engine's bridge. ``run`` works until cancelled.

    Args:
        events: where NATS is.
        settings: the engine's sockets and name.
        pool: ``namespace/name``.
        block_size: tokens per block of the pool.
        clock: monotonic seconds.
        wall: nanoseconds since 1970, for epochs alone.

    Raises:
        ValueError: a setting cannot work; the text names it.

    """

    def __init__(
        self,
        events: EventSettings,
        settings: BridgeSettings,
        *,
        pool: str,
        block_size: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        if not settings.bridge_worker:
            raise ValueError(
                "PICKER_BRIDGE_WORKER: needed: host:port of the engine as the gateway reaches it"
            )
        if not events.nats_url.get_secret_value():
            raise ValueError("PICKER_NATS_URL: needed: nats://host:port of the server that carries KV events")
        self.counts = Counts()
        self.link = Link(events, name=f"bridge {settings.bridge_worker}", clock=clock, opened=self._opened)
        self.feed = EngineFeed(settings.bridge_events, settings.bridge_replay, clock=clock)
        self.ranks = Ranks(
            settings.bridge_worker,
            pool=pool,
            first=settings.bridge_rank,
            block_size=block_size,
            count_copies=not settings.bridge_repeats,
            keep=settings.bridge_buffer,
            piece_bytes=lambda: min(settings.bridge_snapshot_bytes, self.link.max_payload),
        )
        self.sleep = SleepWatch(settings.bridge_metrics, settings.bridge_metrics_seconds, self._slept)
        self.synced = asyncio.Event()
        """Set once the first attempt to learn the engine's state is over."""
        self._clock = clock
        self._wall = wall
        self._position = Position()
        self._started = wall()
        self._engine = 0
        self._heard: set[int] = set()
        self._probe_at = 0.0
        self._watches_sleep = bool(settings.bridge_metrics)

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """
        Bridge until cancelled. ``ready`` is called once engine and NATS are there, or after a few seconds
        without them.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feed.run(), name="engine feed")
            tasks.create_task(self.link.run(), name="nats link")
            tasks.create_task(self._follow(), name="follow engine")
            tasks.create_task(self._beat(), name="beat")
            tasks.create_task(self._say_ready(ready), name="say ready")
            if self._watches_sleep:
                tasks.create_task(self.sleep.run(), name="watch sleep")

    async def _slept(self, states: States) -> None:
        await self._send(self.ranks.sleep(states))

    async def _say_ready(self, ready: Callable[[], None]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self.synced.wait()
                await self.link.once_connected.wait()
        ready()

    async def _follow(self) -> None:
        """Take what the engine does, one thing after the other."""
        await self._begin(aside=False)
        while True:
            item = await self.feed.next(0.5)
            if isinstance(item, Connected):
                await self._reconnected()
            elif isinstance(item, Disconnected):
                log.warning("the engine's events are away")
                if not self.feed.replays:
                    await self._begin(aside=False)
            elif isinstance(item, Frames):
                await self._live(item)
                self._probe_at = self._clock() + PROBE_FIRST_SECONDS
            elif self.feed.connected and self.feed.replays and self._clock() >= self._probe_at:
                await self._check()
                self._probe_at = self._clock() + PROBE_SECONDS
            self.ranks.expire(self._clock())

    async def _reconnected(self) -> None:
        """The engine is there, maybe another life of it."""
        known = self._position.applied is not None
        if self.feed.replays and not await self._check() and known:
            await self._rebuild()  # nothing proves that it is the life we know
        self._probe_at = self._clock() + PROBE_FIRST_SECONDS
        log.info("the engine's events are there", epoch=self.ranks.epoch, applied=self._position.applied)
        self.synced.set()

    async def _live(self, message: Frames) -> None:
        """One message of the engine's stream."""
        verdict = self._position.judge(message)
        level = False
        if verdict == "restart":
            self.counts.restarts += 1
            log.warning("the engine restarted: its numbers went back", sequence=message.sequence)
            level = await self._anew()
            verdict = self._position.again(message)
        elif verdict == "gap" or (verdict == "first" and message.sequence > 0 and self.feed.replays):
            self.counts.gaps += 1
            level = self.feed.replays and await self._check()
            verdict = self._position.again(message)
        if verdict == "gap" and level:
            # We are level with the engine that lives, and it does not know this batch: a dead one sent it.
            self.counts.stale += 1
            self._position.disown()
            return
        if verdict == "gap":
            self.counts.lost += 1
            log.warning(
                "batches of the engine are lost", after=self._position.applied, before=message.sequence
            )
            await self._begin(aside=False)
            verdict = self._position.again(message)
        if verdict == "first" and message.sequence == 0:
            self.ranks.complete()
        if verdict != "old":
            await self._apply(message)

    async def _anew(self) -> bool:
        """Another life of the engine: learn what can be learnt. Whether we are level with it."""
        if self.feed.replays:
            return await self._rebuild()
        await self._begin(aside=False)
        return False

    async def _apply(self, message: Frames) -> None:
        self._position.advance(message)
        await self._send(self.ranks.apply(message.payload, self._clock()))

    async def _begin(self, *, aside: bool) -> None:
        """A new life: every rank is empty, and nothing proves yet that it is complete."""
        self.counts.lives += 1
        self._position.reset()
        self._engine = max(self._engine + 1, self._wall())
        await self._send(self.ranks.begin(Epoch(self._started, self._engine), aside=aside))

    async def _check(self) -> bool:
        """
        Ask the engine for what follows the last applied batch; another life is rebuilt. Whether we are
        level with it.
        """
        if self._position.applied is None:
            return await self._rebuild()
        tries = 0
        while tries < TRIES:
            joined = self._position.join(await self.feed.replay(self._position.applied))
            if joined.life == "other":
                self.counts.restarts += 1
                return await self._rebuild()
            await self._apply_all(joined.batches)
            if joined.whole:
                return True
            tries = 0 if joined.batches else tries + 1
        return False

    async def _rebuild(self) -> bool:
        """
        Learn the engine's state from all that it can play back; tell it when done. Whether we are level
        with it.
        """
        await self._begin(aside=True)
        past = await self._play_back()
        await self._send(self.ranks.end_aside(past))
        if past != "all":
            log.warning(
                "the engine's past is not known to its beginning: a worker may be partial", known=past
            )
        return past != "part"

    async def _play_back(self) -> Past:
        """Apply every batch that the engine still has."""
        past: Past = "all"
        tries, holes, start = 0, 0, 0
        while tries < TRIES and holes < MAX_HOLES:
            replay = await self.feed.replay(start)
            batches = [batch for batch in replay.batches if batch.sequence >= start]
            if batches and self._position.applied is None and batches[0].sequence > start:
                # Older batches are gone from the engine's buffer, or were dropped on the way.
                past, start = "end", batches[0].sequence
            follow = contiguous(batches, start)
            await self._apply_all(follow)
            start += len(follow)
            if replay.ended and len(follow) == len(batches):
                return past
            tries = 0 if follow else tries + 1
            if tries == TRIES and len(batches) > len(follow):
                # A hole that no try has filled: begin behind it.
                self.counts.lost += 1
                past, tries, holes = "end", 0, holes + 1
                start = batches[len(follow)].sequence
                self.ranks.forget()
                self._position.reset()
        return "part"

    async def _apply_all(self, batches: list[Frames]) -> None:
        for number, batch in enumerate(batches):
            await self._apply(batch)
            if number % REBUILD_TURN == 0:
                await asyncio.sleep(0)

    async def _send(self, outgoing: list[Outgoing]) -> None:
        for item in outgoing:
            await self.link.send(item.subject, item.data)
        await self._listen()

    async def _listen(self) -> None:
        """Answer for every rank that is known by now."""
        for number, rank in self.ranks.by_rank.items():
            if number not in self._heard:
                self._heard.add(number)
                subject = self.ranks.subjects.asks(rank.worker)
                await self.link.keep(Wish(subject, self._answerer(number), WAITING_ASKS, 1024 * 1024))

    def _answerer(self, number: int) -> Callable[[Msg], Awaitable[None]]:
        async def asked(message: Msg) -> None:
            ask = decode_ask(message.data)
            # A reply that points into our own subjects would make the bridge speak where it must not.
            if isinstance(ask, Fault) or not message.reply or message.reply.startswith(ROOT):
                self.counts.bad_asks += 1
                return
            for piece in self.ranks.by_rank[number].publisher.answers(ask):
                if not await self.link.send(message.reply, piece):
                    return
                await asyncio.sleep(0)

        return asked

    async def _opened(self) -> None:
        """NATS is there (again): say how far we are, so that replicas see what they missed."""
        for item in self.ranks.beats():
            await self.link.send(item.subject, item.data)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self.link.connected:
                await self._send(self.ranks.beats())
