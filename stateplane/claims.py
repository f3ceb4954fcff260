"""Everything this replica says of bookings, laid over its view until the plane says the same. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stateplane.booking import (
    NOTHING,
    PROVEN,
    Amount,
    Booked,
    Booking,
    Cause,
    Change,
    Gap,
    Gone,
    Outcome,
    Owner,
    OwnerLapsed,
    Rules,
    Snapshot,
    State,
    Status,
    Version,
)
from stateplane.calls import Call, Move
from stateplane.claim import Claim, Want, next_call
from stateplane.outbox import Outbox
from stateplane.overlay import Overlay
from stateplane.view import View

FRUITLESS_MOST = 4
"""Calls about one booking that may bring nothing in a row; then it waits for the next heartbeat's sweep."""


@dataclass(slots=True)
class Counts:
    """What happened to this replica's word on bookings."""

    booked: int = 0
    ended: int = 0
    cancelled: int = 0  # ended before the plane was told of it at all
    dropped: int = 0  # pushed out of a full outbox; told again when there is room, or found by the next whole picture
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


class Claims:
    """The table of claims of one replica over its view.

    ``shared`` False: nothing is ever sent and draining ends by this replica's own clock (mode ``isolated``).
    """

    def __init__(self, owner: Owner, view: View, *, rules: Rules, capacity: int, shared: bool = True) -> None:
        self.counts = Counts()
        self.outbox = Outbox(capacity)
        self.strays_due = False
        """Whether something was dropped that only a whole picture of the plane brings back to mind."""
        self._owner = owner
        self._view = view
        self._rules = rules
        self._capacity = capacity
        self._shared = shared
        self._claims: dict[str, Claim] = {}
        self._owed: set[str] = set()
        self._ended: OrderedDict[str, Cause] = OrderedDict()
        self._faded: OrderedDict[str, None] = OrderedDict()
        self._overlay = Overlay(view, capacity=4 * capacity)
        self._echoes: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, booking_id: str) -> bool:
        return booking_id in self._claims

    @property
    def owing(self) -> int:
        """How many bookings have yet to be booked again in this epoch."""
        return len(self._owed)

    def holds(self, booking_id: str) -> Claim | None:
        """The claim on that id."""
        return self._claims.get(booking_id)

    # what the pick path says

    def book(self, booking_id: str, *, key: str, worker: str, amount: Amount, now: float) -> Booking:
        """Record it; it counts from here on. The same id again changes nothing."""
        if (standing := self._claims.get(booking_id)) is not None:
            self.counts.repeated += 1
            return standing.face(now)
        known = self._view.by_key(key)
        attempt = 1 + max((booking.attempt for booking in known), default=0)
        booking = Booking(booking_id, key, worker, self._owner, amount, attempt)
        claim = Claim(self._owner, booking, amount, [worker])
        self.counts.booked += 1
        self._touch(self._add(claim), now)
        return claim.face(now)

    def adjust(self, booking_id: str, amount: Amount, now: float) -> None:
        """It occupies so much now."""
        claim = self._mine(booking_id)
        if claim is not None:
            claim.amount = amount
            self._touch(claim, now)

    def serve(self, booking_id: str, worker: str, amount: Amount, now: float) -> None:
        """That worker served; what may still run on the one before counts there until its drain deadline."""
        claim = self._mine(booking_id)
        if claim is None:
            return
        before = claim.face(now)
        claim.amount = amount
        if claim.went(worker):
            self.counts.moved += 1
            self._echo(before, now)
        self._touch(claim, now)

    def lose(self, booking_id: str, cause: Cause, now: float, seconds: float | None = None) -> None:
        """Neither its end nor its life is proven: it counts on, for ``seconds`` at most."""
        claim = self._mine(booking_id)
        if claim is None or claim.want is Want.DRAINING:
            return
        self.counts.lost += 1
        claim.want, claim.cause = Want.DRAINING, cause
        claim.deadline = now + (self._rules.drain if seconds is None else seconds)
        self._touch(claim, now)

    def end(self, booking_id: str, cause: Cause, now: float) -> None:
        """It is over, whoever owns it."""
        claim = self._claims.get(booking_id)
        if claim is None:
            if booking_id in self._ended:
                self.counts.repeated += 1
                return
            claim = self._foreign(booking_id)
        elif claim.want is Want.ENDED:
            self.counts.repeated += 1
            return
        self.counts.ended += 1
        self.counts.cancelled += self._shared and not claim.asked
        claim.want, claim.cause, claim.over = Want.ENDED, cause, None
        self._touch(claim, now)

    def alive(self, booking_ids: Iterable[str], now: float) -> None:
        """Somebody saw these run: ours come back, draining ones of others become ours."""
        for booking_id in booking_ids:
            claim = self._claims.get(booking_id)
            if claim is not None:
                self._lives(claim, now)
            elif self._shared and self._adoptable(booking_id):
                claim = self._foreign(booking_id)
                claim.want = Want.ADOPTED
                self._touch(claim, now)

    def _lives(self, claim: Claim, now: float) -> None:
        if claim.want is Want.DRAINING:
            claim.want, claim.cause, claim.deadline = Want.ACTIVE, None, None
            self._touch(claim, now)

    def _adoptable(self, booking_id: str) -> bool:
        booking = self._view.booking(booking_id)
        if booking is None:
            return booking_id in self._faded
        return booking.state is State.DRAINING

    def _mine(self, booking_id: str) -> Claim | None:
        claim = self._claims.get(booking_id)
        if claim is not None and claim.want in (Want.ACTIVE, Want.DRAINING):
            return claim
        if booking_id in self._ended or claim is not None:
            self.counts.repeated += 1
        else:
            self.counts.unheard += 1
        return None

    def _foreign(self, booking_id: str) -> Claim:
        booking = self._view.booking(booking_id) or Booking(booking_id, "", "", self._owner, NOTHING)
        return self._add(Claim(self._owner, booking, booking.amount, [booking.worker], asked=True))

    def _add(self, claim: Claim) -> Claim:
        self._claims[claim.id] = claim
        return claim

    def _echo(self, before: Booking, now: float) -> None:
        n = 1
        while (echo := f"{before.id}~{n}") in self._echoes or self._view.booking(echo) is not None:
            n += 1
        rules = self._rules
        seconds = rules.drain if rules.superseded_drain is None else rules.superseded_drain
        left = replace(
            before, id=echo, key="", term=1, op=0, outrun=False, state=State.DRAINING, cause=Cause.MOVED, superseded=True, drain_left=seconds,
        )  # fmt: skip
        if seconds > 0 and len(self._echoes) < self._capacity:
            self._echoes[echo] = now + seconds
            self._overlay.lay(left, now)

    # what the sender does

    def begin(self, booking_id: str, now: float) -> Call | None:
        """The call to make about that booking now; None where there is none or one is on its way."""
        claim = self._claims.get(booking_id)
        if claim is None or claim.busy or claim.fruitless >= FRUITLESS_MOST:
            return None
        call = next_call(claim, now)
        if call is not None:
            claim.busy = claim.asked = True
        return call

    def answered(self, booking_id: str, call: Call, outcome: Outcome, now: float) -> None:
        """The plane answered a call that `begin` named."""
        if outcome.version is not None and outcome.version.epoch != self._view.version.epoch:
            self.unanswered(booking_id, call, now)  # it tells of an epoch that is over
            return
        self._count(outcome.status)
        claim = self._claims[booking_id]
        claim.busy = False
        wanted, faded = claim.want, claim.faded or (claim.known is not None and claim.known.state is State.DRAINING)
        claim.answered(call, outcome)
        if isinstance(call, Move) and outcome.status in (Status.DONE, Status.SAME):
            self._echo_told(claim, now)
        if wanted is Want.ADOPTED and claim.want is Want.ACTIVE:
            self.counts.adopted += 1
        elif faded and claim.want is Want.ACTIVE and claim.known is not None and claim.known.state is State.ACTIVE:
            self.counts.reclaimed += 1
        if claim.fruitless == FRUITLESS_MOST:
            self.counts.fruitless += 1
        self._touch(claim, now)

    def unanswered(self, booking_id: str, call: Call, now: float) -> None:
        """No answer came to a call that `begin` named: whether the plane acted is unknown."""
        claim = self._claims[booking_id]
        claim.busy, claim.unsure = False, call
        self._touch(claim, now, first=True)

    def refused(self, booking_id: str) -> None:
        """No plane takes what we say of it: it counts here alone, until we say something else."""
        self._claims[booking_id].fruitless = FRUITLESS_MOST

    def sweep(self, now: float) -> None:
        """Each heartbeat: what waited for room or better luck is sent again; what this replica's clock ends, ends."""
        for claim in tuple(self._claims.values()):
            if claim.busy or claim.id in self.outbox or self._level(claim):
                continue
            claim.fruitless = 0
            expired = claim.want is Want.DRAINING and claim.deadline is not None and claim.deadline <= now
            if expired and claim.known is None:
                self._close(claim, Cause.DEADLINE, now)
            elif not self.outbox.full:
                self._check(claim)
                self._touch(claim, now)
        for echo in [echo for echo, deadline in self._echoes.items() if deadline <= now]:
            del self._echoes[echo]
            self._overlay.lift(echo, now)

    def beating(self) -> None:
        """A heartbeat is being sent."""
        self._overlay.beating()

    def beat(self, version: Version, now: float) -> None:
        """It was answered at that version."""
        self._overlay.beat(version, now)
        self.sweep(now)

    def _level(self, claim: Claim) -> bool:
        """Whether it was found in line before, and the view still holds what it was found in line with."""
        told = self._shared and claim.want is Want.ACTIVE and claim.known is not None
        return told and self._view.standing(claim.id) is claim.known and not self._view.laid(claim.id)

    def _check(self, claim: Claim) -> None:
        """Where the view is level with what we heard, its word is the plane's."""
        if self._view.laid(claim.id) or claim.known is None or not self._view.folded:
            return
        standing = self._view.standing(claim.id)
        if standing is None:
            claim.lost(self._view.version)
        elif standing != claim.known:
            claim.stands(standing, self._view.version)

    def _echo_told(self, claim: Claim, now: float) -> None:
        """The plane holds what a move left behind: ours goes when the feed has brought it."""
        told = [echo for echo in self._echoes if echo.rpartition("~")[0] == claim.id]
        for echo in told[: len(told) - len(claim.path) + 1]:
            del self._echoes[echo]
            self._overlay.lift_at(echo, claim.level, now)

    def _count(self, status: Status) -> None:
        setattr(self.counts, status.value, getattr(self.counts, status.value) + 1)

    # what the plane says

    def hear(self, change: Change, now: float) -> bool:
        """Fold a change into the view; False where a whole picture is needed. Own bookings answer to it at once."""
        concerned: list[Claim] = []
        if not isinstance(change, Gap) and self._view.follows(change.version):
            concerned = list(self._concerned(change))
            for claim in concerned:  # before the view shows a loss that we are about to contradict
                self._touch(claim, now)
        if not self._view.apply(change, now):
            return False
        for claim in concerned:
            self._touch(claim, now)
        if isinstance(change, Booked):
            self._stray(change.booking, now)
        elif isinstance(change, Gone):
            self._remember(change.id, change.cause)
        self._overlay.caught_up(now)
        return True

    def fold(self, snapshot: Snapshot, now: float) -> None:
        """Fold a whole picture into the view: in a new epoch, all that is ours has to be booked again."""
        if self._view.folded and snapshot.version.epoch != self._view.version.epoch:
            self._take_up(now)
        elif self._view.folded and snapshot.version < self._view.version:
            return
        standing = {booking.id: booking for booking in snapshot.bookings}
        for claim in tuple(self._claims.values()):
            if claim.id in standing:
                claim.stands(standing[claim.id], snapshot.version)
            else:
                claim.lost(snapshot.version)
            if claim.want in (Want.ACTIVE, Want.DRAINING):
                self._owed.add(claim.id)
            self._touch(claim, now)  # before the view shows a loss that we are about to contradict
        self._view.reset(snapshot, now)
        self.strays_due = False
        self._overlay.caught_up(now)
        for claim in tuple(self._claims.values()):
            self._touch(claim, now)
        for booking in snapshot.bookings:
            self._stray(booking, now)

    def _take_up(self, now: float) -> None:
        """What the old epoch held for us, draining, and no claim of ours speaks for: it has to be booked again too."""
        for booking in self._view.owned(self._owner):
            if booking.id in self._claims or booking.state is State.ACTIVE or self._view.hidden(booking.id):
                continue
            claim = Claim(self._owner, booking, booking.amount, [booking.worker], asked=True)
            claim.want, claim.cause, claim.deadline = Want.DRAINING, booking.cause, self._view.deadline(booking.id)
            self._add(claim)

    def _concerned(self, change: Change) -> Iterator[Claim]:
        match change:
            case Booked(booking=booking) if (claim := self._claims.get(booking.id)) is not None:
                claim.stands(booking, change.version)
                yield claim
            case Gone(id=id_) if (claim := self._claims.get(id_)) is not None:
                claim.gone(change.cause, change.version)
                yield claim
            case OwnerLapsed(owner=owner) if owner == self._owner:
                for claim in tuple(self._claims.values()):
                    claim.lapsed(change.version)
                    yield claim

    def _stray(self, booking: Booking, now: float) -> None:
        """The plane holds it for us, active, and we do not: end it as we ended it, or let it drain."""
        if booking.owner != self._owner or booking.state is not State.ACTIVE:
            return
        if booking.id in self._claims or booking.id in self._overlay:
            return
        self.counts.strays += 1
        cause = self._ended.get(booking.id)
        claim = Claim(self._owner, booking, booking.amount, [booking.worker], known=booking, asked=True, op=booking.op)
        claim.heard = self._view.version
        if cause is None:
            claim.want, claim.cause, claim.deadline = Want.DRAINING, Cause.SILENT, now + self._rules.drain
        else:
            claim.want, claim.cause = Want.ENDED, cause
        self._touch(self._add(claim), now)

    def _remember(self, booking_id: str, cause: Cause) -> None:
        if cause in PROVEN:
            self._faded.pop(booking_id, None)
            return
        self._faded[booking_id] = None
        if len(self._faded) > self._capacity:
            self._faded.popitem(last=False)

    # bringing the view and the outbox in line with a claim

    def _touch(self, claim: Claim, now: float, *, first: bool = False) -> None:
        """Let the view show what we say while the plane does not say the same, and send what it has to be told."""
        if self._claims.get(claim.id) is not claim:
            return
        if claim.busy:
            self._lay(claim, now)
        elif claim.yielded:
            self.counts.yielded += 1
            self._remove(claim, now)
        elif claim.finished or (claim.want is Want.ENDED and not self._shared):
            self._close(claim, claim.over or claim.cause or Cause.ENDED, now)
        elif self._shared and next_call(claim, now) is None:
            self._told(claim)
            self._overlay.lift_at(claim.id, claim.level, now)
        else:
            self._lay(claim, now)
            if self._shared and claim.fruitless < FRUITLESS_MOST:
                self._send(claim, now, first=first)

    def _lay(self, claim: Claim, now: float) -> None:
        if claim.want is Want.ENDED:
            self._overlay.hide(claim.id, now)
        elif claim.want is not Want.ADOPTED:
            self._overlay.lay(claim.face(now), now)

    def _send(self, claim: Claim, now: float, *, first: bool) -> None:
        pushed = self.outbox.put(claim.id, first=first)
        if pushed is None:
            return
        self.counts.dropped += 1
        dropped = self._claims.get(pushed)
        if dropped is None or dropped.want is Want.ACTIVE or not dropped.asked:
            return  # it is still here, and told at a later sweep
        self.strays_due = True
        if dropped.want is Want.ENDED:
            self._end_known(dropped.id, dropped.cause or Cause.ENDED)
            self._view.discard(dropped.id, now)
        self._remove(dropped, now)

    def _told(self, claim: Claim) -> None:
        self.outbox.discard(claim.id)
        if claim.id in self._owed:
            self._owed.discard(claim.id)

    def _close(self, claim: Claim, cause: Cause, now: float) -> None:
        if claim.want is Want.ENDED or cause in PROVEN:
            self._end_known(claim.id, cause)
        if self._view.laid(claim.id):
            self._overlay.hide(claim.id, now)
        self._view.forget(claim.id, now)
        self._remove(claim, now)

    def _remove(self, claim: Claim, now: float) -> None:
        del self._claims[claim.id]
        self._told(claim)
        if self._shared and claim.asked:
            self._overlay.lift_at(claim.id, claim.level, now)
        else:
            self._overlay.lift(claim.id, now)

    def _end_known(self, booking_id: str, cause: Cause) -> None:
        self._ended[booking_id] = cause
        self._ended.move_to_end(booking_id)
        if len(self._ended) > self._capacity:
            self._ended.popitem(last=False)
