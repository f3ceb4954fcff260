"""What one replica says of bookings, and what the plane answers. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from stateplane.booking import NOTHING, PROVEN, Amount, Booking, Cause, Outcome, State, Status
from stateplane.calls import Call, Move
from stateplane.claim import Claim, Want, next_call
from stateplane.table import FRUITLESS_MOST, Table


class Claims:
    """The verbs of the pick path and of the sender, over the table. Nothing here raises on what a client may cause."""

    def __init__(self, table: Table) -> None:
        self._table = table

    # what the pick path says

    def book(self, booking_id: str, *, key: str, worker: str, amount: Amount, now: float) -> Booking:
        """Record it; it counts from here on. The same id again changes nothing."""
        if (standing := self._table.claims.get(booking_id)) is not None:
            self._table.counts.repeated += 1
            return standing.face(now)
        known = self._table.view.by_key(key)
        attempt = 1 + max(booking.attempt for booking in known) if known else 1
        booking = Booking(booking_id, key, worker, self._table.owner, amount, attempt)
        claim = Claim(self._table.owner, booking, begun=now)
        self._table.counts.booked += 1
        self._table.begin(claim, now)
        return booking

    def selected(self, booking: Booking, outcome: Outcome, *, began: float, now: float) -> None:
        """The plane chose and booked it: it is known there, and counts here although the feed has yet to bring it."""
        table = self._table
        claim = Claim(table.owner, booking, asked=True, begun=began)
        table.counts.booked += 1
        self._count(outcome.status)
        if outcome.version is not None and outcome.version.epoch == table.view.version.epoch:
            claim.stands(booking, outcome.version)
        else:  # it was booked in an epoch that is over: book it again
            table.owed.add(claim.id)
        table.add(claim)
        table.overlay.lay(claim.face(now), now)
        table.touch(claim, now)

    def adjust(self, booking_id: str, amount: Amount, now: float) -> None:
        """It occupies so much now."""
        claim = self._mine(booking_id)
        if claim is not None:
            claim.occupies(amount)
            self._table.touch(claim, now)

    def serve(self, booking_id: str, worker: str, amount: Amount, now: float) -> None:
        """That worker served; what may still run on the one before counts there until its drain deadline."""
        claim = self._mine(booking_id)
        if claim is None:
            return
        before = claim.face(now)
        if claim.went(worker, amount):
            self._table.counts.moved += 1
            self._table.echo(before, now)
        self._table.touch(claim, now)

    def lose(self, booking_id: str, cause: Cause, now: float, seconds: float | None = None) -> None:
        """Neither its end nor its life is proven: it counts on, for ``seconds`` at most."""
        claim = self._mine(booking_id)
        if claim is None or claim.want is Want.DRAINING:
            return
        self._table.counts.lost += 1
        claim.want, claim.cause = Want.DRAINING, cause
        claim.deadline = now + (self._table.rules.drain if seconds is None else seconds)
        self._table.touch(claim, now)

    def end(self, booking_id: str, cause: Cause, now: float) -> None:
        """It is over, whoever owns it."""
        claim = self._table.claims.get(booking_id)
        if claim is None:
            if booking_id in self._table.ended:
                self._table.counts.repeated += 1
                return
            claim = self._foreign(booking_id)
            claim.judged = claim.booking.term
        elif claim.want is Want.ENDED and (cause not in PROVEN or claim.cause in PROVEN):
            self._table.counts.repeated += 1
            return
        self._table.counts.ended += 1
        self._table.counts.cancelled += self._table.shared and not claim.asked
        claim.want, claim.cause, claim.over = Want.ENDED, cause, None
        self._table.touch(claim, now)

    def alive(self, booking_ids: Iterable[str], now: float) -> None:
        """Somebody saw these run: ours come back, draining ones of others become ours."""
        for booking_id in booking_ids:
            claim = self._table.claims.get(booking_id)
            if claim is not None:
                self._lives(claim, now)
            elif self._table.shared and self._adoptable(booking_id):
                claim = self._foreign(booking_id)
                claim.want = Want.ADOPTED
                self._table.touch(claim, now)

    def _lives(self, claim: Claim, now: float) -> None:
        if claim.want is Want.DRAINING:
            claim.want, claim.cause, claim.deadline = Want.ACTIVE, None, None
            self._table.touch(claim, now)

    def _adoptable(self, booking_id: str) -> bool:
        booking = self._table.view.booking(booking_id)
        if booking is None:
            return booking_id in self._table.faded
        return booking.state is State.DRAINING

    def _mine(self, booking_id: str) -> Claim | None:
        claim = self._table.claims.get(booking_id)
        if claim is not None and claim.want in (Want.ACTIVE, Want.DRAINING):
            return claim
        if booking_id in self._table.ended or claim is not None:
            self._table.counts.repeated += 1
        else:
            self._table.counts.unheard += 1
        return None

    def _foreign(self, booking_id: str) -> Claim:
        booking = self._table.view.booking(booking_id) or Booking(
            booking_id, "", "", self._table.owner, NOTHING
        )
        return self._table.add(Claim(self._table.owner, booking, asked=True))

    # what the sender does

    def begin(self, booking_id: str, now: float) -> Call | None:
        """The call to make about that booking now; None where there is none or one is on its way."""
        claim = self._table.claims.get(booking_id)
        if claim is None or claim.busy or claim.fruitless >= FRUITLESS_MOST:
            return None
        call = next_call(claim, now)
        if call is not None:
            claim.busy = claim.asked = True
        return call

    def answered(self, booking_id: str, call: Call, outcome: Outcome, now: float) -> None:
        """The plane answered a call that `begin` named."""
        if outcome.version is not None and outcome.version.epoch != self._table.view.version.epoch:
            self.unanswered(booking_id, call, now)  # it tells of an epoch that is over
            return
        self._count(outcome.status)
        claim = self._table.claims[booking_id]
        claim.busy = False
        wanted, faded = (
            claim.want,
            claim.faded or (claim.known is not None and claim.known.state is State.DRAINING),
        )
        claim.answered(call, outcome)
        if isinstance(call, Move) and outcome.status in (Status.DONE, Status.SAME):
            self._table.echo_told(claim, now)
        if wanted is Want.ADOPTED and claim.want is Want.ACTIVE:
            self._table.counts.adopted += 1
        elif (
            faded
            and claim.want is Want.ACTIVE
            and claim.known is not None
            and claim.known.state is State.ACTIVE
        ):
            self._table.counts.reclaimed += 1
        if claim.fruitless == FRUITLESS_MOST:
            self._table.counts.fruitless += 1
        self._table.touch(claim, now)

    def unanswered(self, booking_id: str, call: Call, now: float) -> None:
        """No answer came to a call that `begin` named: whether the plane acted is unknown."""
        claim = self._table.claims[booking_id]
        claim.busy, claim.unsure = False, call
        self._table.touch(claim, now, first=True)

    def refused(self, booking_id: str) -> None:
        """No plane takes what we say of it: it counts here alone, until we say something else."""
        self._table.claims[booking_id].fruitless = FRUITLESS_MOST

    def _count(self, status: Status) -> None:
        counts = self._table.counts
        setattr(counts, status, getattr(counts, status) + 1)
