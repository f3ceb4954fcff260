"""What a case stands on: the harness of a backend, and planes opened through it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from stateplane.booking import (
    NOTHING,
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
from stateplane.plane import StatePlane

RULES = Rules(lease=3.0, heartbeat=1.0, drain=30.0, tombstone=60.0)
"""What a harness opens its planes with."""
PATIENCE = 5.0
"""Seconds of real time that a change may take to be seen."""


class Harness(Protocol):
    """A backend under test, with a server that can be made to fail. Open planes with ``RULES``."""

    timeout: float
    """Deadline of each call of its planes, seconds."""

    def open(self, owner: Owner, *, pool: str) -> StatePlane:
        """A plane that was not started yet."""
        ...

    async def move_clock(self, seconds: float) -> None:
        """Let the server's clock read so much more, or less, from now on."""
        ...

    async def restart(self, *, lose: bool) -> None:
        """End the server as by a crash and bring it back; ``lose``: empty."""
        ...

    async def stop(self) -> None:
        """End the server as by a crash; ``restart`` brings it back."""
        ...

    async def freeze(self) -> None:
        """Let the server answer nobody, with its connections open."""
        ...

    async def thaw(self) -> None:
        """Let it go on."""
        ...

    async def forget_history(self) -> None:
        """Cut the kept changes of every pool as far as a long time would."""
        ...


class World:
    """The planes of one case."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._planes: dict[str, list[StatePlane]] = {}

    def open(self, name: str, *, incarnation: str = "1", pool: str = "ns/pool") -> StatePlane:
        """A plane that was not started."""
        plane = self.harness.open(Owner(name, incarnation), pool=pool)
        self._planes.setdefault(pool, []).append(plane)
        return plane

    async def join(self, name: str, *, incarnation: str = "1", pool: str = "ns/pool") -> StatePlane:
        """A plane that has started and has nothing to book again."""
        plane = self.open(name, incarnation=incarnation, pool=pool)
        await plane.start({"schema": "1"})
        await plane.rebooked()
        return plane

    async def live(self, seconds: float, *planes: StatePlane) -> None:
        """Let that much time pass while these planes send their heartbeats."""
        whole, rest = divmod(seconds, RULES.heartbeat)
        for step in [RULES.heartbeat] * int(whole) + ([rest] if rest else []):
            await self.harness.move_clock(step)
            for plane in planes:
                await plane.beat({"schema": "1"})

    async def audit(self) -> None:
        """In every pool, the sums equal the sum of the bookings."""
        for pool in self._planes:
            plane = self.harness.open(Owner("auditor", pool), pool=pool)
            try:
                await plane.start({})
                await exact(plane)
            finally:
                await plane.close()

    async def close(self) -> None:
        """Close every plane."""
        for planes in self._planes.values():
            for plane in planes:
                await plane.close()


Case = Callable[[World], Awaitable[None]]


async def run(case: Case, harness: Harness) -> None:
    """Run one case; raises AssertionError where the plane breaks its promise."""
    world = World(harness)
    try:
        await case(world)
        await world.audit()
    finally:
        await world.close()


# --- what cases say often


def booking(
    booking_id: str,
    *,
    key: str = "",
    worker: str = "w1",
    tokens: int = 100,
    blocks: int = 10,
    owner: Owner | None = None,
) -> Booking:
    """A booking to hand in."""
    return Booking(booking_id, key, worker, owner or Owner("nobody", "0"), Amount(tokens, blocks))


def stands(outcome: Outcome, status: Status = Status.DONE) -> Booking:
    """The booking that an outcome carries, after checking its status."""
    assert outcome.status is status, outcome
    assert outcome.booking is not None, outcome
    return outcome.booking


def found(snapshot: Snapshot, booking_id: str) -> Booking | None:
    """The booking of that id."""
    return next((one for one in snapshot.bookings if one.id == booking_id), None)


async def standing(plane: StatePlane, booking_id: str) -> Booking:
    """The booking as the plane shows it; it must be there."""
    one = found(await plane.snapshot(), booking_id)
    assert one is not None, f"{booking_id} is not in the plane"
    return one


async def absent(plane: StatePlane, booking_id: str) -> None:
    """It must not be there."""
    assert found(await plane.snapshot(), booking_id) is None, f"{booking_id} is in the plane"


async def exact(plane: StatePlane) -> None:
    """The sums equal the sum of the bookings."""
    sums = dict(await plane.sums())
    counted: dict[str, Amount] = {}
    for one in (await plane.snapshot()).bookings:
        counted[one.worker] = counted.get(one.worker, NOTHING) + one.amount
    assert sums == {worker: amount for worker, amount in counted.items() if amount != NOTHING}, (
        sums,
        counted,
    )


async def watched(plane: StatePlane, after: Version, *, until: Version) -> list[Change]:
    """The changes after one version up to another."""
    seen: list[Change] = []
    if after == until:
        return seen
    feed = plane.changes(after)
    try:
        async with asyncio.timeout(PATIENCE):
            async for change in feed:
                seen.append(change)
                if isinstance(change, Gap) or change.version >= until:
                    return seen
    finally:
        await feed.aclose()  # type: ignore[attr-defined]
    return seen


def fold(bookings: dict[str, Booking], changes: list[Change]) -> dict[str, Booking]:
    """Apply changes to a picture, as a view does."""
    for change in changes:
        match change:
            case Booked(booking=one):
                bookings[one.id] = one
            case Gone(id=gone):
                bookings.pop(gone, None)
            case OwnerLapsed(owner=owner, drain_left=left, cause=cause):
                for one in list(bookings.values()):
                    if one.owner == owner and one.state is State.ACTIVE:
                        bookings[one.id] = _lapsed(one, left, cause)
            case Gap(reason=reason):
                raise AssertionError(f"a gap: {reason}")
            case _:
                pass
    return bookings


def _lapsed(one: Booking, left: float, cause: Cause) -> Booking:
    return replace(
        one, state=State.DRAINING, cause=cause, drain_left=left, superseded=one.superseded or one.outrun
    )


def timeless(bookings: dict[str, Booking]) -> dict[str, Booking]:
    """The picture without what the clock changes."""
    return {booking_id: replace(one, drain_left=None) for booking_id, one in bookings.items()}
