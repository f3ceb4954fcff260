"""What an owner's operation on its booking finds and leaves: shared by move, adjust and drain."""

from __future__ import annotations

from dataclasses import replace

from stateplane.booking import Booked, Booking, Cause, Outcome, Owner, State, Status
from stateplane.ledger.entries import Entry
from stateplane.ledger.register import Register


def owned(
    register: Register, owner: Owner, booking_id: str, *, term: int, op: int, at: int
) -> tuple[Entry | None, Outcome]:
    """The entry if this operation of its owner is the next one, else None and why not."""
    entry = register.entries.get(booking_id)
    if entry is None:
        stone = register.tombstones.get(booking_id)
        return None, Outcome(Status.GONE, cause=stone.cause) if stone else Outcome(Status.UNKNOWN)
    standing = register.settled(entry).booking
    if standing.owner == owner and standing.term == term and op > standing.op:
        return entry, Outcome(Status.DONE)
    same = standing.owner == owner and (
        (standing.term == term and op == standing.op)
        or (standing.term == term + 1 and op == entry.via and standing.op == 0)
    )
    return None, Outcome(Status.SAME if same else Status.STALE, register.shown(entry, at))


def leave_behind(register: Register, before: Booking, at: int) -> None:
    """It moves: what may still run on the worker before drains on as ``<id>~n``."""
    n = 1
    while f"{before.id}~{n}" in register.entries or f"{before.id}~{n}" in register.tombstones:
        n += 1
    left = replace(
        before,
        id=f"{before.id}~{n}",
        key="",
        term=1,
        op=0,
        state=State.DRAINING,
        cause=Cause.MOVED,
        superseded=True,
        outrun=False,
    )
    entry = Entry(left, 0, at + register.superseded_drain())
    register.entries[left.id] = entry
    register.schedule(entry)
    register.emit(Booked(register.next(), register.shown(entry, at)))


__all__ = ["leave_behind", "owned"]
