"""What a ledger keeps, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stateplane.booking import Booking, Cause, Owner, Rules
from stateplane.servingtime import ServingTime


@dataclass(slots=True)
class Entry:
    """A booking that stands."""

    booking: Booking
    lease: int
    deadline: int = 0
    """Serving time at which a draining booking goes."""
    via: int = -1
    """Number of the owner's operation that began the present term, by which its repetition is known."""


@dataclass(slots=True)
class Lease:
    """One uninterrupted stretch of an owner's heartbeats, with what was booked under it and is still active."""

    number: int
    owner: Owner
    until: int
    info: Mapping[str, str] = field(default_factory=dict)
    rebooked: bool = True


@dataclass(slots=True)
class Lapse:
    """A lease that fell: what was active under it is draining because this says so."""

    deadline: int
    cause: Cause


@dataclass(slots=True)
class Tombstone:
    """A booking that is gone."""

    cause: Cause
    until: int
    entry: Entry | None
    """What proof of life may bring back; None after a proven end."""


@dataclass(slots=True)
class Attempts:
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
    leases: list[Lease]
    lapses: dict[int, Lapse]
    entries: list[Entry]
    attempts: dict[str, Attempts]
    tombstones: dict[str, Tombstone]
