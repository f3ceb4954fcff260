"""The seam's calls on a store in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from stateplane import checks
from stateplane.booking import (
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Change,
    Gap,
    Outcome,
    Owner,
    Snapshot,
    Terms,
    Version,
)
from stateplane.errors import PlaneClosedError, PlaneDisconnectedError, PlaneEpochError, PlaneTimeoutError
from stateplane.ledger import Ledger
from stateplane.memory.store import MemoryStore


@dataclass(slots=True)
class Counts:
    """What happened to this plane's calls."""

    calls: int = 0
    timeouts: int = 0
    disconnects: int = 0
    epochs: int = 0
    gaps: int = 0
    reaped: int = 0
    lapsed: int = 0
    rebased: int = 0


class MemoryPlane:
    """One owner's hand in a ``MemoryStore``; keeps the promises of ``stateplane.plane``."""

    capabilities = frozenset({"select"})

    def __init__(self, store: MemoryStore, *, owner: Owner, timeout: float = 0.25) -> None:
        self.store = store
        self.owner = checks.owner(owner)
        self.counts = Counts()
        self._timeout = timeout
        self._epoch = 0
        self._closed = False

    async def _ledger(self, *, joining: bool = False) -> Ledger:
        """The ledger, once the store serves and is in our epoch."""
        self._check_open()
        self.counts.calls += 1
        try:
            await self.store.serving(self._timeout)
        except PlaneTimeoutError:
            self.counts.timeouts += 1
            raise
        except PlaneDisconnectedError:
            self.counts.disconnects += 1
            raise
        self._check_open()
        ledger = self.store.ledger
        if joining:
            self._epoch = ledger.epoch
        elif ledger.epoch != self._epoch:
            self.counts.epochs += 1
            raise PlaneEpochError(f"the plane is in epoch {ledger.epoch}, we joined {self._epoch or 'none'}")
        return ledger

    def _check_open(self) -> None:
        if self._closed:
            raise PlaneClosedError("the memory plane was closed before this call")

    def _told(self, outcome: Outcome) -> Outcome:
        self.store.publish()
        return outcome

    def _beaten(self, beat: Beat) -> Beat:
        self.store.publish()
        self.counts.reaped += beat.reaped
        self.counts.lapsed += len(beat.lapsed)
        self.counts.rebased += beat.rebased
        return beat

    async def start(self, info: Mapping[str, str]) -> Beat:
        """Join the present epoch."""
        checks.info(info)
        ledger = await self._ledger(joining=True)
        return self._beaten(ledger.join(self.owner, info, now=self.store.now()))

    async def book(self, booking: Booking) -> Outcome:
        """Book on ``booking.worker``."""
        checks.booking(booking)
        ledger = await self._ledger()
        return self._told(ledger.book(self.owner, booking, now=self.store.now()))

    async def select(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Outcome:
        """Choose by the exact sums and book in one step."""
        checks.name(booking.id, "booking id")
        checks.choice(candidates, terms)
        ledger = await self._ledger()
        return self._told(ledger.select(self.owner, booking, candidates, terms, now=self.store.now()))

    async def move(self, booking_id: str, *, term: int, op: int, worker: str, amount: Amount) -> Outcome:
        """Another endpoint served."""
        checks.operation(booking_id, op)
        checks.name(worker, "worker")
        checks.amount(amount)
        ledger = await self._ledger()
        now = self.store.now()
        return self._told(
            ledger.move(self.owner, booking_id, term=term, op=op, worker=worker, amount=amount, now=now)
        )

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        """Set what it occupies."""
        checks.operation(booking_id, op)
        checks.amount(amount)
        ledger = await self._ledger()
        now = self.store.now()
        return self._told(ledger.adjust(self.owner, booking_id, term=term, op=op, amount=amount, now=now))

    async def drain(
        self, booking_id: str, *, term: int, op: int, cause: Cause, seconds: float | None = None
    ) -> Outcome:
        """Count it on for a while only."""
        checks.operation(booking_id, op)
        checks.drain_cause(cause)
        ledger = await self._ledger()
        now = self.store.now()
        return self._told(
            ledger.drain(self.owner, booking_id, term=term, op=op, cause=cause, seconds=seconds, now=now)
        )

    async def reclaim(self, booking_id: str) -> Outcome:
        """Proof of life."""
        checks.name(booking_id, "booking id")
        ledger = await self._ledger()
        return self._told(ledger.reclaim(self.owner, booking_id, now=self.store.now()))

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        """End it."""
        checks.name(booking_id, "booking id")
        checks.end_cause(cause, term)
        ledger = await self._ledger()
        return self._told(ledger.release(booking_id, cause, term=term, now=self.store.now()))

    async def rebooked(self) -> Outcome:
        """All our live bookings stand in this epoch."""
        ledger = await self._ledger()
        return self._told(ledger.rebooked(self.owner, now=self.store.now()))

    async def beat(self, info: Mapping[str, str]) -> Beat:
        """Renew our lease, lapse the silent, reap what is due."""
        checks.info(info)
        ledger = await self._ledger()
        return self._beaten(ledger.beat(self.owner, info, now=self.store.now()))

    async def snapshot(self) -> Snapshot:
        """The whole picture."""
        ledger = await self._ledger()
        return ledger.snapshot(now=self.store.now())

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        """Every change after that version."""
        while True:
            self._check_open()
            await self.store.serving(self._timeout)
            for change in self.store.since(after):
                yield change
                if isinstance(change, Gap):
                    self.counts.gaps += 1
                    return
                after = change.version
            if after == self.store.ledger.version:
                await self.store.news()

    async def sums(self) -> Mapping[str, Amount]:
        """The plane's own sums."""
        ledger = await self._ledger()
        return ledger.sums()

    async def leave(self) -> None:
        """Hand our bookings over and end the lease."""
        if self._closed or self.store.away or self.store.ledger.epoch != self._epoch:
            return
        self.store.ledger.leave(self.owner, now=self.store.now())
        self.store.publish()

    async def close(self) -> None:
        """Make every further call raise PlaneClosedError."""
        self._closed = True
        self.store.wake()


__all__ = ["Counts", "MemoryPlane"]
