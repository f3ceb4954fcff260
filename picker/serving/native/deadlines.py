"""Deadlines of very many streams by one timer.

A deadline belongs to a slot of a few hundredths of a second. One that moves later stays where it is until its slot is
due, and is put into a new one then: most deadlines move with every message, and few are ever reached.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

SLOT_SECONDS = 0.05
"""How much later than its deadline a stream may be told."""


class Waiting(Protocol):
    """What has a deadline."""

    slot: int
    """The slot it is in; 0: none. Set by `Deadlines` alone."""

    @property
    def deadline(self) -> float | None:
        """When it is to be told; None: never."""
        ...

    def due(self, now: float) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """All deadlines of one server. Does nothing while there are none."""

    def __init__(self, clock: Callable[[], float], defect: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._defect = defect
        self._slots: dict[int, set[Waiting]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0
        self._loop = asyncio.get_running_loop()

    def put(self, waiting: Waiting, deadline: float) -> None:
        """Be sure to tell by this deadline; calls for a later one than it is already in cost nothing."""
        slot = int(deadline / SLOT_SECONDS) + 1
        if waiting.slot:
            if waiting.slot <= slot:
                return
            self.drop(waiting)
        waiting.slot = slot
        members = self._slots.get(slot)
        if members is not None:
            members.add(waiting)
            return
        self._slots[slot] = {waiting}
        heapq.heappush(self._order, slot)
        if self._timer is None or slot < self._next:
            self._arm()

    def drop(self, waiting: Waiting) -> None:
        """Forget it."""
        members = self._slots.get(waiting.slot)
        if members is not None:
            members.discard(waiting)
        waiting.slot = 0

    def close(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._slots.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            self._next = self._order[0]
            self._timer = self._loop.call_later(
                max(0.0, self._next * SLOT_SECONDS - self._clock()), self._fire
            )

    def _fire(self) -> None:
        self._timer = None
        now = self._clock()
        while self._order and self._order[0] * SLOT_SECONDS <= now:
            for waiting in self._slots.pop(heapq.heappop(self._order), ()):
                waiting.slot = 0
                self._tell(waiting, now)
        self._arm()

    def _tell(self, waiting: Waiting, now: float) -> None:
        deadline = waiting.deadline
        if deadline is None:
            return
        if deadline > now:
            self.put(waiting, deadline)
            return
        try:
            waiting.due(now)
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            self._defect(error)
