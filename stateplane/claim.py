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
    """Identity, attempt and term; what it occupies stands in ``path``."""
    path: list[tuple[str, Amount]] = field(default_factory=list)
    """Workers it went along, with what it occupies: from where the plane has it, or will get it, to where it is."""
    want: Want = Want.ACTIVE
    cause: Cause | None = None
    """Why we want it draining or ended."""
    judged: int | None = None
    """The term of another replica's booking in which evidence was found against it; None: it is our own."""
    refuted: bool = False
    """The evidence came too late: it stands in another term."""
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
    begun: float | None = None
    """When it was made, by this replica's clock, until the plane's feed has brought it; None: not by us."""
    op: int = 0
    unsure: Call | None = field(default=None)
    """The last call, where its answer never came."""

    def __post_init__(self) -> None:
        """Where the booking says, unless told otherwise."""
        self.path = self.path or [(self.booking.worker, self.booking.amount)]

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

    @property
    def settled(self) -> bool:
        """Whether the plane holds it just as we say: `next_call` has nothing to do."""
        known = self.known
        if known is None:
            return False
        if self.want is Want.DRAINING:
            return known.state is State.DRAINING
        return (
            self.want is Want.ACTIVE
            and known.state is State.ACTIVE
            and len(self.path) == 1
            and known.amount == self.path[0][1]
        )

    def face(self, now: float) -> Booking:
        """The booking as this replica says it is."""
        one, (worker, amount) = self.booking, self.path[-1]
        if self.want is not Want.DRAINING:
            return Booking(
                one.id, one.key, worker, one.owner, amount, one.attempt, one.term, self.op, State.ACTIVE, None,
                one.superseded, None, one.outrun,
            )  # fmt: skip
        left = None if self.deadline is None else max(0.0, self.deadline - now)
        return Booking(
            one.id, one.key, worker, one.owner, amount, one.attempt, one.term, self.op, State.DRAINING, self.cause,
            one.superseded, left, one.outrun,
        )  # fmt: skip

    def occupies(self, amount: Amount) -> None:
        """It occupies so much where it is."""
        self.path[-1] = (self.path[-1][0], amount)

    def went(self, worker: str, amount: Amount) -> bool:
        """That worker served; True where that is news."""
        if worker == self.path[-1][0]:
            self.occupies(amount)
            return False
        if len(self.path) >= PATH_MOST:
            self.path.pop()
        self.path.append((worker, amount))
        return True

    # what the plane says

    def stands(self, booking: Booking, version: Version | None) -> None:
        """The plane holds it so."""
        if not self._news(version) or (version is None and self._outdated(booking)):
            return
        if booking is self.known and self.want is not Want.ADOPTED:
            return  # the feed brings what the answer told
        self.faded, self.known = False, booking
        if booking.term != self.booking.term:
            self.op = booking.op
        self.op = max(self.op, booking.op)
        mine = self.booking
        known = (booking.term, booking.attempt, booking.superseded, booking.outrun)
        if known != (mine.term, mine.attempt, mine.superseded, mine.outrun) or (booking.key and not mine.key):
            self.booking = Booking(
                mine.id, booking.key or mine.key, mine.worker, mine.owner, mine.amount, booking.attempt, booking.term,
                mine.op, mine.state, mine.cause, booking.superseded, mine.drain_left, booking.outrun,
            )  # fmt: skip
        if self.want is Want.ADOPTED and booking.owner == self.owner and booking.state is State.ACTIVE:
            self.want, self.cause, self.deadline = Want.ACTIVE, None, None
            self.booking, self.path = booking, [(booking.worker, booking.amount)]
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
            self._released(call, outcome)
        elif outcome.status is Status.GONE:
            self.gone(outcome.cause or Cause.DEADLINE, outcome.version)
        elif outcome.status is Status.UNKNOWN:
            self._unknown(call, outcome.version)
        elif outcome.booking is not None:
            self.stands(outcome.booking, outcome.version)
            if isinstance(call, Reclaim) and self.want is Want.ADOPTED:
                self.over = Cause.SUPERSEDED  # it is not to be had: prolonged, or somebody else was first

    def _released(self, call: Release, outcome: Outcome) -> None:
        if self.want is not Want.ENDED:
            return
        self._news(outcome.version)
        if call.cause is not (self.cause or Cause.ENDED):
            return  # a proof came meanwhile, and is told next
        self.refuted = outcome.status is Status.STALE
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
        """The plane has it on that worker: what lies before is told."""
        if self.path[0][0] == worker:
            return
        workers = [stop for stop, _ in self.path]
        if worker in workers:
            del self.path[: workers.index(worker)]
        else:
            self.path = [(worker, self.path[-1][1]), self.path[-1]]

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
    if claim.finished or claim.yielded or claim.settled:
        return None
    if claim.want is Want.ADOPTED:
        return Reclaim(claim.id)
    if claim.want is Want.ENDED:
        return _ending(claim)
    if claim.known is None:
        return Reclaim(claim.id) if claim.faded else Book(_anew(claim, now))
    return _difference(claim, claim.known, now)


def _ending(claim: Claim) -> Call:
    """Proof ends it as it is; evidence only what drains, in the term that was judged."""
    cause, known = claim.cause or Cause.ENDED, claim.known
    if cause in PROVEN:
        return Release(claim.id, cause, None)
    if claim.judged is not None:
        return Release(claim.id, cause, claim.judged)
    if known is not None and known.owner == claim.owner and known.state is State.ACTIVE:
        return Drain(claim.id, known.term, claim.op + 1, Cause.SILENT, None)
    return Release(claim.id, cause, claim.booking.term)


def _difference(claim: Claim, known: Booking, now: float) -> Call | None:
    term, op = known.term, claim.op + 1
    if known.state is State.DRAINING:
        return Reclaim(claim.id) if claim.want is Want.ACTIVE else None
    if len(claim.path) > 1:
        return Move(claim.id, term, op, *claim.path[1])
    if known.amount != claim.path[-1][1]:
        return Adjust(claim.id, term, op, claim.path[-1][1])
    if claim.want is Want.DRAINING:
        seconds = None if claim.deadline is None else max(0.0, claim.deadline - now)
        return Drain(claim.id, term, op, claim.cause or Cause.BROKEN, seconds)
    return None


def _anew(claim: Claim, now: float) -> Booking:
    """As the plane should get it: a new one begins active; one that it lost may be draining already."""
    worker, amount = claim.path[0]
    if claim.booking.term:
        return replace(claim.face(now), worker=worker, amount=amount)
    one = claim.booking
    return Booking(
        one.id, one.key, worker, one.owner, amount, one.attempt, 0, 0, State.ACTIVE, None, one.superseded, None,
        one.outrun,
    )  # fmt: skip


def _same_but_op(call: Call, other: Call) -> bool:
    match call, other:
        case (Move() | Adjust(), Move() | Adjust()) if type(call) is type(other):
            return replace(call, op=other.op) == other
        case Drain(), Drain():
            return replace(call, op=other.op, seconds=other.seconds) == other
    return False
