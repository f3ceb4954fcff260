"""Sums of bookings per worker, kept up to date one booking at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType

from stateplane.booking import NOTHING, Amount, Booking, Owner

Listener = Callable[[str, int, int, float], None]
"""Told ``(worker, requests, blocks, now)`` with the new sums of a worker; must not raise."""

SHOWN_ATTEMPTS = 16
"""Most bookings of one request key that are looked at."""


class Tally:
    """What counts, by id: the bookings themselves, their sums per worker, and which share a request key.

    ``owner``'s own bookings are summed apart as well.

    Every change costs O(1). A worker without bookings has no entry: the number of entries is bounded by the bookings.
    """

    __slots__ = (
        "_bookings", "_keys", "_listeners", "_loads", "_on", "_own", "_owner", "_workers", "bookings", "loads", "own",
    )  # fmt: skip

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner
        self._bookings: dict[str, Booking] = {}
        self._loads: dict[str, Amount] = {}
        self._own: dict[str, Amount] = {}
        self._keys: dict[str, dict[str, None]] = {}
        self._workers: dict[str, set[str]] = {}
        self._on: dict[str, tuple[Booking, ...]] = {}
        self._listeners: list[Listener] = []
        self.bookings: Mapping[str, Booking] = MappingProxyType(self._bookings)
        self.loads: Mapping[str, Amount] = MappingProxyType(self._loads)
        self.own: Mapping[str, Amount] = MappingProxyType(self._own)

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` of every worker whose sums change from now on."""
        self._listeners.append(listener)

    def by_key(self, key: str) -> tuple[Booking, ...]:
        """The bookings of one request key, by attempt; an empty key joins nothing.

        Of more than `SHOWN_ATTEMPTS` those that were heard of last: a client may give all its requests one id.
        """
        ids = self._keys.get(key)
        if ids is None:
            return ()
        latest: Iterable[str] = ids if len(ids) <= SHOWN_ATTEMPTS else islice(reversed(ids), SHOWN_ATTEMPTS)
        found = [self._bookings[id_] for id_ in latest]
        found.sort(key=_attempt)
        return tuple(found)

    def on(self, worker: str) -> tuple[Booking, ...]:
        """The bookings on one worker, in no order: the same object until one of them changes."""
        found = self._on.get(worker)
        if found is None:
            ids = self._workers.get(worker)
            if ids is None:
                return ()
            found = self._on[worker] = tuple(map(self._bookings.__getitem__, ids))
        return found

    def put(self, changed: Iterable[tuple[str, Booking | None]], now: float) -> None:
        """Let these ids stand so (None: no longer); listeners hear each touched worker once, after all of them."""
        before: dict[str, Amount] = {}
        for id_, booking in changed:
            self._let(id_, booking, before)
        self._tell(before, now)

    def put_one(self, id_: str, booking: Booking | None, now: float) -> None:
        """As `put`, of one id."""
        before: dict[str, Amount] = {}
        self._let(id_, booking, before)
        if before:
            self._tell(before, now)

    def _tell(self, before: Mapping[str, Amount], now: float) -> None:
        for worker, was in before.items():
            load = self._loads.get(worker, NOTHING)
            if load is not was and load != was:
                for listener in self._listeners:
                    listener(worker, load.requests, load.blocks, now)

    def _let(self, id_: str, booking: Booking | None, before: dict[str, Amount]) -> None:
        """Let one id stand so; ``before`` gets what the workers whose sums are touched carried before all."""
        old = self._bookings.get(id_)
        if old is booking:
            return
        if old is None:
            assert booking is not None
            self._add(booking, before)
        elif booking is None:
            self._take(old, before)
        elif old.worker != booking.worker or old.key != booking.key or old.owner != booking.owner:
            self._take(old, before)
            self._add(booking, before)
        else:
            # most changes are of what a booking occupies: it keeps its place among those of its key
            self._bookings[id_] = booking
            self._on.pop(booking.worker, None)
            was, amount = old.amount, booking.amount
            tokens, blocks = amount.prefill_tokens - was.prefill_tokens, amount.blocks - was.blocks
            requests = amount.requests - was.requests
            if tokens or blocks or requests:
                self._sum(booking, before, tokens, blocks, requests)

    def _add(self, booking: Booking, before: dict[str, Amount]) -> None:
        self._bookings[booking.id] = booking
        self._on.pop(booking.worker, None)
        if booking.key:
            self._keys.setdefault(booking.key, {})[booking.id] = None
        self._workers.setdefault(booking.worker, set()).add(booking.id)
        amount = booking.amount
        self._sum(booking, before, amount.prefill_tokens, amount.blocks, amount.requests)

    def _take(self, booking: Booking, before: dict[str, Amount]) -> None:
        del self._bookings[booking.id]
        self._on.pop(booking.worker, None)
        if booking.key:
            ids = self._keys[booking.key]
            del ids[booking.id]
            if not ids:
                del self._keys[booking.key]
        ids_there = self._workers[booking.worker]
        ids_there.discard(booking.id)
        if not ids_there:
            del self._workers[booking.worker]
        amount = booking.amount
        self._sum(booking, before, -amount.prefill_tokens, -amount.blocks, -amount.requests)

    def _sum(
        self, booking: Booking, before: dict[str, Amount], tokens: int, blocks: int, requests: int
    ) -> None:
        worker, owner = booking.worker, booking.owner
        before.setdefault(worker, self._loads.get(worker, NOTHING))
        _more(self._loads, worker, tokens, blocks, requests)
        if owner is self._owner or owner == self._owner:
            _more(self._own, worker, tokens, blocks, requests)


def _more(sums: dict[str, Amount], worker: str, tokens: int, blocks: int, requests: int) -> None:
    load = sums.get(worker)
    if load is not None:
        tokens += load.prefill_tokens
        blocks += load.blocks
        requests += load.requests
    if tokens or blocks or requests:
        sums[worker] = Amount(tokens, blocks, requests)
    elif load is not None:
        del sums[worker]


def _attempt(booking: Booking) -> tuple[int, str]:
    return booking.attempt, booking.id
