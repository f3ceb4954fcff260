"""The times that bookings must keep to, and from when they count.

From DESIGN: what no engine carries any more is gone from every view 6 s after a replica's SIGKILL where the worker
reports; within 2 s of the plane's return all views are whole again. `SLACK_SECONDS` is added to each bound: the whole
pool shares the machine with the suite itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chaos.story import FOREVER, FaultLife, Story, View

REPORTED_SECONDS = 6.0
REBUILD_SECONDS = 2.0
SLACK_SECONDS = 2.0
HARMLESS = frozenset({"slow-consumer"})
"""Kinds of fault that happen on a server, and must not be felt by anybody else there."""
VISIBLE_SECONDS = 1.0
"""How long a booking may take into everybody's view while nothing is wrong."""
MISLOGGED_SECONDS = 4.0 + 1.0
"""How long the gateway may write its log to a replica that stands still: its connections' keepalive (2 s, and 2 s for
the answer); then a request that runs is told of within a second."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which something cannot be asked for; ``end`` is `FOREVER` where it never healed."""

    begin: float
    end: float

    def covers(self, t: float) -> bool:
        """Whether it was on at that time."""
        return self.begin <= t < self.end


def _span(fault: FaultLife) -> Span:
    return Span(fault.begun, FOREVER if fault.healed is None else fault.healed)


def touches_plane(fault: FaultLife, story: Story, replicas: Iterable[str]) -> bool:
    """Whether a fault is one of the plane, or of these replicas' ways to it."""
    if fault.kind in HARMLESS:
        return False
    if fault.target in {"plane", "valkey"} | ({"nats"} if story.header.get("plane") == "nats" else set()):
        return True
    # a link to NATS carries events only: bookings have a connection of their own there, too
    who, _, whom = fault.target.partition(">")
    return whom == "plane" and (who == "*" or who in set(replicas))


def touches_gateway(fault: FaultLife) -> bool:
    """Whether a fault is one of the gateway, or of its ways."""
    return fault.target == "envoy" or fault.target.startswith("envoy>")


class Clock:
    """Says when the time of a bound begins to count, for one view of one replica.

    Where the suite itself stood still, every clock begins anew.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        self._epochs = {name: list(_epoch_changes(views)) for name, views in story.views.items()}

    def blind(self, replica: str, t: float, *, owner: str = "") -> bool:
        """Whether that replica's view cannot learn of an owner's bookings at that time, nor be whole again yet."""
        if self.starved(t):
            return True
        for fault in self._story.faults:
            span = _span(fault)
            if not span.begin <= t < span.end + REBUILD_SECONDS + SLACK_SECONDS:
                continue
            if touches_plane(fault, self._story, (replica, owner)) or fault.target in (replica, owner):
                return True
        return False

    def unheard(self, t: float) -> bool:
        """Whether the gateway's log tells less than there is at that time, or did so a moment before."""
        return any(self._silences(fault, t) for fault in self._story.faults)

    def _silences(self, fault: FaultLife, t: float) -> bool:
        if touches_gateway(fault):
            return _span(fault).begin <= t < _span(fault).end + REPORTED_SECONDS
        frozen = fault.kind == "freeze" and fault.target in self._story.replicas
        return frozen and fault.begun <= t < fault.begun + MISLOGGED_SECONDS + VISIBLE_SECONDS

    def rebuilding(self, replica: str, t: float) -> bool:
        """Whether that replica's view may just be swapped: the plane came back, or the replica itself."""
        grace = REBUILD_SECONDS + SLACK_SECONDS
        if self.starved(t):
            return True
        if any(change <= t < change + grace for change in self._epochs.get(replica, ())):
            return True
        for fault in self._story.faults:
            span = _span(fault)
            if fault.target == replica and span.begin <= t < span.end + grace:
                return True
            if touches_plane(fault, self._story, (replica,)) and span.end <= t < span.end + grace:
                return True
        return False

    def since(self, view: View, owner: str, ended: float) -> float | None:
        """From when a booking whose work ended at ``ended`` may be held against this view; None: not now.

        A fault of the plane or of the gateway stops the clock until it is healed. So does one of the view's own
        replica, and one of any replica's way to the plane: the log of ends reaches one replica only, and what that one
        picks unseen hides from the others' reports that a booking's work is over. The owner's death or standstill
        starts it anew, and so does its return.
        """
        start, t = ended, view.asked
        for fault in self._story.faults:
            if fault.begun > t:
                continue
            span = _span(fault)
            stops = touches_plane(fault, self._story, self._story.replicas) or touches_gateway(fault)
            if stops or fault.target == view.replica:
                if span.covers(t):
                    return None
                start = max(start, span.end)
            elif fault.target == owner:
                start = max(start, span.begin, span.end if span.end <= t else 0.0)
        changes = [change for change in self._epochs.get(view.replica, ()) if change <= t]
        stalls = [end for _, end in self._story.stalls if end <= t]
        return max([start, *changes, *stalls])

    def starved(self, begin: float, end: float | None = None) -> bool:
        """Whether the suite stood still then, or just before, and with it most likely everything else."""
        last = begin if end is None else end
        grace = REBUILD_SECONDS + SLACK_SECONDS
        return any(stall <= last and begin < over + grace for stall, over in self._story.stalls)


def _epoch_changes(views: Iterable[View]) -> Iterable[float]:
    epoch: int | None = None
    for view in views:
        if epoch is not None and view.epoch != epoch:
            yield view.told
        epoch = view.epoch
