"""Sums of bookings per worker, kept up to date one booking at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from stateplane.booking import NOTHING, Amount, Booking, Owner

Listener = Callable[[str, int, int, float], None]
"""Told ``(worker, requests, blocks, now)`` with the new sums of a worker; must not raise."""

SHOWN_ATTEMPTS = 16
"""Most bookings of one request key that are looked at."""


class OnWorker:
    """What stands on one worker: plain numbers, since every change adds to them, put into values when asked."""

    __slots__ = ("blocks", "bookings", "ids", "load", "own", "own_blocks", "own_requests", "own_tokens", "requests",
                 "tokens")  # fmt: skip

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.tokens = self.blocks = self.requests = 0
        self.own_tokens = self.own_blocks = self.own_requests = 0
        self.load: Amount | None = None
        """The sums as a value; None: not asked for since they changed."""
        self.own: Amount | None = None
        self.bookings: tuple[Booking, ...] | None = None
        """Those of ``ids``; None: not asked for since one of them changed."""

    def add(self, tokens: int, blocks: int, requests: int, *, own: bool) -> None:
        """So much more stands there."""
        self.tokens += tokens
        self.blocks += blocks
        self.requests += requests
        self.load = None
        if own:
            self.own_tokens += tokens
            self.own_blocks += blocks
            self.own_requests += requests
            self.own = None

    def sums(self) -> Amount:
        """All that stands there."""
        load = self.load
        if load is None:
            load = self.load = Amount(self.tokens, self.blocks, self.requests)
        return load

    def own_sums(self) -> Amount:
        """What the owner itself has there."""
        own = self.own
        if own is None:
            own = self.own = Amount(self.own_tokens, self.own_blocks, self.own_requests)
        return own


class Loads(Mapping[str, Amount]):
    """The sums of every worker that has some: live, read-only."""

    __slots__ = ("_workers",)

    def __init__(self, workers: Mapping[str, OnWorker]) -> None:
        self._workers = workers

    def __getitem__(self, worker: str) -> Amount:
        load = self._workers[worker].sums()
        if load == NOTHING:
            raise KeyError(worker)
        return load

    def __iter__(self) -> Iterator[str]:
        return (worker for worker, there in self._workers.items() if there.sums() != NOTHING)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Tally:
    """What counts, by id: the bookings themselves, their sums per worker, and which share a request key.

    ``owner``'s own bookings are summed apart as well.

    Every change costs O(1). A worker without bookings has no entry: the number of entries is bounded by the bookings.
    """

    __slots__ = ("_bookings", "_keys", "_listeners", "_owner", "_workers", "bookings", "loads")

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner
        self._bookings: dict[str, Booking] = {}
        self._keys: dict[str, str | dict[str, None]] = {}
        """Ids of each request key in the order in which they came; a single one, as most are, stands for itself."""
        self._workers: dict[str, OnWorker] = {}
        self._listeners: list[Listener] = []
        self.bookings: Mapping[str, Booking] = MappingProxyType(self._bookings)
        self.loads: Mapping[str, Amount] = Loads(self._workers)

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` of every worker whose sums change from now on."""
        self._listeners.append(listener)

    def load(self, worker: str) -> Amount:
        """The sums of one worker."""
        there = self._workers.get(worker)
        return NOTHING if there is None else there.sums()

    def own(self, worker: str) -> Amount:
        """The owner's part of them."""
        there = self._workers.get(worker)
        return NOTHING if there is None else there.own_sums()

    def by_key(self, key: str) -> tuple[Booking, ...]:
        """The bookings of one request key, by attempt; an empty key joins nothing.

        Of more than `SHOWN_ATTEMPTS` those that were heard of last: a client may give all its requests one id.
        """
        ids = self._keys.get(key)
        if ids is None:
            return ()
        if isinstance(ids, str):
            return (self._bookings[ids],)
        latest: Iterable[str] = ids if len(ids) <= SHOWN_ATTEMPTS else islice(reversed(ids), SHOWN_ATTEMPTS)
        found = [self._bookings[id_] for id_ in latest]
        found.sort(key=_attempt)
        return tuple(found)

    def on(self, worker: str) -> tuple[Booking, ...]:
        """The bookings on one worker, in no order: the same object until one of them changes."""
        there = self._workers.get(worker)
        if there is None:
            return ()
        if there.bookings is None:
            there.bookings = tuple(map(self._bookings.__getitem__, there.ids))
        return there.bookings

    def put(self, changed: Iterable[tuple[str, Booking | None]], now: float) -> None:
        """Let these ids stand so (None: no longer); listeners hear each touched worker once, after all of them."""
        before: dict[str, Amount] = {}
        for id_, booking in changed:
            old = self._bookings.get(id_)
            if old is booking:
                continue
            for one in (old, booking):
                if one is not None and one.worker not in before:
                    before[one.worker] = self.load(one.worker)
            self._let(id_, old, booking)
        for worker, was in before.items():
            if self.load(worker) != was:
                self._tell(worker, now)

    def put_one(self, id_: str, booking: Booking | None, now: float) -> None:
        """As `put`, of one id."""
        old = self._bookings.get(id_)
        if old is booking:
            return
        if old is None:
            assert booking is not None
            if self._add(booking):
                self._tell(booking.worker, now)
        elif booking is None:
            if self._take(old):
                self._tell(old.worker, now)
        elif old.worker == booking.worker:
            if self._let(id_, old, booking):
                self._tell(booking.worker, now)
        else:
            self.put(((id_, booking),), now)

    def _tell(self, worker: str, now: float) -> None:
        there = self._workers.get(worker)
        requests, blocks = (0, 0) if there is None else (there.requests, there.blocks)
        for listener in self._listeners:
            listener(worker, requests, blocks, now)

    def _let(self, id_: str, old: Booking | None, booking: Booking | None) -> bool:
        """Let one id stand so, that stood as ``old``; whether sums changed."""
        if old is None:
            assert booking is not None
            return self._add(booking)
        if booking is None:
            return self._take(old)
        if old.worker != booking.worker or old.key != booking.key or old.owner != booking.owner:
            self._take(old)
            self._add(booking)
            return old.amount != booking.amount or old.worker != booking.worker
        # most changes are of what a booking occupies: it keeps its place among those of its key
        self._bookings[id_] = booking
        there = self._workers[booking.worker]
        there.bookings = None
        was, amount = old.amount, booking.amount
        if amount is was:
            return False
        tokens, blocks = amount.prefill_tokens - was.prefill_tokens, amount.blocks - was.blocks
        return self._sum(there, booking, tokens, blocks, amount.requests - was.requests)

    def _sum(self, there: OnWorker, booking: Booking, tokens: int, blocks: int, requests: int) -> bool:
        if not (tokens or blocks or requests):
            return False
        owner = booking.owner
        there.add(tokens, blocks, requests, own=owner is self._owner or owner == self._owner)
        return True

    def _add(self, booking: Booking) -> bool:
        id_, key, worker, amount = booking.id, booking.key, booking.worker, booking.amount
        self._bookings[id_] = booking
        if key:
            ids = self._keys.get(key)
            if ids is None:
                self._keys[key] = id_
            elif isinstance(ids, str):
                self._keys[key] = {ids: None, id_: None}
            else:
                ids[id_] = None
        there = self._workers.get(worker)
        if there is None:
            there = self._workers[worker] = OnWorker()
        there.ids.add(id_)
        there.bookings = None
        return self._sum(there, booking, amount.prefill_tokens, amount.blocks, amount.requests)

    def _take(self, booking: Booking) -> bool:
        id_, key, worker, amount = booking.id, booking.key, booking.worker, booking.amount
        del self._bookings[id_]
        if key:
            ids = self._keys[key]
            if isinstance(ids, str):
                del self._keys[key]
            else:
                del ids[id_]
                if not ids:
                    del self._keys[key]
        there = self._workers[worker]
        there.ids.discard(id_)
        there.bookings = None
        if not there.ids:
            del self._workers[worker]
        return self._sum(there, booking, -amount.prefill_tokens, -amount.blocks, -amount.requests)


def _attempt(booking: Booking) -> tuple[int, str]:
    return booking.attempt, booking.id
