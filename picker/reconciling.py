"""Bookings against what workers report: drift is shown, draining bookings that a report disproves are ended.

One replica judges each worker, the same one in every replica's eyes: the member that ranks highest for it. Where a
worker reports nothing, no evidence will ever come: what drains there goes after a shorter time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import xxhash

from picker.core.evidence import Draining, Judge
from picker.core.load import Report
from stateplane.booking import Booking, Cause, Member, Owner, State
from stateplane.view import View


class Desk(Protocol):
    """What this module asks of the replica's hand in the plane."""

    view: View
    owner: Owner

    @property
    def members(self) -> Sequence[Member]:
        """All members, this one included."""
        ...

    @property
    def degraded(self) -> bool:
        """Whether the view may be missing what the others do."""
        ...

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        """End anybody's booking."""
        ...


BLIND_LOOK_SECONDS = 0.5
"""Between two looks at what drains on workers that do not report."""


@dataclass(slots=True)
class Counts:
    """What reports disproved."""

    judged: int = 0
    """Reports of workers that are this replica's to judge."""
    ended_by_evidence: int = 0
    ended_blind: int = 0
    """Of those that drained on a worker which does not report."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What stood on one worker; made anew only where that changed: held streams may stand for hours."""

    bookings: tuple[Booking, ...]
    active: frozenset[str]
    draining: tuple[Booking, ...]

    @classmethod
    def at(cls, bookings: tuple[Booking, ...]) -> _Look:
        return cls(
            bookings,
            frozenset(one.id for one in bookings if one.state is State.ACTIVE),
            tuple(one for one in bookings if one.state is State.DRAINING),
        )


def judge_of(worker: str, owners: Iterable[Owner]) -> Owner | None:
    """The member that judges a worker: the highest of ``xxh3_64(worker, owner)`` (rendezvous hashing)."""
    return max(
        owners,
        key=lambda owner: (xxhash.xxh3_64_intdigest(f"{worker}\0{owner}".encode()), str(owner)),
        default=None,
    )


class Reconciling:
    """Takes every good report; `tick` is called a few times a second. Cheap where nothing drains."""

    def __init__(
        self,
        desk: Desk,
        *,
        clock: Callable[[], float],
        reports: Callable[[str], bool] = lambda _: True,
        log_expected: Callable[[], bool] = lambda: False,
        blind_seconds: float = 10.0,
    ) -> None:
        """Take what it asks.

        Args:
            desk: This replica's hand in the plane.
            clock: Monotonic seconds.
            reports: Whether a worker reports its load; where not, a booking drains for ``blind_seconds`` only.
            log_expected: Whether a gateway's log names what runs.
            blind_seconds: How long a booking counts on a worker that does not report.

        """
        self.counts = Counts()
        self._reports = reports
        self._log_expected = log_expected
        self._blind_seconds = blind_seconds
        self._blind_since: dict[str, float] = {}
        """Worker with bookings that does not report -> when that was first seen."""
        self._looked_at = float("-inf")
        self._desk = desk
        self._clock = clock
        self._judge = Judge()
        self._since: dict[str, dict[str, float]] = {}
        """Worker -> draining booking -> when it was first seen so here: as a scrape begins, or a report comes."""
        self._drift: dict[str, int] = {}
        self._asked: dict[str, _Look] = {}
        """Worker being scraped -> what stood there when that began."""
        self._looks: dict[str, _Look] = {}
        """Worker -> what stood there when it was last looked at."""

    @property
    def drift(self) -> Mapping[str, int]:
        """Requests that each worker reports, less those booked there, at its last report."""
        return self._drift

    def reported(self, worker: str, report: Report) -> None:
        """One good report of a worker.

        What is usual there is noted whoever judges: a replica that takes over from a dead one has to know.
        """
        look = self._look(worker)
        self._drift[worker] = report.requests - self._desk.view.load(worker).requests
        self._blind_since.pop(worker, None)
        active = self._active_throughout(worker, look)
        drains = [booking.id for booking in look.draining]
        if not drains and active is not None:
            self._judge.seen(worker, begun=report.begun, requests=report.requests, active=active)
        if not self._judges(worker):
            self._since.pop(worker, None)
            return
        self.counts.judged += 1
        draining = self._draining(worker, drains)
        over = self._judge.reported(
            worker, begun=report.begun, requests=report.requests, active=active, draining=draining
        )
        for booking_id in over:
            self.counts.ended_by_evidence += 1
            self._desk.end_foreign(booking_id, Cause.EVIDENCE)

    def asked(self, worker: str) -> None:
        """A scrape of the worker begins: what is active now, the engine has or is about to get.

        Of what drains now for its owner's silence this very scrape tells: a lease takes seconds to fall, so its worker
        has long got it. What drains since its stream broke may still be on its way there: of it the next one tells. So
        it does where a log is to be heard: it may have gone to the silent owner, and has to find another one before it
        can say which of the draining requests run. Reports only say how many.
        """
        look = self._asked[worker] = self._look(worker)
        if self._log_expected():
            return
        for one in look.draining:
            if one.cause is Cause.LEASE:
                self._since.setdefault(worker, {}).setdefault(one.id, self._clock())

    def _look(self, worker: str) -> _Look:
        bookings, last = self._desk.view.on(worker), self._looks.get(worker)
        if last is None or last.bookings is not bookings:
            last = self._looks[worker] = _Look.at(bookings)
        return last

    def _active_throughout(self, worker: str, look: _Look) -> int | None:
        """How many bookings were active when the scrape began and are so now; None where the view may be behind.

        Some of those it shows have then long ended elsewhere, and would be missed at the worker.
        """
        before = self._asked.pop(worker, None)
        if before is None or self._desk.degraded:
            return None
        return len(look.active if before is look else before.active & look.active)

    def _judges(self, worker: str) -> bool:
        return judge_of(worker, (member.owner for member in self._desk.members)) in (None, self._desk.owner)

    def tick(self, now: float) -> None:
        """End what has drained long enough on workers that do not report, those that left the pool among them."""
        if now - self._looked_at < BLIND_LOOK_SECONDS:
            return
        self._looked_at = now
        blind = [worker for worker in self._desk.view.loads() if not self._reports(worker)]
        self._blind_since = {worker: self._blind_since.get(worker, now) for worker in blind}
        for worker in blind:
            if self._judges(worker):
                self._end_blind(worker, now)

    def _end_blind(self, worker: str, now: float) -> None:
        draining = [one.id for one in self._desk.view.on(worker) if one.state is State.DRAINING]
        for booking_id, since in self._draining(worker, draining):
            if now - max(since, self._blind_since[worker]) >= self._blind_seconds:
                self.counts.ended_blind += 1
                self._desk.end_foreign(booking_id, Cause.DEADLINE)

    def _draining(self, worker: str, ids: Sequence[str]) -> list[Draining]:
        now, seen = self._clock(), self._since.get(worker, {})
        fresh = {booking_id: seen.get(booking_id, now) for booking_id in ids}
        if fresh:
            self._since[worker] = fresh
        else:
            self._since.pop(worker, None)
        return [Draining(booking_id, since) for booking_id, since in fresh.items()]

    def left(self, worker: str) -> None:
        """Forget a worker that left the pool."""
        self._judge.drop(worker)
        self._since.pop(worker, None)
        self._drift.pop(worker, None)
        self._asked.pop(worker, None)
        self._looks.pop(worker, None)
        self._blind_since.pop(worker, None)
