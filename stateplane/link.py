"""The tasks between one replica's claims and the plane: join, heartbeats, feed, outbox. All I/O of the desk is here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import structlog

from stateplane.booking import Beat, Change, Gap, Member, Rules, Snapshot, Version
from stateplane.breaker import Breaker, Health
from stateplane.calls import Call
from stateplane.claims import Claims
from stateplane.errors import PlaneEpochError, StatePlaneError
from stateplane.plane import StatePlane
from stateplane.view import View

log = structlog.get_logger(__name__)

T = TypeVar("T")
PROBE_SECONDS = 0.5
"""Longest time between two attempts to reach a plane that is away."""
RETURN_JITTER_SECONDS = 0.2
"""Replicas that all have to book again begin within this time of each other."""
CHANGES_AT_ONCE = 256
"""Changes folded before the event loop gets its turn."""


@dataclass(slots=True)
class Counts:
    """What happened to the calls of one replica."""

    calls: int = 0
    failed: int = 0
    epochs: int = 0  # calls refused because the plane had begun a new life
    invalid: int = 0  # calls whose values no plane takes: a fault of this program
    joins: int = 0
    beats: int = 0
    changes: int = 0
    snapshots: int = 0
    gaps: int = 0
    feeds_broken: int = 0
    stalls: int = 0  # feeds that brought nothing although the plane had moved on
    rebooked: int = 0
    away: int = 0
    handed: int = 0  # own bookings that were live when this replica left


class Link:
    """Keeps one replica joined and its claims told. One task each for heartbeats, feed and outbox."""

    def __init__(
        self,
        plane: StatePlane,
        claims: Claims,
        view: View,
        *,
        rules: Rules,
        info: Mapping[str, str],
        clock: Callable[[], float],
        parallel: int,
        timeout: float,
        rng: random.Random,
    ) -> None:
        self.counts = Counts()
        self.info = dict(info)
        self.members: tuple[Member, ...] = ()
        self.breaker = Breaker(now=clock(), slow=timeout / 2)
        self._plane = plane
        self._claims = claims
        self._view = view
        self._rules = rules
        self._clock = clock
        self._parallel = parallel
        self._timeout = timeout
        self._rng = rng
        self._epoch: int | None = None
        self._declared = False
        self._open = asyncio.Event()
        self._left = asyncio.Event()
        self._sending = 0
        self._landed = asyncio.Event()
        self._target = Version(0, 0)
        self._level_at = clock()
        self._reading: asyncio.Timeout | None = None
        self._resync_due = False
        self._nudge = asyncio.Event()

    @property
    def joined(self) -> bool:
        """Whether the view has folded a picture of the epoch that we are a member of."""
        return self._epoch is not None and self._view.version.epoch == self._epoch

    def lag(self, now: float) -> float:
        """Seconds for which the view has been behind what the plane last said; 0 while level and in touch."""
        level = self._view.version >= self._target and self.joined and self.breaker.state is not Health.AWAY
        return 0.0 if level else max(0.0, now - self._level_at)

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
        """Until cancelled."""
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
            tasks.create_task(self._send(tasks))

    async def leave(self, within: float) -> None:
        """Send what waits, hand over, end the lease."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._flush()
        self._left.set()
        self._open.clear()
        self.counts.handed += len(self._claims)
        with suppress(TimeoutError, StatePlaneError):
            async with asyncio.timeout(self._timeout * 2):
                await self._plane.leave()

    async def _flush(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while (self._claims.outbox or self._sending) and self._open.is_set():
                while self._sending < self._parallel and (booking_id := self._claims.outbox.take()) is not None:
                    self._launch(tasks, booking_id)
                await self._landing()

    # calls

    async def _ask(self, call: Awaitable[T], *, patience: float = 1.0) -> T:
        """Await a call within its deadline and let the breaker know. Raises StatePlaneError only."""
        self.counts.calls += 1
        began = self._clock()
        try:
            async with asyncio.timeout(self._timeout * 2 * patience):
                answer = await call
        except PlaneEpochError as error:
            self.counts.epochs += 1
            self._answered(began)
            self._fall_out(error)
            raise
        except (StatePlaneError, TimeoutError) as error:
            self.counts.failed += 1
            self._unanswered(error)
            if isinstance(error, StatePlaneError):
                raise
            raise StatePlaneError("no answer within the call's deadline") from error
        self._answered(began)
        return answer

    def _answered(self, began: float) -> None:
        now = self._clock()
        was = self.breaker.state
        if not self.breaker.answered(now, now - began):
            return
        if was is Health.AWAY:
            log.info("state plane reached", version=self._view.version.number)
            self._gate()

    def _unanswered(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if self.breaker.failed(self._clock(), reason) and self.breaker.state is Health.AWAY:
            self.counts.away += 1
            log.warning("state plane away, picking on local knowledge", reason=reason)
            self._gate()

    def _fall_out(self, error: PlaneEpochError) -> None:
        if self._epoch is not None:
            log.warning("state plane began a new epoch, joining again", reason=str(error))
        self._epoch = None
        self._nudge.set()
        self._gate()

    def _gate(self) -> None:
        """The outbox is sent while we are a member and the plane answers."""
        if self.joined and self.breaker.state is not Health.AWAY and not self._left.is_set():
            self._open.set()
        else:
            self._open.clear()

    # membership

    async def _join(self) -> bool:
        """Become a member of the plane's epoch and fold the whole picture."""
        self._claims.beating()
        try:
            beat = await self._ask(self._plane.start(self.info), patience=2.0)
            snapshot = await self._ask(self._plane.snapshot(), patience=4.0)
        except StatePlaneError as error:
            log.debug("could not join the state plane", reason=str(error))
            return False
        if snapshot.version.epoch != beat.version.epoch:
            return False
        if snapshot.version.epoch != self._view.version.epoch and self._view.folded:
            await asyncio.sleep(self._rng.uniform(0.0, RETURN_JITTER_SECONDS))
        self.counts.joins += 1
        self._declared = False
        self._fold(snapshot)
        self._epoch, self._target = snapshot.version.epoch, snapshot.version
        self._heard(beat)
        self._gate()
        self._reread(resync=False)
        return self.joined

    async def _beats(self) -> None:
        while True:
            self._nudge.clear()
            with suppress(StatePlaneError):
                if not self.joined:
                    await self._join()
                else:
                    await self._beat()
            away = not self.joined or self.breaker.state is Health.AWAY
            pause = min(PROBE_SECONDS, self._rules.heartbeat) if away else self._rules.heartbeat
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * self._rng.uniform(0.5 if away else 0.9, 1.0)):
                    await self._nudge.wait()

    async def _beat(self) -> None:
        self._claims.beating()
        beat = await self._ask(self._plane.beat(self.info))
        self.counts.beats += 1
        self._heard(beat)
        await self._declare()

    def _heard(self, beat: Beat) -> None:
        now = self._clock()
        self.members = beat.members
        self._view.members_seen(beat.members, now)
        self._claims.beat(beat.version, now)
        self._target = max(self._target, beat.version)
        if self._view.version >= beat.version:
            self._level_at = now
        elif now - self._level_at > 2 * self._rules.heartbeat + self._timeout:
            self.counts.stalls += 1
            self._level_at = now
            self._reread(resync=True)
        if self._claims.strays_due:
            self._reread(resync=True)

    async def _declare(self) -> None:
        """Once all that is live stands in this epoch, say so."""
        if self._declared or self._claims.owing or not self.joined:
            return
        self._declared = True
        try:
            await self._ask(self._plane.rebooked())
        except StatePlaneError:
            self._declared = False
            raise
        self.counts.rebooked += 1

    # the feed

    async def _feed(self) -> None:
        while True:
            await self._open.wait()
            try:
                async with asyncio.timeout(None) as self._reading:
                    await self._read()
            except TimeoutError:
                if self._resync_due:
                    await self._resync()
            except StatePlaneError as error:
                self.counts.feeds_broken += 1
                self._unanswered(error)
                await asyncio.sleep(self._rng.uniform(0.02, 0.1))
            finally:
                self._reading = None

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
        self.counts.gaps += 1
        await self._resync()

    def _follow(self, change: Change) -> bool:
        now = self._clock()
        if not self._claims.hear(change, now):
            return False
        self.counts.changes += 1
        if not isinstance(change, Gap) and change.version >= self._target:
            self._level_at = now
        return True

    async def _resync(self) -> None:
        with suppress(StatePlaneError):
            snapshot = await self._ask(self._plane.snapshot(), patience=4.0)
            if snapshot.version.epoch == self._epoch:
                self._fold(snapshot)
                return
            self._fall_out(PlaneEpochError(f"it is in epoch {snapshot.version.epoch}"))
        await asyncio.sleep(self._rng.uniform(0.02, 0.1))

    def _fold(self, snapshot: Snapshot) -> None:
        self.counts.snapshots += 1
        now = self._clock()
        self._claims.fold(snapshot, now)
        if self._view.version >= self._target:
            self._level_at = now

    def _reread(self, *, resync: bool) -> None:
        """Let the feed begin anew; ``resync``: from a whole picture."""
        self._resync_due = resync
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    # the outbox

    async def _send(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._open.wait()
            await self._claims.outbox.filled()
            if self._sending >= self._parallel:
                await self._landing()
            elif self._open.is_set() and (booking_id := self._claims.outbox.take()) is not None:
                self._launch(tasks, booking_id)

    def _launch(self, tasks: asyncio.TaskGroup, booking_id: str) -> None:
        self._sending += 1
        tasks.create_task(self._tell(booking_id))

    async def _landing(self) -> None:
        """Wait until a call in flight has come back."""
        self._landed.clear()
        if self._sending:
            await self._landed.wait()

    async def _tell(self, booking_id: str) -> None:
        """Tell the plane about one booking until it agrees or does not answer; its calls go one after the other."""
        try:
            while (call := self._claims.begin(booking_id, self._clock())) is not None:
                if not await self._call(booking_id, call):
                    return
            if not self._declared and not self._claims.owing:
                with suppress(StatePlaneError):
                    await self._declare()
        finally:
            self._sending -= 1
            self._landed.set()

    async def _call(self, booking_id: str, call: Call) -> bool:
        answered = False
        try:
            outcome = await self._ask(call.on(self._plane))
            answered = True
        except StatePlaneError:
            return False
        except ValueError as error:
            self.counts.invalid += 1
            self._claims.refused(booking_id)
            log.error("booking refused by its values", call=type(call).__name__, reason=str(error))  # noqa: TRY400 - the values say all
            return False
        finally:
            if not answered:
                self._claims.unanswered(booking_id, call, self._clock())
        self._claims.answered(booking_id, call, outcome, self._clock())
        return True


async def _closed(feed: AsyncIterator[Change]) -> None:
    close = getattr(feed, "aclose", None)
    if close is not None:
        await close()
