"""All that a ledger keeps, and how its parts are held in line with each other. It decides nothing."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Self

from stateplane.booking import (
    NOTHING,
    Amount,
    Booked,
    Booking,
    Cause,
    Change,
    Gone,
    Member,
    Outcome,
    Owner,
    OwnerLapsed,
    Rebooked,
    Rules,
    Snapshot,
    State,
    Status,
    Version,
)
from stateplane.ledger.entries import Attempts, Entry, Lapse, Lease, LedgerState, Tombstone
from stateplane.servingtime import ServingTime, milliseconds


class Register:
    """The bookings of one pool in one epoch. ``now`` is the server's clock, ``at`` serving time, in milliseconds."""

    def __init__(self, rules: Rules, *, now: int = 0, epoch: int = 1) -> None:
        self.rules = rules
        self.epoch = epoch
        self.number = 0
        self.changes: list[Change] = []
        self.time = ServingTime.begin(rules, now)
        self.lease_counter = 0
        self.tombstones: dict[str, Tombstone] = {}
        self.buried: list[tuple[int, str]] = []
        """Heap of tombstones' ends; an item whose tombstone says otherwise is void."""
        self.leases: dict[Owner, Lease] = {}
        self._forget_bookings()

    def _forget_bookings(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.booked: dict[str, Amount] = {}
        self.attempts: dict[str, Attempts] = {}
        self.due: list[tuple[int, str]] = []
        """Heap of drain deadlines; an item whose entry says otherwise is void."""
        self.active: dict[int, set[str]] = {}
        """Ids of active bookings by lease, those that a lapse already turned draining among them."""
        self.lapses: dict[int, Lapse] = {}

    # --- as a whole

    def state(self) -> LedgerState:
        """Everything that decides what comes."""
        return LedgerState(
            rules=self.rules,
            epoch=self.epoch,
            number=self.number,
            time=self.time,
            lease_counter=self.lease_counter,
            leases=list(self.leases.values()),
            lapses=self.lapses,
            entries=list(self.entries.values()),
            attempts=self.attempts,
            tombstones=self.tombstones,
        )

    @classmethod
    def of(cls, state: LedgerState) -> Self:
        """One that does from here on, call for call, what the one that the state was taken of does."""
        made = cls(state.rules, epoch=state.epoch)
        made.number, made.time = state.number, state.time
        made.lease_counter = state.lease_counter
        made.leases = {lease.owner: lease for lease in state.leases}
        made.lapses, made.attempts = state.lapses, state.attempts
        made.tombstones = state.tombstones
        made.buried = [(stone.until, booking_id) for booking_id, stone in state.tombstones.items()]
        heapq.heapify(made.buried)
        for entry in state.entries:
            booking = entry.booking
            made.entries[booking.id] = entry
            made.count(booking.worker, booking.amount)
            if booking.state is State.ACTIVE:
                made.active.setdefault(entry.lease, set()).add(booking.id)
            else:
                made.schedule(entry)
        return made

    def restart(self, *, now: int, lose: bool) -> None:
        """Begin a new epoch. Bookings are void until their owners book them again; ``lose``: so is all else."""
        self.epoch += 1
        self.number = 0
        self.changes.clear()
        self._forget_bookings()
        if lose:
            self.tombstones, self.buried, self.leases = {}, [], {}
            self.time = ServingTime.begin(self.rules, now)
            return
        for lease in self.leases.values():
            lease.rebooked = False
        self.time.restart(now)

    @property
    def version(self) -> Version:
        """The latest change, or the beginning of the epoch."""
        return Version(self.epoch, self.number)

    def take(self) -> list[Change]:
        """Hand over the changes since the last call."""
        taken, self.changes = self.changes, []
        return taken

    def sums(self) -> dict[str, Amount]:
        """Booked per worker; a worker without bookings is absent."""
        return dict(self.booked)

    def snapshot(self, *, now: int) -> Snapshot:
        """The whole picture at the present version; looking at it changes nothing, not even the order of what comes."""
        at = self.time.at(now)
        bookings = tuple(self.shown(self.seen(entry), at) for entry in self.entries.values())
        return Snapshot(version=self.version, bookings=bookings, members=self.members())

    def members(self) -> tuple[Member, ...]:
        """Owners whose lease stands."""
        return tuple(Member(lease.owner, lease.info, lease.rebooked) for lease in self.leases.values())

    # --- its parts

    def grant(self, owner: Owner, at: int, *, rebooked: bool = True) -> Lease:
        """The owner's lease, a new one where it has none."""
        lease = self.leases.get(owner)
        if lease is None:
            self.lease_counter += 1
            lease = Lease(self.lease_counter, owner, at + self.time.lease, rebooked=rebooked)
            self.leases[owner] = lease
        return lease

    def count(self, worker: str, amount: Amount) -> None:
        """So much more is booked there."""
        total = self.booked.get(worker, NOTHING) + amount
        if total == NOTHING:
            self.booked.pop(worker, None)
        else:
            self.booked[worker] = total

    def remove(self, entry: Entry) -> None:
        """It stands no longer."""
        booking = entry.booking
        del self.entries[booking.id]
        self.active.get(entry.lease, set()).discard(booking.id)
        self.count(booking.worker, NOTHING - booking.amount)
        attempts = self.attempts.get(booking.key)
        if attempts is not None:
            attempts.count -= 1
            if not attempts.count:
                del self.attempts[booking.key]

    def bury(self, booking_id: str, cause: Cause, entry: Entry | None, at: int) -> None:
        """Remember its end for a while."""
        until = at + milliseconds(self.rules.tombstone)
        self.tombstones[booking_id] = Tombstone(cause, until, entry)
        heapq.heappush(self.buried, (until, booking_id))

    def activate(self, entry: Entry, at: int) -> None:
        """It is active under its owner's present lease."""
        self.active.get(entry.lease, set()).discard(entry.booking.id)
        entry.lease = self.grant(entry.booking.owner, at).number
        entry.deadline = 0
        self.active.setdefault(entry.lease, set()).add(entry.booking.id)

    def deactivate(self, entry: Entry, deadline: int) -> None:
        """It drains until then."""
        self.active.get(entry.lease, set()).discard(entry.booking.id)
        entry.deadline = deadline
        self.schedule(entry)

    def schedule(self, entry: Entry) -> None:
        """It goes at its deadline."""
        heapq.heappush(self.due, (entry.deadline, entry.booking.id))

    def seen(self, entry: Entry) -> Entry:
        """The entry with what its owner's lapse already said about it; itself where there was none."""
        booking = entry.booking
        lapse = self.lapses.get(entry.lease) if booking.state is State.ACTIVE else None
        if lapse is None:
            return entry
        superseded = booking.superseded or booking.outrun
        booking = replace(booking, state=State.DRAINING, cause=lapse.cause, superseded=superseded)
        return Entry(booking, entry.lease, lapse.deadline, entry.via)

    def settled(self, entry: Entry) -> Entry:
        """Write into the entry what its owner's lapse already said about it."""
        seen = self.seen(entry)
        if seen is not entry:
            entry.booking = seen.booking
            self.deactivate(entry, seen.deadline)
        return entry

    def superseded_drain(self) -> int:
        """How long a superseded booking drains at least, milliseconds."""
        own = self.rules.superseded_drain
        return milliseconds(self.rules.drain if own is None else own)

    def superseded_deadline(self, deadline: int, at: int) -> int:
        """When one goes that is superseded now and would go at that deadline else."""
        own = self.rules.superseded_drain
        return deadline if own is None else min(deadline, at + milliseconds(own))

    # --- what is told

    def shown(self, entry: Entry, at: int) -> Booking:
        """The booking with what is left of its time."""
        if entry.booking.state is State.ACTIVE:
            return entry.booking
        return replace(entry.booking, drain_left=max(0, entry.deadline - at) / 1000)

    def done(self, entry: Entry, at: int) -> Outcome:
        """It stands anew: announce it."""
        shown = self.shown(entry, at)
        return Outcome(Status.DONE, shown, version=self.emit(Booked(self.next(), shown)))

    def next(self) -> Version:
        """The version of the change to come."""
        return Version(self.epoch, self.number + 1)

    def emit(self, change: Booked | Gone | OwnerLapsed | Rebooked) -> Version:
        """Announce a change of the ``next`` version."""
        self.number = change.version.number
        self.changes.append(change)
        return change.version
