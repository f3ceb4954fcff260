"""All claims of one replica, laid over its view until the plane says the same. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from stateplane.booking import PROVEN, Booking, Cause, Owner, Rules, State
from stateplane.claim import Claim, Want
from stateplane.outbox import Outbox
from stateplane.overlay import Overlay
from stateplane.pace import Pace
from stateplane.view import View

MEMORY = 16_384
"""Most ended and most faded bookings that are remembered."""
FRUITLESS_MOST = 4
"""Calls about one booking that may bring nothing in a row; then it waits for the next heartbeat's sweep."""


@dataclass(slots=True)
class Counts:
    """What happened to this replica's word on bookings."""

    booked: int = 0
    ended: int = 0
    cancelled: int = 0  # ended before the plane was told of it at all
    dropped: int = (
        0  # pushed out of a full outbox; told again when there is room, or found by the next whole picture
    )
    done: int = 0
    same: int = 0
    stale: int = 0
    gone: int = 0
    unknown: int = 0
    full: int = 0
    fruitless: int = 0  # gave up until the next sweep
    lost: int = 0  # own bookings of which we lost sight
    reclaimed: int = 0  # own bookings taken back after they had turned draining or gone
    adopted: int = 0  # other replicas' bookings taken over on proof of life
    yielded: int = 0  # own bookings that another replica adopted or a newer attempt superseded
    strays: int = 0  # bookings that the plane holds for us and of which we know nothing
    moved: int = 0
    repeated: int = 0  # said of a booking that is known to have ended
    unheard: int = 0  # said of a booking that is not known


