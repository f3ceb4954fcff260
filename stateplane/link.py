"""The tasks between one replica's claims and the plane: join, heartbeats, feed, outbox."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from stateplane.booking import Beat, Change, Gap, Member, Owner, Rebooked, Rules, Snapshot, Version
from stateplane.breaker import Health
from stateplane.connecting import CONNECT_SECONDS
from stateplane.errors import StatePlaneError
from stateplane.hearing import Hearing
from stateplane.line import Line
from stateplane.plane import StatePlane
from stateplane.sender import Sender
from stateplane.table import Table

log = structlog.get_logger(__name__)

PROBE_SECONDS = 0.5
"""Longest time between two attempts to reach a plane that is away."""
RETURN_JITTER_SECONDS = 0.2
"""Replicas that all have to book again begin within this time of each other."""
HOP_SECONDS = 0.05
"""A feed may take so long to bring what a heartbeat's answer told already; past it the view is behind."""
PICTURE_SECONDS = 10.0
"""For a whole picture of the plane, beside its connection; each piece of it has the deadline of a call."""
CHANGES_AT_ONCE = 256
"""Changes folded before the event loop gets its turn."""


class Link:
    """Keeps one replica joined, its view level, and its claims told. One task each for heartbeats, feed and outbox."""

    def __init__(
        self,
        plane: StatePlane,
        table: Table,
        *,
        rules: Rules,
        info: Mapping[str, str],
        clock: Callable[[], float],
        parallel: int,
        timeout: float,
        connect: float = CONNECT_SECONDS,
        rng: random.Random,
    ) -> None:
        self.info = dict(info)
        self.members: tuple[Member, ...] = ()
        self.line = Line(clock=clock, timeout=timeout)
        self.line.turned, self.line.epoch_over = self._gate, self._fall_out
        self._plane = plane
        self._table = table
        self._view = table.view
        self._hearing = Hearing(table)
        self._sender = Sender(plane, table, self.line, clock=clock, parallel=parallel, told=self._declare)
        self._rules = rules
        self._clock = clock
        self._timeout = timeout
        self._connect = connect
        self._rng = rng
        self._epoch: int | None = None
        self._declared = False
        self._left = asyncio.Event()
        self._nudge = asyncio.Event()
        self._target = Version(0, 0)
        self._target_at = self._level_at = clock()
        self._hop = 0.0
        """Seconds that the feed took to bring what the last heartbeat told."""
        self._rebooked: set[Owner] = set()
        """Who was heard to declare itself re-booked in this epoch."""
        self._reading: asyncio.Timeout | None = None
        self._resync_due = False

    @property
    def joined(self) -> bool:
        """Whether the view has folded a picture of the epoch that we are a member of."""
        return self._epoch is not None and self._view.version.epoch == self._epoch

    @property
    def away(self) -> bool:
        """Whether the plane does not answer."""
        return self.line.breaker.state is Health.AWAY

    def lag(self, now: float) -> float:
        """Seconds for which the view has been behind what the plane last said; 0 while level and in touch.

        A feed that goes on but is late is as far behind as the last heartbeat found it.
        """
        level = self._view.version >= self._target or now - self._target_at <= HOP_SECONDS
        if level and self.joined and not self.away:
            return self._hop if self._hop > HOP_SECONDS else 0.0
        return max(0.0, now - self._level_at)

    @property
    def rebuilding(self) -> bool:
        """Whether the plane lost what some member has yet to book again: its sums then lack that."""
        waiting = any(not one.rebooked and one.owner not in self._rebooked for one in self.members)
        return waiting or bool(self._view.kept())

    async def start(self, within: float) -> bool:
        """Try to join for at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                wait = 0.02
                while not await self._join():
                    await asyncio.sleep(wait * self._rng.uniform(0.5, 1.0))
                    wait = min(2 * wait, PROBE_SECONDS)
        return self.joined

    async def run(self) -> None:
        """Until cancelled; idle after `leave`."""
        left = asyncio.create_task(self._left.wait())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait((left, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.Event().wait()
        finally:
            left.cancel()
            work.cancel()
            await asyncio.gather(left, work, return_exceptions=True)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beats())
            tasks.create_task(self._feed())
            tasks.create_task(self._sender.run(tasks))

    async def leave(self, within: float) -> None:
        """Send what waits, hand over, end the lease."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._sender.flush()
        self._left.set()
        self._gate()
        self.line.counts.handed += len(self._table)
        with suppress(TimeoutError, StatePlaneError):
            async with asyncio.timeout(self._timeout * 2):
                await self._plane.leave()

    def _gate(self) -> None:
        """The outbox is sent, and the feed read, while we are a member and the plane answers."""
        if self.joined and not self.away and not self._left.is_set():
            self._sender.gate.set()
        else:
            self._sender.gate.clear()

    def _fall_out(self) -> None:
        """The plane began a new epoch: join again at once."""
        if self._epoch is not None:
            log.warning("state plane began a new epoch, joining again", epoch=self._epoch)
        self._epoch = None
        self._nudge.set()
        self._gate()

    # membership

    async def _join(self) -> bool:
        """Become a member of the plane's epoch and fold the whole picture."""
        self._hearing.beating()
        try:
            beat = await self.line.ask(self._plane.start(self.info), longer=self._connect + self._reaping)
            snapshot = await self._picture()
        except StatePlaneError as error:
            log.debug("could not join the state plane", reason=str(error))
            return False
        if snapshot.version.epoch != beat.version.epoch:
            return False
        if self._view.folded and snapshot.version.epoch != self._view.version.epoch:
            await asyncio.sleep(self._rng.uniform(0.0, RETURN_JITTER_SECONDS))
        self.line.counts.joins += 1
        self._declared = False
        self._rebooked.clear()
        self._epoch, self._target = snapshot.version.epoch, snapshot.version
        self._fold(snapshot)
        self._heard(beat)
        self._gate()
        self._reread(resync=False)
        with suppress(StatePlaneError):
            await self._declare()
        return self.joined

    async def _picture(self) -> Snapshot:
        return await self.line.ask(self._plane.snapshot(), longer=self._connect + PICTURE_SECONDS)

    @property
    def _reaping(self) -> float:
        """Seconds for which a heartbeat may go on with what is due once it was heard."""
        return self._rules.heartbeat / 2 + 2 * self._timeout

    async def _beats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._nudge.clear()
            began = loop.time()
            with suppress(StatePlaneError):
                if self.joined:
                    await self._beat()
                else:
                    await self._join()
            lost = self.away or not self.joined
            if lost:
                until = loop.time() + min(PROBE_SECONDS, self._rules.heartbeat) * self._rng.uniform(0.5, 1.0)
            else:  # from beginning to beginning: the way to a far plane is no pause of ours
                until = began + self._rules.heartbeat * self._rng.uniform(0.9, 1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._nudge.wait()

    async def _beat(self) -> None:
        self._hearing.beating()
        beat = await self.line.ask(self._plane.beat(self.info), longer=self._reaping)
        self.line.counts.beats += 1
        self._heard(beat)
        await self._declare()

    def _heard(self, beat: Beat) -> None:
        now = self._clock()
        self.members = beat.members
        level = self._view.version >= beat.version
        self._view.members_seen(beat.members if level else _yet_to_book(beat.members), now)
        self._hearing.beat(beat.version, now)
        if self._view.version >= self._target:
            self._target_at = now
        self._target = max(self._target, beat.version)
        stalled = now - self._level_at > 2 * self._rules.heartbeat + self._timeout
        if self._view.version >= beat.version:
            self._level_at, self._hop = now, 0.0
        elif stalled:
            self.line.counts.stalls += 1
            self._level_at = now
            self._reread(resync=True)
        if self._table.strays_due:
            self._reread(resync=True)

    async def _declare(self) -> None:
        """Once all that is live stands in this epoch, say so."""
        if self._declared or self._table.owing or not self.joined:
            return
        self._declared = True
        try:
            await self.line.ask(self._plane.rebooked())
        except StatePlaneError:
            self._declared = False
            raise
        self.line.counts.rebooked += 1
        self._rebooked.add(self._table.owner)

    # the feed

    async def _feed(self) -> None:
        while True:
            await self._sender.gate.wait()
            try:
                async with asyncio.timeout(None) as reading:
                    self._reading = reading
                    try:
                        await self._read()
                    finally:
                        self._reading = None
            except TimeoutError:
                if self._resync_due:
                    await self._resync()
            except StatePlaneError as error:
                self.line.counts.feeds_broken += 1
                self.line.broke(error)
                await asyncio.sleep(self._rng.uniform(0.02, 0.1))

    async def _read(self) -> None:
        """Follow the changes until one does not follow; a picture then tells what was missed."""
        feed = self._plane.changes(self._view.version)
        folded = 0
        try:
            async for change in feed:
                if not self._follow(change):
                    break
                folded += 1
                if folded % CHANGES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            await _closed(feed)
        self.line.counts.gaps += 1
        await self._resync()

    def _follow(self, change: Change) -> bool:
        now = self._clock()
        behind = self._view.version < self._target
        if not self._hearing.hear(change, now):
            return False
        self.line.counts.changes += 1
        if isinstance(change, Rebooked):
            self._rebooked.add(change.owner)
        if not isinstance(change, Gap) and change.version >= self._target:
            self._level_at = now
            if behind:
                self._hop = now - self._target_at
        return True

    async def _resync(self) -> None:
        with suppress(StatePlaneError):
            snapshot = await self._picture()
            if snapshot.version.epoch == self._epoch:
                self._fold(snapshot)
                return
            self._fall_out()
        await asyncio.sleep(self._rng.uniform(0.02, 0.1))

    def _fold(self, snapshot: Snapshot) -> None:
        self.line.counts.snapshots += 1
        now = self._clock()
        self._hearing.fold(snapshot, now)
        if self._view.version >= self._target:
            self._level_at, self._hop = now, 0.0

    def _reread(self, *, resync: bool) -> None:
        """Let the feed begin anew; ``resync``: from a whole picture."""
        self._resync_due = resync
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())


def _yet_to_book(members: Sequence[Member]) -> tuple[Member, ...]:
    """Where the feed is behind: what they booked again is still to come, and with it their own word that it is all."""
    return tuple(replace(member, rebooked=False) for member in members)


async def _closed(feed: AsyncIterator[Change]) -> None:
    close = getattr(feed, "aclose", None)
    if close is not None:
        await close()
