"""What this replica says of one booking, what the plane is known to hold of it, and the call that brings them together.

Pure. A claim is told what happened; `next_call` compares and names the one call to make now, or none. So only the
newest state is ever sent, a lost answer is simply asked for again, and a plane that lost everything is told anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from stateplane.booking import PROVEN, Amount, Booking, Cause, Outcome, Owner, State, Status, Version
from stateplane.calls import Adjust, Book, Call, Drain, Move, Reclaim, Release

PATH_MOST = 8
"""Most workers that one booking is moved along while the plane is away; past it the last ones count as one."""


class Want(StrEnum):
    """What this replica says of a booking."""

    ACTIVE = "active"  # it runs, and is ours
    DRAINING = "draining"  # we lost sight of it
    ENDED = "ended"  # it is over, whoever owns it
    ADOPTED = "adopted"  # it runs and nobody cares for it: let us


@dataclass(slots=True)
class Claim:
    """One booking, as this replica says it is and as the plane is known to hold it."""

    owner: Owner
    """This replica."""
    booking: Booking
    """Identity, attempt and term; what it occupies stands below."""
    amount: Amount
    path: list[str]
    """Workers it went along: where the plane has it, or will get it first, then where it moved on to."""
    want: Want = Want.ACTIVE
    cause: Cause | None = None
    """Why we want it draining or ended."""
    deadline: float | None = None
    """Of a draining one, by this replica's clock."""
    known: Booking | None = None
    """As it stands in the plane's current epoch."""
    heard: Version | None = None
    """When the plane last said something of it that carried a version."""
    level: Version | None = None
    """Where the view says the same as the plane's last word; None: where the next heartbeat finds it."""
    faded: bool = False
    """The plane let it go on an assumption (deadline, evidence): proof of life brings it back."""
    over: Cause | None = None
    """The plane says that it is proven to have ended, or no longer knows what we gave up."""
    asked: bool = False
    """Whether a call that would make it stand may have arrived."""
    busy: bool = False
    """Whether a call is on its way."""
    owed: bool = False
    """Whether it has to be booked again in this epoch."""
    fruitless: int = 0
    """Calls in a row that brought nothing."""
    op: int = 0
    unsure: Call | None = field(default=None)
    """The last call, where its answer never came."""

    @property
    def id(self) -> str:
        """Id of the booking."""
        return self.booking.id

    @property
    def yielded(self) -> bool:
        """Whether somebody else adopted it or a newer attempt superseded it: ours only to end."""
        known = self.known
        mine = self.want in (Want.ACTIVE, Want.DRAINING)
        return mine and known is not None and (known.owner != self.owner or known.superseded)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to say of it."""
        if self.over is not None:
            return True
        if self.want is Want.ENDED:
            return not self.asked
        return self.want is Want.DRAINING and self.faded

    def face(self, now: float) -> Booking:
        """The booking as this replica says it is."""
        draining = self.want is Want.DRAINING
        left = None if self.deadline is None or not draining else max(0.0, self.deadline - now)
        return replace(
            self.booking, worker=self.path[-1], amount=self.amount, op=self.op, drain_left=left,
            state=State.DRAINING if draining else State.ACTIVE, cause=self.cause if draining else None,
        )  # fmt: skip

    def went(self, worker: str) -> bool:
        """Another worker served; True where that is news."""
        if worker == self.path[-1]:
            return False
        if len(self.path) >= PATH_MOST:
            self.path.pop()
        self.path.append(worker)
        return True

    # what the plane says

    def stands(self, booking: Booking, version: Version | None) -> None:
        """The plane holds it so."""
        if not self._news(version) or (version is None and self._outdated(booking)):
            return
        self.faded, self.known = False, booking
        if booking.term != self.booking.term:
            self.op = booking.op
        self.op = max(self.op, booking.op)
        self.booking = replace(
            self.booking, term=booking.term, attempt=booking.attempt, key=booking.key or self.booking.key,
            superseded=booking.superseded, outrun=booking.outrun,
        )  # fmt: skip
        if self.want is Want.ADOPTED and booking.owner == self.owner and booking.state is State.ACTIVE:
            self.want, self.cause, self.deadline = Want.ACTIVE, None, None
            self.booking, self.amount, self.path = booking, booking.amount, [booking.worker]
        if self.want in (Want.ACTIVE, Want.DRAINING):
            self._along(booking.worker)

    def lapsed(self, version: Version) -> None:
        """Our lease fell: if it was active in the plane, it is draining there."""
        if self.known is not None and self.known.state is State.ACTIVE and self._news(version):
            self.known = replace(self.known, state=State.DRAINING, cause=Cause.LEASE)

    def gone(self, cause: Cause | None, version: Version | None) -> None:
        """The plane no longer holds it."""
        if not self._news(version):
            return
        self.known = None
        if cause is None:
            return
        self.faded = cause not in PROVEN
        if cause in PROVEN or self.want is Want.ADOPTED:
            self.over = cause

    def lost(self, version: Version) -> None:
        """A whole picture of the plane does not hold it; why is not known."""
        before = self.heard
        if not self._news(version):
            return
        if self.known is not None and before is not None and before.epoch == version.epoch:
            self.faded = True
        else:
            self.faded = False
        self.known = None

    def answered(self, call: Call, outcome: Outcome) -> None:
        """A call was answered."""
        self.unsure = None
        self.fruitless = 0 if outcome.status in (Status.DONE, Status.SAME) else self.fruitless + 1
        if isinstance(call, Release):
            self._released(outcome)
        elif outcome.status is Status.GONE:
            self.gone(outcome.cause or Cause.DEADLINE, outcome.version)
        elif outcome.status is Status.UNKNOWN:
            self._unknown(call, outcome.version)
        elif outcome.booking is not None:
            self.stands(outcome.booking, outcome.version)
            if isinstance(call, Reclaim) and self.want is Want.ADOPTED:
                self.over = Cause.SUPERSEDED  # it is not to be had: prolonged, or somebody else was first

    def _released(self, outcome: Outcome) -> None:
        if self.want is not Want.ENDED:
            return
        self._news(outcome.version)
        self.known, self.over = None, self.cause or Cause.ENDED

    def _unknown(self, call: Call, version: Version | None) -> None:
        self.gone(None, version)
        self.faded = False
        if self.want is Want.ADOPTED or (self.want is Want.DRAINING and not isinstance(call, Book)):
            self.over = Cause.DEADLINE

    def _outdated(self, booking: Booking) -> bool:
        known = self.known
        return known is not None and (booking.term, booking.op) < (known.term, known.op)

    def _along(self, worker: str) -> None:
        if worker in self.path:
            del self.path[: self.path.index(worker)]
        else:
            self.path = [worker, self.path[-1]]

    def _news(self, version: Version | None) -> bool:
        if version is not None:
            heard = self.heard
            if heard is not None and version.epoch == heard.epoch and version < heard:
                return False
            self.heard = version
        self.level = version
        return True


def next_call(claim: Claim, now: float) -> Call | None:
    """The call that brings the plane one step closer to what this replica says; None where they agree."""
    call = _wanted(claim, now)
    if call is not None and claim.unsure is not None and _same_but_op(call, claim.unsure):
        return claim.unsure
    return call


def _wanted(claim: Claim, now: float) -> Call | None:
    if claim.finished or claim.yielded:
        return None
    if claim.want is Want.ADOPTED:
        return Reclaim(claim.id)
    if claim.want is Want.ENDED:
        cause = claim.cause or Cause.ENDED
        return Release(claim.id, cause, None if cause in PROVEN else claim.booking.term)
    if claim.known is None:
        return Reclaim(claim.id) if claim.faded else Book(_anew(claim, now))
    return _difference(claim, claim.known, now)


def _difference(claim: Claim, known: Booking, now: float) -> Call | None:
    term, op = known.term, claim.op + 1
    if known.state is State.DRAINING:
        return Reclaim(claim.id) if claim.want is Want.ACTIVE else None
    if len(claim.path) > 1:
        return Move(claim.id, term, op, claim.path[1], claim.amount)
    if known.amount != claim.amount:
        return Adjust(claim.id, term, op, claim.amount)
    if claim.want is Want.DRAINING:
        seconds = None if claim.deadline is None else max(0.0, claim.deadline - now)
        return Drain(claim.id, term, op, claim.cause or Cause.BROKEN, seconds)
    return None


def _anew(claim: Claim, now: float) -> Booking:
    """As the plane should get it: a new one begins active; one that it lost may be draining already."""
    face = claim.face(now)
    if face.term:
        return replace(face, worker=claim.path[0])
    return replace(face, worker=claim.path[0], state=State.ACTIVE, cause=None, drain_left=None, op=0)


def _same_but_op(call: Call, other: Call) -> bool:
    match call, other:
        case (Move() | Adjust(), Move() | Adjust()) if type(call) is type(other):
            return replace(call, op=other.op) == other
        case Drain(), Drain():
            return replace(call, op=other.op, seconds=other.seconds) == other
    return False
