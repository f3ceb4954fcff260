"""How a booking comes to stand: shared by book, select and reclaim."""

from __future__ import annotations

from dataclasses import replace

from stateplane.booking import Booked, Booking, Outcome, Owner, State, Status
from stateplane.ledger.entries import Attempts, Entry
from stateplane.ledger.register import Register


def bookable(register: Register, booking: Booking, at: int) -> tuple[Outcome | None, int]:
    """Why it cannot be booked (or that it stands already), else the term under which it can."""
    entry = register.entries.get(booking.id)
    if entry is not None:
        return _bookable_over(register, entry, booking, at)
    stone = register.tombstones.get(booking.id)
    if stone is None:
        return None, booking.term or 1
    ended = stone.entry.booking if stone.entry else None
    newer = ended is not None and (
        booking.term > ended.term or (booking.term == ended.term and booking.owner == ended.owner)
    )
    if ended is None or not newer or ended.superseded or booking.state is State.DRAINING:
        return Outcome(Status.GONE, cause=stone.cause), 0
    return None, booking.term + 1


def _bookable_over(register: Register, entry: Entry, booking: Booking, at: int) -> tuple[Outcome | None, int]:
    standing = register.settled(entry).booking
    shown = register.shown(entry, at)
    if booking.term > standing.term:
        register.remove(entry)
        return None, booking.term
    if standing.owner != booking.owner:
        return Outcome(Status.STALE, shown), 0
    if not booking.term or standing.state is State.ACTIVE:
        return Outcome(Status.SAME, shown), 0
    if standing.term > booking.term:
        return Outcome(Status.STALE, shown), 0
    if booking.state is State.DRAINING:
        return Outcome(Status.SAME, shown), 0
    if standing.superseded:
        return Outcome(Status.STALE, shown), 0
    register.remove(entry)
    return None, booking.term + 1


def place(
    register: Register, entry: Entry, at: int, *, again: bool = False, revived: bool = False
) -> Outcome:
    """Enter a booking that does not stand now; one booked again or revived keeps the attempt that it has."""
    superseded = _rank(register, entry, at, again=again, revived=revived)
    booking = entry.booking
    stone = register.tombstones.pop(booking.id, None)
    assert stone is None or stone.entry is not None
    register.entries[booking.id] = entry
    register.count(booking.worker, booking.amount)
    register.grant(booking.owner, at)
    if booking.state is State.ACTIVE:
        register.activate(entry, at)
    else:
        register.schedule(entry)
    return replace(register.done(entry, at), superseded=superseded)


def _rank(register: Register, entry: Entry, at: int, *, again: bool, revived: bool) -> tuple[str, ...]:
    """Give it its place among the attempts of its request key, and supersede or outrun the one before."""
    booking = entry.booking
    if not booking.key:
        entry.booking = booking if again or revived else replace(booking, attempt=1)
        return ()
    attempts = register.attempts.get(booking.key)
    attempt = booking.attempt if again or revived else (attempts.attempt + 1 if attempts else 1)
    if attempts is None:
        register.attempts[booking.key] = Attempts(booking.id, attempt, 1)
        entry.booking = replace(booking, attempt=attempt)
        return ()
    attempts.count += 1
    if attempts.latest != booking.id and (revived or (again and attempt <= attempts.attempt)):
        superseded = booking.superseded or booking.state is State.DRAINING
        entry.booking = replace(booking, attempt=attempt, outrun=True, superseded=superseded)
        return ()
    older = register.entries.get(attempts.latest)
    attempts.latest, attempts.attempt = booking.id, attempt
    entry.booking = replace(booking, attempt=attempt)
    return _outrun(register, older, at) if older is not None else ()


def _outrun(register: Register, older: Entry, at: int) -> tuple[str, ...]:
    standing = register.settled(older).booking
    if standing.superseded or standing.outrun:
        return ()
    draining = standing.state is State.DRAINING
    older.booking = replace(standing, superseded=draining, outrun=not draining)
    if draining:
        older.deadline = register.superseded_deadline(older.deadline, at)
        register.schedule(older)
    register.emit(Booked(register.next(), register.shown(older, at)))
    return (standing.id,) if draining else ()


def revive(register: Register, owner: Owner, booking_id: str, at: int) -> Outcome:
    """Proof of life of one that does not stand: it comes back unless its end was proven or it was superseded."""
    stone = register.tombstones.get(booking_id)
    if stone is None:
        return Outcome(Status.UNKNOWN)
    if stone.entry is None or stone.entry.booking.superseded:
        return Outcome(Status.GONE, cause=stone.cause)
    ended = stone.entry.booking
    again = replace(
        ended, owner=owner, term=ended.term + 1, op=0, state=State.ACTIVE, cause=None, drain_left=None
    )
    return place(register, Entry(again, 0), at, revived=True)


__all__ = ["bookable", "place", "revive"]
