"""How fast a pool books, and how late one replica sees it. Pure: takes ``now``, seconds that never fall."""

from __future__ import annotations

import math

OVER_SECONDS = 5.0
"""The rate is an average over about so long."""
WEIGHT = 0.05
"""Of one more booking in the smoothed staleness."""


class Pace:
    """The rate of new bookings of all replicas, and the time from a pick to its sight in the views.

    Both are told from what the plane's feed brings; a replica's own bookings come back to it over the same way as to
    the others, which is how late they see them.
    """

    __slots__ = ("_counted", "_counted_at", "staleness")

    def __init__(self) -> None:
        self._counted = 0.0
        self._counted_at = 0.0
        self.staleness = 0.0
        """Seconds, smoothed; 0 until an own booking has come back."""

    def booked(self, now: float) -> None:
        """The feed brought a booking that was not known before."""
        self._counted = self._faded(now) + 1.0
        self._counted_at = now

    def returned(self, seconds: float) -> None:
        """The feed brought a booking of our own, so long after it was made."""
        seconds = max(seconds, 0.0)
        self.staleness = (
            seconds if not self.staleness else self.staleness + WEIGHT * (seconds - self.staleness)
        )

    def rate(self, at: float) -> float:
        """Bookings per second as of a moment, the last in which the view was level: a silent feed is no slow pool."""
        return self._faded(at) / OVER_SECONDS

    def _faded(self, now: float) -> float:
        return self._counted * math.exp(-max(now - self._counted_at, 0.0) / OVER_SECONDS)
