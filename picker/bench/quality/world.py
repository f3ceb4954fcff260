"""A clock that jumps from one happening to the next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class World:
    """Virtual time: what is due is done in order of its time, things of one moment in the order they were asked for."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()

    def now(self) -> float:
        """Seconds since the start of the world."""
        return self._now

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Do that so much later; with 0 at once, before this returns."""
        if seconds <= 0:
            call()
        else:
            heappush(self._due, (self._now + seconds, next(self._serial), call))

    def every(self, seconds: float, call: Callable[[], None], *, first: float) -> None:
        """Do that again and again, beginning at a time."""

        def again() -> None:
            call()
            self.later(seconds, again)

        heappush(self._due, (first, next(self._serial), again))

    def run(self, busy: Callable[[], bool]) -> None:
        """Go on while ``busy`` says so.

        Raises:
            RuntimeError: nothing is due any more although it says so.
        """
        due = self._due
        while busy():
            if not due:
                raise RuntimeError("the simulation stands still: requests are left and nothing is due")
            self._now, _, call = heappop(due)
            call()
