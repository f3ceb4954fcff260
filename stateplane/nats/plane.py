"""The plane on NATS: the seam's calls as commands of the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import structlog

from stateplane import checks
from stateplane.booking import (
    SCHEMA,
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Change,
    Outcome,
    Owner,
    Rules,
    Snapshot,
    Terms,
    Version,
)
from stateplane.connecting import CONNECT_SECONDS
from stateplane.errors import (
    PlaneClosedError,
    PlaneDisconnectedError,
    PlaneEpochError,
    PlaneRefusedError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.nats import codec
from stateplane.nats.address import read_url
from stateplane.nats.codec import Body
from stateplane.nats.fold import Fold, Result
from stateplane.nats.follower import Stamp
from stateplane.nats.log import Log
from stateplane.schema import MEMBER_KEY

log = structlog.get_logger(__name__)

SLICE = 64
"""Bookings reaped by one command: about a millisecond of each replica's time."""
CHECKPOINT_EVERY = 4096
"""Messages of the log after which the eldest member stores a checkpoint."""
CHECKPOINT_SECONDS = 60.0
"""It does so at the latest after this time, if there is anything new."""
LATE = 4
"""If it is behind by so many times that, any member does."""


class NatsPlane:
    """One owner's hand in a pool's bookings on a server; keeps the promises of ``stateplane.plane``.

    ``schema``: the newest one that this program reads, which members are told; it reads the one before too.
    """

    capabilities: frozenset[str] = frozenset()

    def __init__(
        self,
        url: str,
        *,
        pool: str,
        owner: Owner,
        rules: Rules,
        timeout: float = 0.25,
        connect: float = CONNECT_SECONDS,
        password_file: Path | None = None,
        stamp: Stamp = lambda _, milliseconds: milliseconds,
        checkpoint_every: int = CHECKPOINT_EVERY,
        schema: int = SCHEMA,
    ) -> None:
        self.owner = checks.owner(owner)
        self._rules = rules
        self._timeout = timeout
        self._connect = connect
        address = read_url(url, password_file=password_file)
        self._log = Log(
            address,
            pool=pool,
            owner=owner,
            rules=rules,
            timeout=timeout,
            connect=connect,
            stamp=stamp,
            schema=schema,
        )
        self._told = {MEMBER_KEY: str(schema)}
        self.counts = self._log.counts
        self._epoch = 0
        self._closed = False
        self._every = checkpoint_every
        self._stored = 0
        """The message that the newest checkpoint is of, as far as we know."""
        self._stored_at = 0.0
        self._keeping: asyncio.Task[None] | None = None

    def _check_started(self) -> None:
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        if not self._epoch:
            raise PlaneEpochError("the plane was not started: join it first")

    async def _call(self, body: Body) -> Result:
        self._check_started()
        try:
            return await self._log.tell(body, self._epoch)
        except PlaneEpochError:
            self.counts.epochs += 1
            raise

    async def _operate(self, body: Body) -> Outcome:
        outcome = await self._call(body)
        assert isinstance(outcome, Outcome)
        return outcome

    async def start(self, info: Mapping[str, str]) -> Beat:
        """Connect, learn or begin the epoch, join as a member."""
        checks.info(info)
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        join = codec.Join({**info, **self._told}, SLICE)
        await self._log.ready(self._connect)
        try:
            await self._log.same()
            beat = await self._log.tell(join, 0)
        except PlaneDisconnectedError:
            # the connection had broken, or the log is another, which shows only when it is asked
            await self._log.ready(self._connect)
            beat = await self._log.tell(join, 0)
        assert isinstance(beat, Beat)
        self._epoch = beat.version.epoch
        return await self._beaten(beat)

    async def book(self, booking: Booking) -> Outcome:
        """Book on ``booking.worker``."""
        return await self._operate(codec.Book(checks.booking(booking)))

    async def select(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Outcome:
        """Not on NATS: ``capabilities`` says so."""
        del booking, candidates, terms
        raise PlaneRefusedError("NATS cannot choose and book in one step: use PICKER_SYNC=eventual, or Redis")

    async def move(self, booking_id: str, *, term: int, op: int, worker: str, amount: Amount) -> Outcome:
        """Another endpoint served."""
        checks.operation(booking_id, op)
        checks.name(worker, "worker")
        return await self._operate(codec.Move(booking_id, term, op, worker, checks.amount(amount)))

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        """Set what it occupies."""
        checks.operation(booking_id, op)
        return await self._operate(codec.Adjust(booking_id, term, op, checks.amount(amount)))

    async def drain(
        self, booking_id: str, *, term: int, op: int, cause: Cause, seconds: float | None = None
    ) -> Outcome:
        """Count it on for a while only."""
        checks.operation(booking_id, op)
        checks.drain_cause(cause)
        return await self._operate(codec.Drain(booking_id, term, op, cause, seconds))

    async def reclaim(self, booking_id: str) -> Outcome:
        """Proof of life."""
        return await self._operate(codec.Reclaim(checks.name(booking_id, "booking id")))

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        """End it."""
        checks.name(booking_id, "booking id")
        checks.end_cause(cause, term)
        return await self._operate(codec.Release(booking_id, cause, term))

    async def rebooked(self) -> Outcome:
        """All our live bookings stand in this epoch."""
        return await self._operate(codec.Rebook())

    async def beat(self, info: Mapping[str, str]) -> Beat:
        """Renew our lease; what is silent lapses and what is due goes, at this place of the log."""
        checks.info(info)
        self._check_started()
        fold = await self._log.ready(self._timeout)
        change = fold.ledger.number if fold.ledger is not None else 0
        beat = await self._call(codec.Heartbeat({**info, **self._told}, SLICE, fold.sequence, change))
        assert isinstance(beat, Beat)
        return await self._beaten(beat)

    async def _beaten(self, beat: Beat) -> Beat:
        if beat.reaped >= SLICE:
            beat = await self._reap_on(beat)
        self.counts.reaped += beat.reaped
        self.counts.lapsed += len(beat.lapsed)
        self.counts.rebased += beat.rebased
        self._keep(beat)
        return beat

    async def _reap_on(self, beat: Beat) -> Beat:
        """Reap for half a heartbeat at most: others' commands go between the slices, and the next beat goes on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._rules.heartbeat / 2
        total, done, version = beat.reaped, SLICE, beat.version
        while done >= SLICE and loop.time() < until:
            try:
                slice_ = await self._call(codec.Reap(SLICE))
            except StatePlaneError:
                break
            assert isinstance(slice_, Beat)
            done, version = slice_.reaped, slice_.version
            total += done
        return Beat(
            version=version,
            members=beat.members,
            lapsed=beat.lapsed,
            reaped=total,
            rebased=beat.rebased,
            returned=beat.returned,
        )

    # --- reading

    async def snapshot(self) -> Snapshot:
        """The whole picture, with everything in it that the log holds at the time of the call."""
        self._check_started()
        fold = await self._level()
        ledger = fold.ledger
        if ledger is None or ledger.epoch != self._epoch:
            raise PlaneEpochError(f"the plane is in epoch {fold.epoch}, we joined {self._epoch}")
        return ledger.snapshot(now=fold.now())

    async def _level(self) -> Fold:
        return await self._log.level()

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        """Every change after that version."""
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        async for change in self._log.changes(after):
            yield change

    async def sums(self) -> Mapping[str, Amount]:
        """From the server's checkpoint and log alone, folded apart from what this replica holds: for audits."""
        self._check_started()
        ledger = await self._log.replayed()
        if ledger.epoch != self._epoch:
            raise PlaneEpochError(f"the plane is in epoch {ledger.epoch}, we joined {self._epoch}")
        return ledger.sums()

    # --- checkpoints

    def _keep(self, beat: Beat) -> None:
        """See in the background whether a checkpoint is due and ours to store."""
        fold = self._log.fold
        if fold is None or (self._keeping is not None and not self._keeping.done()):
            return
        now = asyncio.get_running_loop().time()
        if fold.sequence < self._stored:
            self._stored = 0  # another log
        behind = fold.sequence - self._stored
        eldest = bool(beat.members) and beat.members[0].owner == self.owner
        due = behind >= self._every or (
            now - self._stored_at >= CHECKPOINT_SECONDS and behind > len(beat.members)
        )
        if (eldest and due) or behind >= LATE * self._every:
            self._keeping = asyncio.create_task(self._store(eldest=eldest), name="plane checkpoint")

    async def _store(self, *, eldest: bool) -> None:
        try:
            if not eldest:
                self._stored = await self._log.newest_checkpoint()
                fold = self._log.fold
                if fold is None or fold.sequence - self._stored < LATE * self._every:
                    return
                await asyncio.sleep(random.uniform(0.0, self._rules.heartbeat))
            self._stored = await self._log.checkpoint()
            self._stored_at = asyncio.get_running_loop().time()
        except StatePlaneError as error:
            self.counts.checkpoints_failed += 1
            if not isinstance(error, (PlaneUnavailableError, PlaneClosedError)):
                log.warning("the plane's checkpoint cannot be stored", reason=str(error))

    # --- the end

    async def leave(self) -> None:
        """Hand our bookings over and end the lease."""
        try:
            await self._call(codec.Leave())
        except StatePlaneError:
            self.counts.disconnects += 1

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._log.close()
