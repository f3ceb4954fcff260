"""What the plane says, folded into the view; own bookings answer to it at once. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from stateplane.booking import (
    Booked,
    Booking,
    Cause,
    Change,
    Gap,
    Gone,
    OwnerLapsed,
    Rebooked,
    Snapshot,
    State,
    Version,
)
from stateplane.claim import Claim, Want
from stateplane.table import Table


class Hearing:
    """Changes, whole pictures and heartbeats of the plane, over the table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def hear(self, change: Change, now: float) -> bool:
        """Fold a change into the view; False where a whole picture is needed. Own bookings answer to it at once."""
        table = self._table
        settled: list[Claim] = []
        if not isinstance(change, Gap) and table.view.follows(change.version):
            if isinstance(change, Booked):
                self._pace(change.booking, now)
            for claim in self._concerned(change):
                if claim.settled:
                    settled.append(claim)
                else:  # before the view shows a loss that we are about to contradict
                    table.touch(claim, now)
        if not table.view.apply(change, now):
            return False
        for claim in settled:
            table.touch(claim, now)
        if isinstance(change, Booked):
            table.stray(change.booking, now)
        elif isinstance(change, Gone):
            table.remember(change.id, change.cause)
        table.overlay.caught_up(now)
        return True

    def _pace(self, booking: Booking, now: float) -> None:
        """Note a booking that is new in the plane, and how long one of ours took to be seen."""
        table = self._table
        if booking.term != 1 or table.view.standing(booking.id) is not None:
            return
        table.pace.booked(now)
        if booking.owner != table.owner:
            return
        claim = table.claims.get(booking.id)
        begun = table.awaited.get(booking.id) if claim is None else claim.begun
        if begun is not None:
            table.pace.returned(now - begun)
        if claim is not None:
            claim.begun = None

    def fold(self, snapshot: Snapshot, now: float) -> None:
        """Fold a whole picture into the view: in a new epoch, all that is ours has to be booked again."""
        table = self._table
        if table.view.folded and snapshot.version.epoch != table.view.version.epoch:
            self._take_up(now)
        elif table.view.folded and snapshot.version < table.view.version:
            return
        standing = {booking.id: booking for booking in snapshot.bookings}
        for claim in tuple(table.claims.values()):
            if claim.id in standing:
                claim.stands(standing[claim.id], snapshot.version)
            else:
                claim.lost(snapshot.version)
            if claim.want in (Want.ACTIVE, Want.DRAINING):
                table.owed.add(claim.id)
            table.touch(
                claim, now, polite=True
            )  # before the view shows a loss that we are about to contradict
        table.view.reset(snapshot, now)
        table.strays_due = False
        table.overlay.caught_up(now)
        for claim in tuple(table.claims.values()):
            if claim.id not in table.outbox:
                table.touch(claim, now, polite=True)
        for booking in snapshot.bookings:
            table.stray(booking, now)

    def _take_up(self, now: float) -> None:
        """What the old epoch held for us, draining, and no claim of ours speaks for: it has to be booked again too."""
        table = self._table
        for booking in table.view.owned(table.owner):
            if booking.id in table.claims or booking.state is State.ACTIVE or table.view.hidden(booking.id):
                continue
            claim = Claim(table.owner, booking, asked=True)
            claim.want, claim.cause, claim.deadline = (
                Want.DRAINING,
                booking.cause,
                table.view.deadline(booking.id),
            )
            table.add(claim)

    def _concerned(self, change: Booked | Gone | OwnerLapsed | Rebooked) -> Sequence[Claim]:
        """The claims of which it speaks, which have heard it now."""
        claims = self._table.claims
        if isinstance(change, Booked):
            claim = claims.get(change.booking.id)
            if claim is None:
                return ()
            claim.stands(change.booking, change.version)
            return (claim,)
        if isinstance(change, Gone):
            claim = claims.get(change.id)
            if claim is None:
                return ()
            claim.gone(change.cause, change.version)
            return (claim,)
        if not isinstance(change, OwnerLapsed) or change.owner != self._table.owner:
            return ()
        lapsed = tuple(claims.values())
        for claim in lapsed:
            claim.lapsed(change.version)
        return lapsed

    def beating(self) -> None:
        """A heartbeat is being sent."""
        self._table.overlay.beating()

    def beat(self, version: Version, now: float) -> None:
        """It was answered at that version."""
        self._table.overlay.beat(version, now)
        self.sweep(now)

    def sweep(self, now: float) -> None:
        """Each heartbeat: what waited for room or better luck is sent again; what this replica's clock ends, ends."""
        table = self._table
        table.unsaid = False
        for claim in tuple(table.claims.values()):
            if claim.busy or self._level(claim):
                continue
            expired = claim.want is Want.DRAINING and claim.deadline is not None and claim.deadline <= now
            if expired and claim.known is None:
                table.close(claim, Cause.DEADLINE, now)
            elif table.shared and claim.id not in table.outbox:
                claim.fruitless = 0
                self._check(claim)
                table.touch(claim, now, polite=True)
        for echo in [echo for echo, deadline in table.echoes.items() if deadline <= now]:
            del table.echoes[echo]
            table.overlay.lift(echo, now)

    def _level(self, claim: Claim) -> bool:
        """Whether it was found in line before, and the view still holds what it was found in line with."""
        told = self._table.shared and claim.want is Want.ACTIVE and claim.known is not None
        return (
            told
            and self._table.view.standing(claim.id) is claim.known
            and not self._table.view.laid(claim.id)
        )

    def _check(self, claim: Claim) -> None:
        """Where the view is level with what we heard, its word is the plane's."""
        table = self._table
        if table.view.laid(claim.id) or claim.known is None or not table.view.folded:
            return
        standing = table.view.standing(claim.id)
        if standing is None:
            claim.lost(table.view.version)
        elif standing != claim.known:
            claim.stands(standing, table.view.version)
