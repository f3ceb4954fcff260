"""What a caller may hand to a plane. A value outside is a fault of the program, told by ValueError before any call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stateplane.booking import ASSUMED, PROVEN, Amount, Booking, Candidate, Cause, Owner, Terms

LONGEST_NAME = 512
"""Characters of an id, a request key, a worker's or an owner's name."""
LARGEST_AMOUNT = 1 << 31
"""Sums of a million such amounts stay exact in a double, which is what Lua counts with."""
MOST_CANDIDATES = 256
ENDS = PROVEN | ASSUMED
LONGEST_INFO = 4096
"""Characters of all that a member says of itself."""


def name(value: str, what: str, *, empty: bool = False) -> str:
    """An id or a name: of bounded length, without control characters, encodable."""
    if not value and not empty:
        raise ValueError(f"{what} is empty")
    if len(value) > LONGEST_NAME:
        raise ValueError(
            f"{what} is {len(value)} characters long, at most {LONGEST_NAME} are allowed: {value[:40]!r}..."
        )
    if "\0" in value or not (value.isascii() or _encodable(value)):
        raise ValueError(f"{what} {value[:40]!r} holds a NUL or half a surrogate pair")
    return value


def _encodable(value: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in value)


def owner(value: Owner) -> Owner:
    """An owner with both its names."""
    name(value.name, "owner name")
    name(value.incarnation, "owner incarnation")
    return value


def amount(value: Amount) -> Amount:
    """Whole numbers from 0 on."""
    for number in (value.prefill_tokens, value.blocks, value.requests):
        if not 0 <= number <= LARGEST_AMOUNT:
            raise ValueError(
                f"amount {value} is out of range: each number must be from 0 to {LARGEST_AMOUNT}"
            )
    return value


def booking(value: Booking) -> Booking:
    """A booking as it may be handed in."""
    name(value.id, "booking id")
    name(value.key, "request key", empty=True)
    name(value.worker, "worker")
    amount(value.amount)
    if value.term < 0 or value.op < 0 or value.attempt < 0:
        raise ValueError(f"booking {value.id!r}: term, op and attempt are never negative")
    return value


def operation(booking_id: str, op: int) -> None:
    """An owner's operation: they are numbered from 1 inside a term."""
    name(booking_id, "booking id")
    if op < 1:
        raise ValueError(f"operation number {op} of {booking_id!r}: they count from 1")


def drain_cause(cause: Cause) -> None:
    """A cause for draining."""
    if cause in ENDS:
        raise ValueError(f"{cause.value!r} ends a booking, it is no cause for draining")


def end_cause(cause: Cause, term: int | None) -> None:
    """A cause for an end; an assumed one needs the term that it was judged in."""
    if cause not in ENDS:
        raise ValueError(f"{cause.value!r} does not end a booking")
    if cause in ASSUMED and term is None:
        raise ValueError(f"an end by {cause.value!r} needs the term that it was judged in")


def choice(candidates: Sequence[Candidate], terms: Terms) -> None:
    """Candidates and weights that can be compared."""
    if not 0 < len(candidates) <= MOST_CANDIDATES:
        raise ValueError(f"{len(candidates)} candidates: there must be from 1 to {MOST_CANDIDATES}")
    numbers = [terms.per_token, terms.per_block, terms.per_request, *(one.base for one in candidates)]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("a price term is not a finite number")
    for one in candidates:
        name(one.worker, "worker")
        amount(one.amount)


def info(value: Mapping[str, str]) -> None:
    """What a member says of itself."""
    size = sum(len(key) + len(text) for key, text in value.items())
    if size > LONGEST_INFO:
        raise ValueError(f"member info is {size} characters long, at most {LONGEST_INFO} are allowed")


__all__ = ["amount", "booking", "choice", "drain_cause", "end_cause", "info", "name", "operation", "owner"]
