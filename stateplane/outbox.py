"""The bookings whose newest state the plane has yet to be told: a bounded queue of ids, each at most once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class Outbox:
    """Ids waiting to be sent, oldest first. What is said of one is looked up when it is taken: the newest counts."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, booking_id: str) -> bool:
        return booking_id in self._ids

    @property
    def full(self) -> bool:
        """Whether one more id would push the oldest out."""
        return len(self._ids) >= self._capacity

    def put(self, booking_id: str, *, first: bool = False) -> str | None:
        """Let an id wait, ``first`` where it was taken before and came back; returns the id that was pushed out."""
        self._filled.set()
        if booking_id in self._ids:
            return None
        pushed = self._ids.popitem(last=False)[0] if self.full else None
        self._ids[booking_id] = None
        if first:
            self._ids.move_to_end(booking_id, last=False)
        return pushed

    def discard(self, booking_id: str) -> None:
        """Nothing is to be said of that id any more."""
        self._ids.pop(booking_id, None)

    def take(self) -> str | None:
        """The id that waited longest."""
        return self._ids.popitem(last=False)[0] if self._ids else None

    async def filled(self) -> None:
        """Wait until there is something to take."""
        while not self._ids:
            self._filled.clear()
            await self._filled.wait()
