"""The values of the plane: what a booking is, and what may be said about it. No behaviour, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from stateplane.values import value

SCHEMA = 1
"""Number of the layout of records and changes. Version N reads N-1 and writes N-1 until every member is N."""


@value
class Amount:
    """What one request occupies on its worker."""

    prefill_tokens: int
    """Prompt tokens still to be computed there; 0 once prefill has ended."""
    blocks: int
    """KV blocks it occupies."""
    requests: int = 1

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.prefill_tokens + other.prefill_tokens,
            self.blocks + other.blocks,
            self.requests + other.requests,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.prefill_tokens - other.prefill_tokens,
            self.blocks - other.blocks,
            self.requests - other.requests,
        )


NOTHING = Amount(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Owner:
    """One life of one replica."""

    name: str
    incarnation: str
    """Fresh at each start, so that a replica restarted under its old name is somebody else."""

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation}"


class State(StrEnum):
    """Where a booking stands. One that is gone is no longer in the plane; its tombstone keeps the cause for a while."""

    ACTIVE = "active"
    DRAINING = "draining"


class Cause(StrEnum):
    """Why a booking turned draining, or went."""

    # to draining
    LEASE = "lease"  # its owner fell silent
    BROKEN = "broken"  # its stream broke without a proven end
    SILENT = "silent"  # the access log no longer names it
    SUPERSEDED = "superseded"  # a newer attempt took its place
    MOVED = "moved"  # another endpoint served; this is what may still run on the first
    HANDED = "handed"  # its owner shut down in good order while it ran
    # to gone, proven
    ENDED = "ended"  # the end of the response was seen
    LOGGED = "logged"  # the access log named its end
    REFUSED = "refused"  # no worker ever got it
    LEFT = "left"  # its worker left the pool
    # to gone, assumed: may come back under a higher term on proof of life
    EVIDENCE = "evidence"  # the worker's own report disproves it
    DEADLINE = "deadline"  # its drain deadline passed


PROVEN: frozenset[Cause] = frozenset({Cause.ENDED, Cause.LOGGED, Cause.REFUSED, Cause.LEFT})
"""Ends that are final in any term, from any replica."""

ASSUMED: frozenset[Cause] = frozenset({Cause.EVIDENCE, Cause.DEADLINE})
"""Ends that proof of life undoes."""


@value
class Booking:
    """This request occupies this worker with so much."""

    id: str
    """Minted by the picker, unique; `<id>~n` is what a move left behind on the n-th worker."""
    key: str
    """Request key, by which a retry is recognised; empty: not to be recognised."""
    worker: str
    owner: Owner
    amount: Amount
    attempt: int = 1
    """Counts the bookings of one request key that are known together; given by the plane."""
    term: int = 0
    """Who may change it: renewed by book, move, drain and reclaim; given by the plane."""
    op: int = 0
    """Number of the owner's last operation inside the term; older ones lose."""
    state: State = State.ACTIVE
    cause: Cause | None = None
    """Why it is draining."""
    superseded: bool = False
    """Never reclaimed nor adopted; proof of life only prolongs its draining."""
    drain_left: float | None = None
    """Seconds until its drain deadline, as of the snapshot or change that carried it; None while active."""
    outrun: bool = False
    """A newer attempt of its key was booked while it was active: the moment it turns draining it is superseded."""


class Version(NamedTuple):
    """A point in the plane's history: changes of one epoch are numbered without a gap. Compares as a tuple does."""

    epoch: int
    number: int


class Status(StrEnum):
    """What became of an operation."""

    DONE = "done"  # it took effect now
    SAME = "same"  # it had taken effect before; nothing changed
    STALE = "stale"  # a newer term or operation number rules; nothing changed
    GONE = "gone"  # the booking has ended (``cause`` says how); nothing changed
    UNKNOWN = "unknown"  # no such booking is known; nothing changed (a proven end is remembered all the same)
    FULL = "full"  # select only: every candidate is at its limit; nothing booked


@value
class Outcome:
    """The answer to an operation."""

    status: Status
    booking: Booking | None = None
    """As it stands in the plane after the operation."""
    cause: Cause | None = None
    """With GONE: how it ended."""
    superseded: tuple[str, ...] = ()
    """With a book: ids of the draining attempts of the same request key that it superseded."""
    version: Version | None = None


@value
class Booked:
    """A booking is there, or stands anew: the whole of it, never a difference."""

    version: Version
    booking: Booking


@value
class Gone:
    """A booking ended."""

    version: Version
    id: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class OwnerLapsed:
    """An owner's lease fell: all its active bookings are draining from here on, in this one change."""

    version: Version
    owner: Owner
    drain_left: float
    """Seconds until their drain deadline, as of this change."""
    cause: Cause = Cause.LEASE
    """Why they are draining: LEASE, or HANDED when the owner left in good order. Those ``outrun`` are superseded."""


@dataclass(frozen=True, slots=True)
class Rebooked:
    """All live bookings of this owner stand in this epoch: what a view kept of it from an older one goes."""

    version: Version
    owner: Owner


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes were missed, or a new epoch began: take a snapshot and watch on from its version."""

    reason: str


Change = Booked | Gone | OwnerLapsed | Rebooked | Gap


@dataclass(frozen=True, slots=True)
class Member:
    """One replica as the plane knows it."""

    owner: Owner
    info: Mapping[str, str] = field(default_factory=dict)
    """What it says of itself: schema, digest of the pool-wide settings, whether an access log reaches it, ..."""
    rebooked: bool = True
    """Whether all its live bookings stand in the current epoch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole picture at one version."""

    version: Version
    bookings: tuple[Booking, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    version: Version
    members: tuple[Member, ...]
    lapsed: tuple[Owner, ...] = ()
    """Owners whose lease fell in this beat."""
    reaped: int = 0
    """Bookings that went at their drain deadline in this beat."""
    rebased: bool = False
    """Deadlines were moved first, because the plane had not served for a while or its clock stepped."""
    returned: bool = False
    """This owner's own lease had fallen before: what it booked until then is draining until it reclaims it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One worker offered to an atomic choice.

    Its price is ``base + per_token * sum(prefill) + per_block * sum(blocks) + per_request * sum(requests)``.
    """

    worker: str
    base: float
    """The part of the price that does not depend on what is booked there, noise for temperature included."""
    amount: Amount
    """What the request would occupy there."""
    max_requests: int = 0
    """0: no limit."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The weights of an atomic choice."""

    per_token: float
    per_block: float
    per_request: float


@dataclass(frozen=True, slots=True)
class Rules:
    """Times that every replica of a pool must agree on, in seconds."""

    lease: float = 3.0
    heartbeat: float = 1.0
    drain: float = 30.0
    superseded_drain: float | None = None
    """None: the drain deadline."""
    tombstone: float = 60.0
