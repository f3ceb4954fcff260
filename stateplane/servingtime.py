"""Time that runs only while the plane serves. Pure: the server's time comes in, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from stateplane.booking import Rules


def milliseconds(seconds: float) -> int:
    """Seconds as whole milliseconds, the plane's unit of time."""
    return round(seconds * 1000)


@dataclass(slots=True)
class ServingTime:
    """The plane's own clock: the server's, less every stretch in which no heartbeat arrived and every step of it.

    All deadlines are kept in this time, so that moving ``skew`` rebases every one of them in one step.
    """

    lease: int
    heartbeat: int
    last: int
    """Serving time of the last heartbeat, milliseconds."""
    skew: int = 0
    """Server time minus serving time."""
    hold: int = 0
    """No lease falls before this serving time: after a pause every owner gets one lease to be heard again."""

    @classmethod
    def begin(cls, rules: Rules, now: int) -> ServingTime:
        """Start where the server's clock stands."""
        lease = milliseconds(rules.lease)
        return cls(lease=lease, heartbeat=milliseconds(rules.heartbeat), last=now, hold=now + lease)

    @property
    def longest(self) -> int:
        """The longest gap between two heartbeats that still counts as serving: half a heartbeat late."""
        return self.heartbeat + self.heartbeat // 2

    def at(self, now: int) -> int:
        """Serving time of a call between two heartbeats; a clock that stepped moves it by ``longest`` at most."""
        return min(max(now - self.skew, self.last), self.last + self.longest)

    def beat(self, now: int) -> bool:
        """A heartbeat arrived at that server time; True if the plane had paused or its clock had stepped.

        A pause inside the hold of another does not extend it, and each pause still counts for one heartbeat: so a
        plane that is heard only rarely lapses the dead all the same.
        """
        passed = now - self.skew - self.last
        if 0 <= passed <= self.longest:
            self.last += passed
            return False
        before = self.last
        self.last += self.heartbeat if passed > 0 else 0
        self.skew = now - self.last
        if before >= self.hold:
            self.hold = self.last + self.lease
        return True

    def restart(self, now: int) -> None:
        """The server came back at that time: what lies between did not pass, and every owner may be heard first."""
        self.skew = now - self.last
        self.hold = self.last + self.lease

    @property
    def holding(self) -> bool:
        """Whether leases are being held up."""
        return self.last < self.hold
