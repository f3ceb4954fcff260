"""How bookings end, one by one or with their owner: shared by release, beat, reap and leave."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from stateplane.booking import PROVEN, Cause, Gone, Outcome, Owner, OwnerLapsed, State, Status, Version
from stateplane.ledger.entries import Entry, Lapse, Lease
from stateplane.ledger.register import Register
from stateplane.servingtime import milliseconds


def finish(register: Register, entry: Entry, cause: Cause, at: int) -> Version:
    """It is gone."""
    register.remove(entry)
    register.bury(entry.booking.id, cause, None if cause in PROVEN else entry, at)
    return register.emit(Gone(register.next(), entry.booking.id, cause))


def release_gone(register: Register, booking_id: str, cause: Cause, at: int) -> Outcome:
    """An end of one that does not stand: a proven one is remembered, for its book may still come."""
    stone = register.tombstones.get(booking_id)
    if cause not in PROVEN:
        return Outcome(Status.GONE, cause=stone.cause) if stone else Outcome(Status.UNKNOWN)
    if stone is None:
        register.bury(booking_id, cause, None, at)
        return Outcome(Status.UNKNOWN, cause=cause)
    if stone.entry is None:
        return Outcome(Status.SAME, cause=stone.cause)
    register.bury(booking_id, cause, None, at)
    return Outcome(Status.DONE, cause=cause)


def lapse(register: Register, lease: Lease, at: int, cause: Cause) -> None:
    """All that is active under the lease turns draining by this one change."""
    del register.leases[lease.owner]
    if register.active.get(lease.number):
        register.lapses[lease.number] = Lapse(at + milliseconds(register.rules.drain), cause)
    register.emit(OwnerLapsed(register.next(), lease.owner, register.rules.drain, cause))


def lapse_silent(register: Register, at: int) -> tuple[Owner, ...]:
    """The leases that have run out fall; their owners."""
    silent = [lease for lease in register.leases.values() if lease.until <= at]
    for lease in silent:
        lapse(register, lease, at, Cause.LEASE)
    return tuple(lease.owner for lease in silent)


def reap(register: Register, at: int, limit: int) -> int:
    """End at most so many bookings that are due, and forget the tombstones that are; how many ended."""
    reaped = 0
    for entry in _overdue(register, at):
        if reaped >= limit:
            break
        finish(register, entry, Cause.DEADLINE, at)
        reaped += 1
    while register.buried and register.buried[0][0] <= at:
        until, booking_id = heapq.heappop(register.buried)
        stone = register.tombstones.get(booking_id)
        if stone is not None and stone.until == until:
            del register.tombstones[booking_id]
    return reaped


def _overdue(register: Register, at: int) -> Iterator[Entry]:
    for number, fallen in list(register.lapses.items()):
        if fallen.deadline <= at:
            for booking_id in sorted(register.active.get(number, ())):
                yield register.settled(register.entries[booking_id])
            del register.lapses[number]
            register.active.pop(number, None)
    while register.due and register.due[0][0] <= at:
        deadline, booking_id = register.due[0]
        entry = register.entries.get(booking_id)
        if entry is not None and entry.booking.state is State.DRAINING and entry.deadline == deadline:
            yield entry
        heapq.heappop(register.due)


__all__ = ["finish", "lapse", "lapse_silent", "reap", "release_gone"]
