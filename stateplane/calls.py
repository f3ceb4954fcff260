"""What a replica may ask of the plane about one booking, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, runtime_checkable

from stateplane.booking import Amount, Booking, Cause, Outcome
from stateplane.plane import StatePlane
from stateplane.values import value


@value
class Book:
    """Let it stand; with a term above 0 again, after the plane may have lost it."""

    booking: Booking

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.book(self.booking)


@value
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


@value
class Adjust:
    """It occupies so much now."""

    id: str
    term: int
    op: int
    amount: Amount

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.adjust(self.id, term=self.term, op=self.op, amount=self.amount)


@value
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


@value
class Reclaim:
    """It lives: ours again, or ours from now on."""

    id: str

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.reclaim(self.id)


@value
class Release:
    """It ended."""

    id: str
    cause: Cause
    term: int | None

    def on(self, plane: StatePlane) -> Awaitable[Outcome]:
        """Make the call."""
        return plane.release(self.id, self.cause, term=self.term)


Call = Book | Move | Adjust | Drain | Reclaim | Release


@runtime_checkable
class Together(Protocol):
    """A plane that takes several operations in one write."""

    async def together(self, calls: Sequence[Call]) -> Sequence[Outcome | Exception]:
        """Make these calls: each one's outcome in their order, or the error that its own method would raise.

        They are of different bookings. Each keeps the promises and the deadline of its own method, and none fails for
        another's sake, unless the plane is lost for all of them.
        """
        ...
