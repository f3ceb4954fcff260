"""The operations on bookings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stateplane.booking import (
    NOTHING,
    PROVEN,
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Outcome,
    Owner,
    Rebooked,
    State,
    Status,
    Terms,
)
from stateplane.ledger.ending import finish, lapse, lapse_silent, reap, release_gone
from stateplane.ledger.entries import Entry
from stateplane.ledger.owned import leave_behind, owned
from stateplane.ledger.placing import bookable, place, revive
from stateplane.ledger.register import Register
from stateplane.servingtime import milliseconds

_UNLIMITED = 1 << 30


class Ledger(Register):
    """All bookings of one pool in one epoch, and the next epochs after ``restart``.

    ``now`` is always the server's clock in milliseconds. Changes gather in ``changes`` until taken.
    """

    # --- owners

    def join(self, owner: Owner, info: Mapping[str, str], *, now: int, limit: int = _UNLIMITED) -> Beat:
        """Become a member of the present epoch; the answer's version is where to take up the changes."""
        if owner not in self.leases:
            self.grant(owner, self.time.at(now), rebooked=False)
        return self.beat(owner, info, now=now, limit=limit)

    def beat(self, owner: Owner, info: Mapping[str, str], *, now: int, limit: int = _UNLIMITED) -> Beat:
        """Renew this owner's lease, lapse the silent, reap at most ``limit`` bookings that are due."""
        rebased = self.time.beat(now)
        at = self.time.last
        returned = owner not in self.leases
        lease = self.grant(owner, at)
        lease.until, lease.info = at + self.time.lease, dict(info)
        lapsed = () if self.time.holding else lapse_silent(self, at)
        reaped = reap(self, at, limit)
        return Beat(
            version=self.version,
            members=self.members(),
            lapsed=lapsed,
            reaped=reaped,
            rebased=rebased,
            returned=returned,
        )

    def reap(self, *, now: int, limit: int) -> int:
        """One more slice of what is due; less than ``limit``: no more is."""
        return reap(self, self.time.at(now), limit)

    def rebooked(self, owner: Owner, *, now: int) -> Outcome:
        """All live bookings of this owner stand in the present epoch."""
        lease = self.grant(owner, self.time.at(now))
        if lease.rebooked:
            return Outcome(Status.SAME, version=self.version)
        lease.rebooked = True
        return Outcome(Status.DONE, version=self.emit(Rebooked(self.next(), owner)))

    def leave(self, owner: Owner, *, now: int) -> None:
        """End the lease: what is active turns draining, handed over."""
        lease = self.leases.get(owner)
        if lease is not None:
            lapse(self, lease, self.time.at(now), Cause.HANDED)

    # --- bookings

    def book(self, owner: Owner, booking: Booking, *, now: int) -> Outcome:
        """Book; with a term: book again what the plane lost."""
        at = self.time.at(now)
        booking = replace(booking, owner=owner)
        drain_left = (
            self.rules.drain if booking.drain_left is None else min(booking.drain_left, self.rules.drain)
        )
        outcome, term = bookable(self, booking, at)
        if outcome is not None:
            return outcome
        again = booking.term > 0
        op = booking.op if again and term == booking.term else 0
        booking = replace(booking, term=term, op=op, drain_left=None)
        if not again or booking.state is State.ACTIVE:
            booking = replace(
                booking, state=State.ACTIVE, cause=None, superseded=False, outrun=again and booking.outrun
            )
        deadline = at + milliseconds(drain_left) if booking.state is State.DRAINING else 0
        return place(self, Entry(booking, 0, deadline), at, again=again)

    def select(
        self, owner: Owner, booking: Booking, candidates: Sequence[Candidate], terms: Terms, *, now: int
    ) -> Outcome:
        """Book on the cheapest candidate by the sums, the first of equals."""
        at = self.time.at(now)
        booking = replace(booking, owner=owner, term=0)
        outcome, _ = bookable(self, booking, at)
        if outcome is not None:
            return outcome
        best, lowest = None, float("inf")
        for one in candidates:
            booked = self.booked.get(one.worker, NOTHING)
            if one.max_requests and booked.requests + one.amount.requests > one.max_requests:
                continue
            price = one.base + terms.per_token * booked.prefill_tokens
            price = price + terms.per_block * booked.blocks
            price = price + terms.per_request * booked.requests
            if price < lowest:
                best, lowest = one, price
        if best is None:
            return Outcome(Status.FULL)
        return self.book(owner, replace(booking, worker=best.worker, amount=best.amount), now=now)

    def move(
        self, owner: Owner, booking_id: str, *, term: int, op: int, worker: str, amount: Amount, now: int
    ) -> Outcome:
        """Another worker serves it; what may still run on the first drains on as ``<id>~n``."""
        at = self.time.at(now)
        entry, refused = owned(self, owner, booking_id, term=term, op=op, at=at)
        if entry is None:
            return refused
        before = entry.booking
        if before.state is State.DRAINING:
            return Outcome(Status.STALE, self.shown(entry, at))
        if before.worker == worker:
            return Outcome(Status.SAME, self.shown(entry, at))
        leave_behind(self, before, at)
        self.count(worker, amount)
        entry.booking = replace(before, worker=worker, amount=amount, term=term + 1, op=0)
        entry.via = op
        return self.done(entry, at)

    def adjust(
        self, owner: Owner, booking_id: str, *, term: int, op: int, amount: Amount, now: int
    ) -> Outcome:
        """Set what it occupies."""
        at = self.time.at(now)
        entry, refused = owned(self, owner, booking_id, term=term, op=op, at=at)
        if entry is None:
            return refused
        self.count(entry.booking.worker, amount - entry.booking.amount)
        entry.booking = replace(entry.booking, amount=amount, op=op)
        return self.done(entry, at)

    def drain(
        self,
        owner: Owner,
        booking_id: str,
        *,
        term: int,
        op: int,
        cause: Cause,
        seconds: float | None = None,
        now: int,
    ) -> Outcome:
        """Count it on until its drain deadline, under a new term."""
        at = self.time.at(now)
        entry, refused = owned(self, owner, booking_id, term=term, op=op, at=at)
        if entry is None:
            return refused
        before = entry.booking
        deadline = at + milliseconds(self.rules.drain if seconds is None else seconds)
        superseded = before.superseded or before.outrun
        if before.superseded:
            deadline = min(deadline, entry.deadline)
        elif superseded:
            deadline = min(deadline, self.superseded_deadline(deadline, at))
        entry.booking = replace(
            before, term=term + 1, op=0, state=State.DRAINING, cause=cause, superseded=superseded
        )
        entry.via = op
        self.deactivate(entry, deadline)
        return self.done(entry, at)

    def reclaim(self, owner: Owner, booking_id: str, *, now: int) -> Outcome:
        """Proof of life, brought by this owner."""
        at = self.time.at(now)
        entry = self.entries.get(booking_id)
        if entry is None:
            return revive(self, owner, booking_id, at)
        standing = self.settled(entry).booking
        if standing.state is State.ACTIVE:
            status = Status.SAME if standing.owner == owner else Status.STALE
            return Outcome(status, self.shown(entry, at))
        if standing.superseded:
            entry.deadline = max(entry.deadline, at + self.superseded_drain())
            self.schedule(entry)
            return replace(self.done(entry, at), status=Status.SAME)
        entry.booking = replace(
            standing,
            owner=owner,
            term=standing.term + 1,
            op=0,
            state=State.ACTIVE,
            cause=None,
            drain_left=None,
        )
        entry.via = -1
        self.activate(entry, at)
        return self.done(entry, at)

    def release(self, booking_id: str, cause: Cause, *, term: int | None = None, now: int) -> Outcome:
        """End it: on proof in any term, by evidence only while it drains in the term that was judged."""
        at = self.time.at(now)
        entry = self.entries.get(booking_id)
        proven = cause in PROVEN
        if entry is None:
            return release_gone(self, booking_id, cause, at)
        standing = self.settled(entry).booking
        if not proven and (standing.state is State.ACTIVE or standing.term != term):
            return Outcome(Status.STALE, self.shown(entry, at))
        return Outcome(Status.DONE, cause=cause, version=finish(self, entry, cause, at))


__all__ = ["Ledger"]
