"""How the plane does, told from the calls made to it. Pure: takes ``now``, returns values."""

from __future__ import annotations

from enum import StrEnum


class Health(StrEnum):
    """How the plane does."""

    HEALTHY = "healthy"
    SLOW = "slow"  # it answers, but late or not always
    AWAY = "away"  # it does not answer; one probe at a time finds out when it does


class Breaker:
    """Healthy, slow or away, and since when.

    ``failures`` calls in a row without an answer mean away; a single one, or a smoothed call time above ``slow``
    seconds, means slow. Times are monotonic seconds.
    """

    __slots__ = ("_failures", "_failures_most", "_slow", "reason", "since", "smoothed", "state")

    def __init__(
        self, *, now: float, failures: int = 2, slow: float = 0.1, state: Health = Health.AWAY
    ) -> None:
        self._failures_most = failures
        self._slow = slow
        self._failures = 0
        self.state = state
        self.since = now
        self.smoothed = 0.0
        """Seconds that a call takes, smoothed."""
        self.reason = ""
        """What the last failed call said, empty while healthy."""

    def answered(self, now: float, seconds: float) -> bool:
        """A call was answered after so many seconds; True where that changed the state."""
        back = self.state is Health.AWAY
        self.smoothed = seconds if back else self.smoothed + 0.1 * (seconds - self.smoothed)
        self._failures = 0
        slow = self.smoothed > self._slow * (0.5 if self.state is Health.SLOW else 1.0)
        if not slow:
            self.reason = ""
        return self._turn(Health.SLOW if slow else Health.HEALTHY, now)

    def failed(self, now: float, reason: str) -> bool:
        """A call was not answered; True where that changed the state."""
        self._failures += 1
        self.reason = reason
        if self.state is Health.AWAY:
            return False
        return self._turn(Health.AWAY if self._failures >= self._failures_most else Health.SLOW, now)

    def _turn(self, state: Health, now: float) -> bool:
        if state is self.state:
            return False
        self.state, self.since = state, now
        return True