class Table:
    """The claims of one replica, and how view and outbox are kept in line with them.

    ``shared`` False: nothing is ever sent and draining ends by this replica's own clock (mode ``isolated``).
    The claims are bounded by what runs, and by ``capacity`` beyond that.
    """

    def __init__(self, owner: Owner, view: View, *, rules: Rules, capacity: int, shared: bool = True) -> None:
        self.counts = Counts()
        self.outbox = Outbox(capacity)
        self.strays_due = False
        """Whether something was dropped that only a whole picture of the plane brings back to mind."""
        self.unsaid = False
        """Whether some claim waits for room in the outbox."""
        self.owner = owner
        self.view = view
        self.rules = rules
        self.capacity = capacity
        self.shared = shared
        self.claims: dict[str, Claim] = {}
        self.awaited: dict[str, float] = {}
        """Ids under which the plane is booking just now by its own choice, and since when; no claim speaks for them."""
        self.pace = Pace()
        self.owed: set[str] = set()
        """Bookings that have yet to be booked again in this epoch."""
        self.ended: OrderedDict[str, Cause] = OrderedDict()
        """Proven ends that this replica told of or heard about its own."""
        self.faded: OrderedDict[str, None] = OrderedDict()
        """Bookings that went on an assumption: proof of life brings them back."""
        self.echoes: OrderedDict[str, float] = OrderedDict()
        """What moves left behind and the plane has not said yet, with its drain deadline."""
        self.overlay = Overlay(view, capacity=4 * capacity, lifted=self._lifted)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def owing(self) -> int:
        """How many bookings have yet to be booked again in this epoch."""
        return len(self.owed)

    def add(self, claim: Claim) -> Claim:
        """Begin to speak for a booking."""
        self.claims[claim.id] = claim
        return claim

    def begin(self, claim: Claim, now: float) -> None:
        """Speak for a booking that was just made here: `add` and `touch`, where there is nothing to weigh up."""
        booking = claim.booking
        self.claims[booking.id] = claim
        self.overlay.begin(booking, now)
        if self.shared:
            self._send(claim, now, urgent=True)

    def touch(self, claim: Claim, now: float, *, first: bool = False, polite: bool = False) -> None:
        """Let the view show what we say while the plane does not say the same, and send what it has to be told.

        ``first``: before all that waits. ``polite``: only where there is room.
        """
        if self.claims.get(claim.booking.id) is not claim:
            return
        known = claim.known
        if claim.busy:
            self._lay(claim, now)
        elif known is not None and claim.yielded:
            self.counts.yielded += 1
            self.remove(claim, now)
        elif claim.refuted:
            self.refute(claim, now)
        elif claim.finished or (claim.want is Want.ENDED and not self.shared):
            self.close(claim, claim.over or claim.cause or Cause.ENDED, now)
        elif known is not None and self.shared and claim.settled:
            self.told(claim)
            self.overlay.lift_at(claim.id, claim.level, now)
        else:
            self._lay(claim, now)
            if self.shared and claim.fruitless < FRUITLESS_MOST:
                self._send(claim, now, first=first, polite=polite)

    def _lay(self, claim: Claim, now: float) -> None:
        if claim.want is Want.ENDED:
            self.overlay.hide(claim.booking.id, now)
        elif claim.want is not Want.ADOPTED:
            self.overlay.lay(claim.face(now), now)

    def _send(
        self, claim: Claim, now: float, *, first: bool = False, polite: bool = False, urgent: bool = False
    ) -> None:
        if polite and self.outbox.full and claim.id not in self.outbox:
            self.unsaid = True
            return
        pushed = self.outbox.put(claim.booking.id, first=first, at=None if urgent else now)
        if pushed is None:
            return
        self.counts.dropped += 1
        self.unsaid = True
        dropped = self.claims.get(pushed)
        if dropped is None or dropped.want is Want.ACTIVE or not dropped.asked:
            return  # it is still here, and told at a later sweep
        self.strays_due = True
        if dropped.want is Want.ENDED:
            if dropped.cause in PROVEN:
                self.know_ended(dropped.id, dropped.cause)
            self.view.discard(dropped.id, now)
        self.remove(dropped, now)

    def told(self, claim: Claim) -> None:
        """There is nothing left to say of it for now."""
        if self.shared:
            booking_id = claim.booking.id
            self.outbox.discard(booking_id)
            self.owed.discard(booking_id)

    def close(self, claim: Claim, cause: Cause, now: float) -> None:
        """It is over; it stays hidden until the feed says so."""
        booking_id = claim.booking.id
        if cause in PROVEN:
            self.know_ended(booking_id, cause)
        if self.shared:
            if self.view.laid(booking_id):
                self.overlay.hide(booking_id, now)
            self.view.forget(booking_id, now)
        self.remove(claim, now)

    def refute(self, claim: Claim, now: float) -> None:
        """It is not over after all: the plane's word counts again, at once."""
        del self.claims[claim.id]
        self.told(claim)
        self.overlay.lift(claim.id, now)
        self._lifted(claim.id, now)

    def remove(self, claim: Claim, now: float) -> None:
        """Speak for it no longer; our last word stands until the feed has caught up."""
        del self.claims[claim.id]
        self.told(claim)
        if self.shared and claim.asked:
            self.overlay.lift_at(claim.id, claim.level, now)
        else:
            self.overlay.lift(claim.id, now)

    # what a move left behind

    def echo(self, before: Booking, now: float) -> None:
        """It moved: what may still run on the worker before counts at once, as the plane will say."""
        n = 1
        while (echo := f"{before.id}~{n}") in self.echoes or self.view.booking(echo) is not None:
            n += 1
        rules = self.rules
        seconds = rules.drain if rules.superseded_drain is None else rules.superseded_drain
        left = replace(
            before, id=echo, key="", term=1, op=0, outrun=False, superseded=True,
            state=State.DRAINING, cause=Cause.MOVED, drain_left=seconds,
        )  # fmt: skip
        if seconds > 0 and len(self.echoes) < self.capacity:
            self.echoes[echo] = now + seconds
            self.overlay.lay(left, now)

    def echo_told(self, claim: Claim, now: float) -> None:
        """The plane holds what a move left behind: ours goes when the feed has brought it."""
        told = [echo for echo in self.echoes if echo.rpartition("~")[0] == claim.id]
        for echo in told[: len(told) - len(claim.path) + 1]:
            del self.echoes[echo]
            self.overlay.lift_at(echo, claim.level, now)

    # what has ended, and what the plane holds all the same

    def stray(self, booking: Booking, now: float) -> None:
        """The plane holds what we saw end, or holds for us what we do not know of: end it, or let it drain."""
        if booking.id in self.claims or booking.id in self.overlay or booking.id in self.awaited:
            return
        cause = self.ended.get(booking.id)
        if cause is None and (booking.owner != self.owner or booking.state is not State.ACTIVE):
            return
        if self.outbox.full:
            self.strays_due = True
            if cause is not None:
                self.view.discard(booking.id, now)
            return
        self.counts.strays += 1
        claim = Claim(self.owner, booking)
        claim.known, claim.asked, claim.op = booking, True, booking.op
        claim.heard = claim.level = self.view.version
        if cause is None:
            claim.want, claim.cause, claim.deadline = Want.DRAINING, Cause.SILENT, now + self.rules.drain
        else:
            claim.want, claim.cause = Want.ENDED, cause
        self.touch(self.add(claim), now)

    def _lifted(self, booking_id: str, now: float) -> None:
        """The plane's word counts again: it may be one that came while ours stood over it."""
        standing = self.view.standing(booking_id)
        if standing is not None:
            self.stray(standing, now)

    def know_ended(self, booking_id: str, cause: Cause) -> None:
        """Remember a proven end."""
        ended = self.ended
        ended[booking_id] = cause
        ended.move_to_end(booking_id)
        if len(ended) > MEMORY:
            ended.popitem(last=False)

    def remember(self, booking_id: str, cause: Cause) -> None:
        """Remember what the plane let go of on an assumption."""
        if cause in PROVEN:
            self.faded.pop(booking_id, None)
            return
        self.faded[booking_id] = None
        if len(self.faded) > MEMORY:
            self.faded.popitem(last=False)
