"""Sums of bookings per worker, kept up to date one booking at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from stateplane.booking import NOTHING, Amount, Booking, Owner

Listener = Callable[[str, int, int, float], None]
"""Told ``(worker, requests, blocks, now)`` with the new sums of a worker; must not raise."""


class Tally:
    """What counts, by id: the bookings themselves, their sums per worker, and which share a request key.

    ``owner``'s own bookings are summed apart as well.

    Every change costs O(1). A worker without bookings has no entry: the number of entries is bounded by the bookings.
    """

    __slots__ = (
        "_bookings", "_keys", "_listeners", "_loads", "_own", "_owner", "_workers", "bookings", "loads", "own",
    )  # fmt: skip

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner
        self._bookings: dict[str, Booking] = {}
        self._loads: dict[str, Amount] = {}
        self._own: dict[str, Amount] = {}
        self._keys: dict[str, set[str]] = {}
        self._workers: dict[str, set[str]] = {}
        self._listeners: list[Listener] = []
        self.bookings: Mapping[str, Booking] = MappingProxyType(self._bookings)
        self.loads: Mapping[str, Amount] = MappingProxyType(self._loads)
        self.own: Mapping[str, Amount] = MappingProxyType(self._own)

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` of every worker whose sums change from now on."""
        self._listeners.append(listener)

    def by_key(self, key: str) -> tuple[Booking, ...]:
        """The bookings of one request key, by attempt; an empty key joins nothing."""
        found = [self._bookings[id_] for id_ in self._keys.get(key, ())]
        return tuple(sorted(found, key=lambda booking: (booking.attempt, booking.id)))

    def on(self, worker: str) -> tuple[Booking, ...]:
        """The bookings on one worker, in no order."""
        return tuple(self._bookings[id_] for id_ in self._workers.get(worker, ()))

    def put(self, changed: Iterable[tuple[str, Booking | None]], now: float) -> None:
        """Let these ids stand so (None: no longer); listeners hear each touched worker once, after all of them."""
        before: dict[str, Amount] = {}
        for id_, booking in changed:
            old = self._bookings.get(id_)
            if old == booking:
                continue
            if old is not None:
                before.setdefault(old.worker, self._loads.get(old.worker, NOTHING))
                self._take(old)
            if booking is not None:
                before.setdefault(booking.worker, self._loads.get(booking.worker, NOTHING))
                self._add(booking)
        for worker, was in before.items():
            load = self._loads.get(worker, NOTHING)
            if load == NOTHING:
                self._loads.pop(worker, None)
            if load != was:
                for listener in self._listeners:
                    listener(worker, load.requests, load.blocks, now)

    def _add(self, booking: Booking) -> None:
        self._bookings[booking.id] = booking
        if booking.key:
            self._keys.setdefault(booking.key, set()).add(booking.id)
        self._workers.setdefault(booking.worker, set()).add(booking.id)
        self._loads[booking.worker] = self._loads.get(booking.worker, NOTHING) + booking.amount
        if booking.owner == self._owner:
            self._own[booking.worker] = self._own.get(booking.worker, NOTHING) + booking.amount

    def _take(self, booking: Booking) -> None:
        del self._bookings[booking.id]
        if booking.key:
            _discard(self._keys, booking.key, booking.id)
        _discard(self._workers, booking.worker, booking.id)
        self._loads[booking.worker] = self._loads.get(booking.worker, NOTHING) - booking.amount
        if booking.owner == self._owner:
            left = self._own.get(booking.worker, NOTHING) - booking.amount
            if left == NOTHING:
                self._own.pop(booking.worker, None)
            else:
                self._own[booking.worker] = left


def _discard(sets: dict[str, set[str]], name: str, id_: str) -> None:
    ids = sets[name]
    ids.discard(id_)
    if not ids:
        del sets[name]
