"""Bookings against what workers report: drift is shown, draining bookings that a report disproves are ended.

One replica judges each worker, the same one in every replica's eyes: the member that ranks highest for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import xxhash

from picker.core.evidence import Draining, Judge
from picker.core.load import Report
from stateplane.booking import Cause, Member, Owner, State
from stateplane.view import View


class Desk(Protocol):
    """What this module asks of the replica's hand in the plane."""

    view: View
    owner: Owner

    @property
    def members(self) -> Sequence[Member]:
        """All members, this one included."""
        ...

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        """End anybody's booking."""
        ...


@dataclass(slots=True)
class Counts:
    """What reports disproved."""

    judged: int = 0
    """Reports of workers that are this replica's to judge."""
    ended_by_evidence: int = 0


def judge_of(worker: str, owners: Iterable[Owner]) -> Owner | None:
    """The member that judges a worker: the highest of ``xxh3_64(worker, owner)`` (rendezvous hashing)."""
    return max(
        owners,
        key=lambda owner: (xxhash.xxh3_64_intdigest(f"{worker}\0{owner}".encode()), str(owner)),
        default=None,
    )


class Reconciling:
    """Takes every good report. Cheap where nothing drains."""

    def __init__(self, desk: Desk, *, clock: Callable[[], float]) -> None:
        self.counts = Counts()
        self._desk = desk
        self._clock = clock
        self._judge = Judge()
        self._since: dict[str, dict[str, float]] = {}
        """Worker -> draining booking -> when it was first seen so here."""
        self._drift: dict[str, int] = {}

    @property
    def drift(self) -> Mapping[str, int]:
        """Requests that each worker reports, less those booked there, at its last report."""
        return self._drift

    def reported(self, worker: str, report: Report) -> None:
        """One good report of a worker."""
        bookings = self._desk.view.on(worker)
        self._drift[worker] = report.requests - sum(booking.amount.requests for booking in bookings)
        if judge_of(worker, (member.owner for member in self._desk.members)) not in (None, self._desk.owner):
            self._judge.drop(worker)
            self._since.pop(worker, None)
            return
        self.counts.judged += 1
        active = [booking.id for booking in bookings if booking.state is State.ACTIVE]
        draining = self._draining(
            worker, [booking.id for booking in bookings if booking.state is State.DRAINING]
        )
        over = self._judge.reported(
            worker, begun=report.begun, requests=report.requests, active=active, draining=draining
        )
        for booking_id in over:
            self.counts.ended_by_evidence += 1
            self._desk.end_foreign(booking_id, Cause.EVIDENCE)

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
