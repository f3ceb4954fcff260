"""The last decisions, kept for `/why/ID`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

LONGEST_NAME = 200
"""A longer request id is not remembered: ids come from clients."""

WEIGHT_PER_DECISION = 32
"""A decision that weighed more workers than this takes the place of several."""


class Decision(Protocol):
    """A decision; it is put into words only when somebody asks."""

    @property
    def weight(self) -> int:
        """How many workers it weighed: what it costs to keep."""
        ...

    def shown(self) -> Mapping[str, Any]:
        """The decision as JSON values."""
        ...


class Journal:
    """The last ``keep`` decisions, found by booking id and by the client's request id.

    A client may repeat a request id; the newest decisions under it are kept, at most ``history`` of them. In large
    pools fewer decisions are kept, so that memory stays bounded by ``keep`` alone.
    """

    def __init__(self, keep: int, *, history: int = 8) -> None:
        self._keep = keep
        self._history = history
        self._weight, self._most = 0, keep * WEIGHT_PER_DECISION
        self._decisions: OrderedDict[str, tuple[Decision, int]] = OrderedDict()
        """Each with what it weighs."""
        self._by_request: OrderedDict[str, str | list[str]] = OrderedDict()
        """Booking ids, oldest first; a single one, which is what most requests have, stands for itself."""

    def note(self, booking_id: str, request_id: str, decision: Decision) -> None:
        """Remember a decision; the oldest go when there are too many."""
        if self._keep == 0:
            return
        decisions, by_request = self._decisions, self._by_request
        weight = decision.weight
        decisions[booking_id] = decision, weight
        self._weight += weight
        while len(decisions) > self._keep or (self._weight > self._most and len(decisions) > 1):
            self._weight -= decisions.popitem(last=False)[1][1]
        if not request_id or len(request_id) > LONGEST_NAME:
            return
        earlier = by_request.get(request_id)
        by_request[request_id] = booking_id if earlier is None else self._joined(earlier, booking_id)
        if earlier is not None:
            by_request.move_to_end(request_id)
        elif len(by_request) > self._keep:
            by_request.popitem(last=False)

    def _joined(self, earlier: str | list[str], booking_id: str) -> list[str]:
        ids = [earlier] if isinstance(earlier, str) else earlier
        ids.append(booking_id)
        del ids[: -self._history]
        return ids

    def why(self, name: str) -> list[Mapping[str, Any]]:
        """The decisions under a booking id or a request id, newest first; empty when none is remembered."""
        if name in self._decisions:
            return [self._decisions[name][0].shown()]
        ids = self._by_request.get(name, [])
        found = [
            self._decisions.get(booking_id) for booking_id in reversed([ids] if isinstance(ids, str) else ids)
        ]
        return [kept[0].shown() for kept in found if kept is not None]
