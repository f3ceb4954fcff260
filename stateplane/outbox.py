"""The bookings whose newest state the plane has yet to be told: a bounded queue of ids, each at most once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from itertools import islice

LINGER_SECONDS = 0.004
"""What is no new booking waits so long for more to be said of it: a prefill and a request that end in one moment make
one call."""


class Outbox:
    """Ids waiting to be sent, oldest first. What is said of one is looked up when it is taken: the newest counts."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, float] = OrderedDict()
        """Each with the time from which on it is `due`."""
        self._filled = asyncio.Event()
        self._urgent = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, booking_id: str) -> bool:
        return booking_id in self._ids

    @property
    def full(self) -> bool:
        """Whether one more id would push the oldest out."""
        return len(self._ids) >= self._capacity

    def put(self, booking_id: str, *, first: bool = False, at: float | None = None) -> str | None:
        """Let an id wait; returns the id that was pushed out.

        ``first`` where it was taken before and came back; ``at``: when it was put, where it may wait a moment for more
        to be said of it. None: others are to see it as soon as can be.
        """
        self._filled.set()
        if at is None:
            self._urgent.set()
        if booking_id in self._ids:
            return None
        pushed = self._ids.popitem(last=False)[0] if self.full else None
        self._ids[booking_id] = 0.0 if at is None else at + LINGER_SECONDS
        if first:
            self._ids.move_to_end(booking_id, last=False)
        return pushed

    def discard(self, booking_id: str) -> None:
        """Nothing is to be said of that id any more."""
        self._ids.pop(booking_id, None)

    def take(self) -> str | None:
        """The id that waited longest."""
        return self._ids.popitem(last=False)[0] if self._ids else None

    def due(self, now: float, most: int) -> list[str]:
        """Take what has waited long enough, at most so many ids, those that waited longest first."""
        ids = list(islice((booking_id for booking_id, due in self._ids.items() if due <= now), most))
        for booking_id in ids:
            del self._ids[booking_id]
        return ids

    async def gathered(self) -> None:
        """Wait until something urgent has come since the last call, or what came before it is due."""
        if not self._urgent.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._urgent.wait()
        self._urgent.clear()

    async def filled(self) -> None:
        """Wait until there is something to take."""
        while not self._ids:
            self._filled.clear()
            await self._filled.wait()
