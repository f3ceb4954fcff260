"""The life of a booking. Pure: server time comes in as milliseconds, outcomes and changes come out.

This is the model that every backend is compared with. A booking is active, draining or gone; one that is gone leaves a
tombstone. Who may do what is decided by terms and operation numbers, never by the order of arrival:

* a proven end is final in any term, from any replica, even before its book;
* the owner's operations carry the term and rise in number inside it; book, move, drain and reclaim begin a new term;
* an owner's silence turns all its active bookings draining in one change: not they are written, but its lapse is;
* a superseded booking is never reclaimed nor adopted, only prolonged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stateplane.booking import (
    NOTHING,
    PROVEN,
    Amount,
    Beat,
    Booked,
    Booking,
    Candidate,
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
    Terms,
    Version,
)
from stateplane.servingtime import ServingTime, milliseconds

_UNLIMITED = 1 << 30


@dataclass(slots=True)
class _Entry:
    booking: Booking
    lease: int
    deadline: int = 0
    """Serving time at which a draining booking goes."""
    via: int = -1
    """Number of the owner's operation that began the present term, by which its repetition is known."""


@dataclass(slots=True)
class _Lease:
    """One uninterrupted stretch of an owner's heartbeats, with what was booked under it and is still active."""

    number: int
    owner: Owner
    until: int
    info: Mapping[str, str] = field(default_factory=dict)
    rebooked: bool = True


@dataclass(slots=True)
class _Lapse:
    deadline: int
    cause: Cause


@dataclass(slots=True)
class _Tombstone:
    cause: Cause
    until: int
    entry: _Entry | None
    """What proof of life may bring back; None after a proven end."""


@dataclass(slots=True)
class _Attempts:
    """Bookings of one request key that are known together. All but the latest are outrun or superseded already."""

    latest: str
    attempt: int
    count: int


@dataclass(slots=True)
class LedgerState:
    """A ledger as one value that can be stored. It shares its parts with the ledger: encode it before the next call."""

    rules: Rules
    epoch: int
    number: int
    time: ServingTime
    lease_counter: int
    leases: list[_Lease]
    lapses: dict[int, _Lapse]
    entries: list[_Entry]
    attempts: dict[str, _Attempts]
    tombstones: dict[str, _Tombstone]


