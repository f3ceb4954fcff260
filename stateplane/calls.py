"""What a replica may ask of the plane about one booking, as values."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from stateplane.booking import Amount, Booking, Cause, Outcome
from stateplane.plane import StatePlane


@dataclass(frozen=True, slots=True)
class Book:
    """Let it stand; with a term above 0 again, after the plane may have lost it."""

    booking: Booking

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.book(self.booking)


@dataclass(frozen=True, slots=True)
class Move:
    """Another endpoint served."""

    id: str
    term: int
    op: int
    worker: str
    amount: Amount

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.move(self.id, term=self.term, op=self.op, worker=self.worker, amount=self.amount)


@dataclass(frozen=True, slots=True)
class Adjust:
    """It occupies so much now."""

    id: str
    term: int
    op: int
    amount: Amount

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.adjust(self.id, term=self.term, op=self.op, amount=self.amount)


@dataclass(frozen=True, slots=True)
class Drain:
    """Neither its end nor its life is proven."""

    id: str
    term: int
    op: int
    cause: Cause
    seconds: float | None

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.drain(self.id, term=self.term, op=self.op, cause=self.cause, seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """It lives: ours again, or ours from now on."""

    id: str

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.reclaim(self.id)


@dataclass(frozen=True, slots=True)
class Release:
    """It ended."""

    id: str
    cause: Cause
    term: int | None

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.release(self.id, self.cause, term=self.term)


Call = Book | Move | Adjust | Drain | Reclaim | Release