class Ledger:
    """All bookings of one pool in one epoch, and the next epochs after ``restart``.

    ``now`` is always the server's clock in milliseconds. Changes gather in ``changes`` until taken.
    """

    def __init__(self, rules: Rules, *, now: int = 0, epoch: int = 1) -> None:
        self.rules = rules
        self.epoch = epoch
        self.number = 0
        self.changes: list[Change] = []
        self.time = ServingTime.begin(rules, now)
        self._lease_counter = 0
        self._tombstones: dict[str, _Tombstone] = {}
        self._buried: list[tuple[int, str]] = []
        self._leases: dict[Owner, _Lease] = {}
        self._forget_bookings()

    def _forget_bookings(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._sums: dict[str, Amount] = {}
        self._attempts: dict[str, _Attempts] = {}
        self._due: list[tuple[int, str]] = []
        self._active: dict[int, set[str]] = {}
        self._lapses: dict[int, _Lapse] = {}

    # --- the plane's own life

    def state(self) -> LedgerState:
        """Everything that decides what comes."""
        return LedgerState(
            rules=self.rules,
            epoch=self.epoch,
            number=self.number,
            time=self.time,
            lease_counter=self._lease_counter,
            leases=list(self._leases.values()),
            lapses=self._lapses,
            entries=list(self._entries.values()),
            attempts=self._attempts,
            tombstones=self._tombstones,
        )

    @classmethod
    def of(cls, state: LedgerState) -> Ledger:
        """A ledger that does from here on, call for call, what the one that the state was taken of does."""
        ledger = cls(state.rules, epoch=state.epoch)
        ledger.number, ledger.time = state.number, state.time
        ledger._lease_counter = state.lease_counter
        ledger._leases = {lease.owner: lease for lease in state.leases}
        ledger._lapses, ledger._attempts = state.lapses, state.attempts
        ledger._tombstones = state.tombstones
        ledger._buried = [(stone.until, booking_id) for booking_id, stone in state.tombstones.items()]
        heapq.heapify(ledger._buried)
        for entry in state.entries:
            booking = entry.booking
            ledger._entries[booking.id] = entry
            ledger._count(booking.worker, booking.amount)
            if booking.state is State.ACTIVE:
                ledger._active.setdefault(entry.lease, set()).add(booking.id)
            else:
                ledger._schedule(entry)
        return ledger

    def restart(self, *, now: int, lose: bool) -> None:
        """Begin a new epoch. Bookings are void until their owners book them again; ``lose``: so is all else."""
        self.epoch += 1
        self.number = 0
        self.changes.clear()
        self._forget_bookings()
        if lose:
            self._tombstones, self._buried, self._leases = {}, [], {}
            self.time = ServingTime.begin(self.rules, now)
            return
        for lease in self._leases.values():
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
        return dict(self._sums)

    def snapshot(self, *, now: int) -> Snapshot:
        """The whole picture at the present version; looking at it changes nothing, not even the order of what comes."""
        at = self.time.at(now)
        bookings = tuple(self._shown(self._seen(entry), at) for entry in self._entries.values())
        return Snapshot(version=self.version, bookings=bookings, members=self.members())

    def members(self) -> tuple[Member, ...]:
        """Owners whose lease stands."""
        return tuple(Member(lease.owner, lease.info, lease.rebooked) for lease in self._leases.values())

    # --- owners

    def join(self, owner: Owner, info: Mapping[str, str], *, now: int, limit: int = _UNLIMITED) -> Beat:
        """Become a member of the present epoch; the answer's version is where to take up the changes."""
        if owner not in self._leases:
            self._grant(owner, self.time.at(now), rebooked=False)
        return self.beat(owner, info, now=now, limit=limit)

    def beat(self, owner: Owner, info: Mapping[str, str], *, now: int, limit: int = _UNLIMITED) -> Beat:
        """Renew this owner's lease, lapse the silent, reap at most ``limit`` bookings that are due."""
        rebased = self.time.beat(now)
        at = self.time.last
        returned = owner not in self._leases
        lease = self._grant(owner, at)
        lease.until, lease.info = at + self.time.lease, dict(info)
        lapsed = () if self.time.holding else self._lapse_silent(at)
        reaped = self._reap(at, limit)
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
        return self._reap(self.time.at(now), limit)

    def rebooked(self, owner: Owner, *, now: int) -> Outcome:
        """All live bookings of this owner stand in the present epoch."""
        lease = self._grant(owner, self.time.at(now))
        if lease.rebooked:
            return Outcome(Status.SAME, version=self.version)
        lease.rebooked = True
        return Outcome(Status.DONE, version=self._emit(Rebooked(self._next(), owner)))

    def leave(self, owner: Owner, *, now: int) -> None:
        """End the lease: what is active turns draining, handed over."""
        lease = self._leases.get(owner)
        if lease is not None:
            self._lapse(lease, self.time.at(now), Cause.HANDED)

    def _grant(self, owner: Owner, at: int, *, rebooked: bool = True) -> _Lease:
        lease = self._leases.get(owner)
        if lease is None:
            self._lease_counter += 1
            lease = _Lease(self._lease_counter, owner, at + self.time.lease, rebooked=rebooked)
            self._leases[owner] = lease
        return lease

    def _lapse_silent(self, at: int) -> tuple[Owner, ...]:
        silent = [lease for lease in self._leases.values() if lease.until <= at]
        for lease in silent:
            self._lapse(lease, at, Cause.LEASE)
        return tuple(lease.owner for lease in silent)

    def _lapse(self, lease: _Lease, at: int, cause: Cause) -> None:
        del self._leases[lease.owner]
        if self._active.get(lease.number):
            self._lapses[lease.number] = _Lapse(at + milliseconds(self.rules.drain), cause)
        self._emit(OwnerLapsed(self._next(), lease.owner, self.rules.drain, cause))

    # --- bookings

    def book(self, owner: Owner, booking: Booking, *, now: int) -> Outcome:
        """Book; with a term: book again what the plane lost."""
        at = self.time.at(now)
        booking = replace(booking, owner=owner)
        drain_left = (
            self.rules.drain if booking.drain_left is None else min(booking.drain_left, self.rules.drain)
        )
        outcome, term = self._bookable(booking, at)
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
        return self._place(_Entry(booking, 0, deadline), at, again=again)

    def select(
        self, owner: Owner, booking: Booking, candidates: Sequence[Candidate], terms: Terms, *, now: int
    ) -> Outcome:
        """Book on the cheapest candidate by the sums, the first of equals."""
        at = self.time.at(now)
        booking = replace(booking, owner=owner, term=0)
        outcome, _ = self._bookable(booking, at)
        if outcome is not None:
            return outcome
        best, lowest = None, float("inf")
        for one in candidates:
            booked = self._sums.get(one.worker, NOTHING)
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

    def _bookable(self, booking: Booking, at: int) -> tuple[Outcome | None, int]:
        """Why it cannot be booked (or that it stands already), else the term under which it can."""
        entry = self._entries.get(booking.id)
        if entry is not None:
            return self._bookable_over(entry, booking, at)
        stone = self._tombstones.get(booking.id)
        if stone is None:
            return None, booking.term or 1
        ended = stone.entry.booking if stone.entry else None
        newer = ended is not None and (
            booking.term > ended.term or (booking.term == ended.term and booking.owner == ended.owner)
        )
        if ended is None or not newer or ended.superseded or booking.state is State.DRAINING:
            return Outcome(Status.GONE, cause=stone.cause), 0
        return None, booking.term + 1

    def _bookable_over(self, entry: _Entry, booking: Booking, at: int) -> tuple[Outcome | None, int]:
        standing = self._settled(entry).booking
        shown = self._shown(entry, at)
        if booking.term > standing.term:
            self._remove(entry)
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
        self._remove(entry)
        return None, booking.term + 1

    def move(
        self, owner: Owner, booking_id: str, *, term: int, op: int, worker: str, amount: Amount, now: int
    ) -> Outcome:
        """Another worker serves it; what may still run on the first drains on as ``<id>~n``."""
        at = self.time.at(now)
        entry, refused = self._owned(owner, booking_id, term, op, at)
        if entry is None:
            return refused
        before = entry.booking
        if before.state is State.DRAINING:
            return Outcome(Status.STALE, self._shown(entry, at))
        if before.worker == worker:
            return Outcome(Status.SAME, self._shown(entry, at))
        self._leave_behind(before, at)
        self._count(worker, amount)
        entry.booking = replace(before, worker=worker, amount=amount, term=term + 1, op=0)
        entry.via = op
        return self._done(entry, at)

    def _leave_behind(self, before: Booking, at: int) -> None:
        n = 1
        while f"{before.id}~{n}" in self._entries or f"{before.id}~{n}" in self._tombstones:
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
        entry = _Entry(left, 0, at + self._superseded_drain())
        self._entries[left.id] = entry
        self._schedule(entry)
        self._emit(Booked(self._next(), self._shown(entry, at)))

    def adjust(
        self, owner: Owner, booking_id: str, *, term: int, op: int, amount: Amount, now: int
    ) -> Outcome:
        """Set what it occupies."""
        at = self.time.at(now)
        entry, refused = self._owned(owner, booking_id, term, op, at)
        if entry is None:
            return refused
        self._count(entry.booking.worker, amount - entry.booking.amount)
        entry.booking = replace(entry.booking, amount=amount, op=op)
        return self._done(entry, at)

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
        entry, refused = self._owned(owner, booking_id, term, op, at)
        if entry is None:
            return refused
        before = entry.booking
        deadline = at + milliseconds(self.rules.drain if seconds is None else seconds)
        superseded = before.superseded or before.outrun
        if before.superseded:
            deadline = min(deadline, entry.deadline)
        elif superseded:
            deadline = min(deadline, self._superseded_deadline(deadline, at))
        entry.booking = replace(
            before, term=term + 1, op=0, state=State.DRAINING, cause=cause, superseded=superseded
        )
        entry.via = op
        self._deactivate(entry, deadline)
        return self._done(entry, at)

    def reclaim(self, owner: Owner, booking_id: str, *, now: int) -> Outcome:
        """Proof of life, brought by this owner."""
        at = self.time.at(now)
        entry = self._entries.get(booking_id)
        if entry is None:
            return self._revive(owner, booking_id, at)
        standing = self._settled(entry).booking
        if standing.state is State.ACTIVE:
            status = Status.SAME if standing.owner == owner else Status.STALE
            return Outcome(status, self._shown(entry, at))
        if standing.superseded:
            entry.deadline = max(entry.deadline, at + self._superseded_drain())
            self._schedule(entry)
            return replace(self._done(entry, at), status=Status.SAME)
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
        self._activate(entry, at)
        return self._done(entry, at)

    def _revive(self, owner: Owner, booking_id: str, at: int) -> Outcome:
        stone = self._tombstones.get(booking_id)
        if stone is None:
            return Outcome(Status.UNKNOWN)
        if stone.entry is None or stone.entry.booking.superseded:
            return Outcome(Status.GONE, cause=stone.cause)
        ended = stone.entry.booking
        again = replace(
            ended, owner=owner, term=ended.term + 1, op=0, state=State.ACTIVE, cause=None, drain_left=None
        )
        return self._place(_Entry(again, 0), at, revived=True)

    def release(self, booking_id: str, cause: Cause, *, term: int | None = None, now: int) -> Outcome:
        """End it: on proof in any term, by evidence only while it drains in the term that was judged."""
        at = self.time.at(now)
        entry = self._entries.get(booking_id)
        proven = cause in PROVEN
        if entry is None:
            return self._release_gone(booking_id, cause, at)
        standing = self._settled(entry).booking
        if not proven and (standing.state is State.ACTIVE or standing.term != term):
            return Outcome(Status.STALE, self._shown(entry, at))
        return Outcome(Status.DONE, cause=cause, version=self._finish(entry, cause, at))

    def _release_gone(self, booking_id: str, cause: Cause, at: int) -> Outcome:
        stone = self._tombstones.get(booking_id)
        if cause not in PROVEN:
            return Outcome(Status.GONE, cause=stone.cause) if stone else Outcome(Status.UNKNOWN)
        if stone is None:
            self._bury(booking_id, cause, None, at)
            return Outcome(Status.UNKNOWN, cause=cause)
        if stone.entry is None:
            return Outcome(Status.SAME, cause=stone.cause)
        self._bury(booking_id, cause, None, at)
        return Outcome(Status.DONE, cause=cause)

    # --- the parts of an operation

    def _owned(
        self, owner: Owner, booking_id: str, term: int, op: int, at: int
    ) -> tuple[_Entry | None, Outcome]:
        """The entry if this operation of its owner is the next one, else None and why not."""
        entry = self._entries.get(booking_id)
        if entry is None:
            stone = self._tombstones.get(booking_id)
            return None, Outcome(Status.GONE, cause=stone.cause) if stone else Outcome(Status.UNKNOWN)
        standing = self._settled(entry).booking
        if standing.owner == owner and standing.term == term and op > standing.op:
            return entry, Outcome(Status.DONE)
        same = standing.owner == owner and (
            (standing.term == term and op == standing.op)
            or (standing.term == term + 1 and op == entry.via and standing.op == 0)
        )
        return None, Outcome(Status.SAME if same else Status.STALE, self._shown(entry, at))

    def _seen(self, entry: _Entry) -> _Entry:
        """The entry with what its owner's lapse already said about it; itself where there was none."""
        booking = entry.booking
        lapse = self._lapses.get(entry.lease) if booking.state is State.ACTIVE else None
        if lapse is None:
            return entry
        superseded = booking.superseded or booking.outrun
        booking = replace(booking, state=State.DRAINING, cause=lapse.cause, superseded=superseded)
        return _Entry(booking, entry.lease, lapse.deadline, entry.via)

    def _settled(self, entry: _Entry) -> _Entry:
        """Write into the entry what its owner's lapse already said about it."""
        seen = self._seen(entry)
        if seen is not entry:
            entry.booking = seen.booking
            self._deactivate(entry, seen.deadline)
        return entry

    def _place(self, entry: _Entry, at: int, *, again: bool = False, revived: bool = False) -> Outcome:
        """Enter a booking that does not stand now; one booked again or revived keeps the attempt that it has."""
        superseded = self._rank(entry, at, again=again, revived=revived)
        booking = entry.booking
        stone = self._tombstones.pop(booking.id, None)
        assert stone is None or stone.entry is not None
        self._entries[booking.id] = entry
        self._count(booking.worker, booking.amount)
        self._grant(booking.owner, at)
        if booking.state is State.ACTIVE:
            self._activate(entry, at)
        else:
            self._schedule(entry)
        return replace(self._done(entry, at), superseded=superseded)

    def _rank(self, entry: _Entry, at: int, *, again: bool, revived: bool) -> tuple[str, ...]:
        """Give it its place among the attempts of its request key, and supersede or outrun the one before."""
        booking = entry.booking
        if not booking.key:
            entry.booking = booking if again or revived else replace(booking, attempt=1)
            return ()
        attempts = self._attempts.get(booking.key)
        attempt = booking.attempt if again or revived else (attempts.attempt + 1 if attempts else 1)
        if attempts is None:
            self._attempts[booking.key] = _Attempts(booking.id, attempt, 1)
            entry.booking = replace(booking, attempt=attempt)
            return ()
        attempts.count += 1
        if attempts.latest != booking.id and (revived or (again and attempt <= attempts.attempt)):
            superseded = booking.superseded or booking.state is State.DRAINING
            entry.booking = replace(booking, attempt=attempt, outrun=True, superseded=superseded)
            return ()
        older = self._entries.get(attempts.latest)
        attempts.latest, attempts.attempt = booking.id, attempt
        entry.booking = replace(booking, attempt=attempt)
        return self._outrun(older, at) if older is not None else ()

    def _outrun(self, older: _Entry, at: int) -> tuple[str, ...]:
        standing = self._settled(older).booking
        if standing.superseded or standing.outrun:
            return ()
        draining = standing.state is State.DRAINING
        older.booking = replace(standing, superseded=draining, outrun=not draining)
        if draining:
            older.deadline = self._superseded_deadline(older.deadline, at)
            self._schedule(older)
        self._emit(Booked(self._next(), self._shown(older, at)))
        return (standing.id,) if draining else ()

    def _remove(self, entry: _Entry) -> None:
        booking = entry.booking
        del self._entries[booking.id]
        self._active.get(entry.lease, set()).discard(booking.id)
        self._count(booking.worker, NOTHING - booking.amount)
        attempts = self._attempts.get(booking.key)
        if attempts is not None:
            attempts.count -= 1
            if not attempts.count:
                del self._attempts[booking.key]

    def _finish(self, entry: _Entry, cause: Cause, at: int) -> Version:
        self._remove(entry)
        self._bury(entry.booking.id, cause, None if cause in PROVEN else entry, at)
        return self._emit(Gone(self._next(), entry.booking.id, cause))

    def _bury(self, booking_id: str, cause: Cause, entry: _Entry | None, at: int) -> None:
        until = at + milliseconds(self.rules.tombstone)
        self._tombstones[booking_id] = _Tombstone(cause, until, entry)
        heapq.heappush(self._buried, (until, booking_id))

    def _count(self, worker: str, amount: Amount) -> None:
        total = self._sums.get(worker, NOTHING) + amount
        if total == NOTHING:
            self._sums.pop(worker, None)
        else:
            self._sums[worker] = total

    def _activate(self, entry: _Entry, at: int) -> None:
        self._active.get(entry.lease, set()).discard(entry.booking.id)
        entry.lease = self._grant(entry.booking.owner, at).number
        entry.deadline = 0
        self._active.setdefault(entry.lease, set()).add(entry.booking.id)

    def _deactivate(self, entry: _Entry, deadline: int) -> None:
        self._active.get(entry.lease, set()).discard(entry.booking.id)
        entry.deadline = deadline
        self._schedule(entry)

    def _schedule(self, entry: _Entry) -> None:
        heapq.heappush(self._due, (entry.deadline, entry.booking.id))

    def _reap(self, at: int, limit: int) -> int:
        reaped = 0
        for entry in self._overdue(at):
            if reaped >= limit:
                break
            self._finish(entry, Cause.DEADLINE, at)
            reaped += 1
        while self._buried and self._buried[0][0] <= at:
            until, booking_id = heapq.heappop(self._buried)
            stone = self._tombstones.get(booking_id)
            if stone is not None and stone.until == until:
                del self._tombstones[booking_id]
        return reaped

    def _overdue(self, at: int) -> Iterator[_Entry]:
        for number, lapse in list(self._lapses.items()):
            if lapse.deadline <= at:
                for booking_id in sorted(self._active.get(number, ())):
                    yield self._settled(self._entries[booking_id])
                del self._lapses[number]
                self._active.pop(number, None)
        while self._due and self._due[0][0] <= at:
            deadline, booking_id = self._due[0]
            entry = self._entries.get(booking_id)
            if entry is not None and entry.booking.state is State.DRAINING and entry.deadline == deadline:
                yield entry
            heapq.heappop(self._due)

    def _superseded_drain(self) -> int:
        own = self.rules.superseded_drain
        return milliseconds(self.rules.drain if own is None else own)

    def _superseded_deadline(self, deadline: int, at: int) -> int:
        own = self.rules.superseded_drain
        return deadline if own is None else min(deadline, at + milliseconds(own))

    def _shown(self, entry: _Entry, at: int) -> Booking:
        if entry.booking.state is State.ACTIVE:
            return entry.booking
        return replace(entry.booking, drain_left=max(0, entry.deadline - at) / 1000)

    def _done(self, entry: _Entry, at: int) -> Outcome:
        shown = self._shown(entry, at)
        return Outcome(Status.DONE, shown, version=self._emit(Booked(self._next(), shown)))

    def _next(self) -> Version:
        return Version(self.epoch, self.number + 1)

    def _emit(self, change: Booked | Gone | OwnerLapsed | Rebooked) -> Version:
        self.number = change.version.number
        self.changes.append(change)
        return change.version
