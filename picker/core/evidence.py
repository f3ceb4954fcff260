"""What a worker's own report proves about bookings: which draining ones are over, and how far bookings drift.

A draining booking may or may not still be worked on. The worker's report counts the requests it carries, so it can
disprove some of them, never which: the oldest are ended first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SCRAPES = 3
"""So many reports in a row must show a deficit before it counts."""

USUAL_KEPT = 20
"""Reports without anything draining, from which the worker's usual deficit is taken."""


class Draining(NamedTuple):
    """One draining booking, as the replica that judges saw it."""

    id: str
    since: float
    """When the draining was first seen here, in this replica's monotonic seconds."""


@dataclass(slots=True)
class _Worker:
    active: frozenset[str] = frozenset()
    """Ids that were active at the last report."""
    usual: deque[int] | None = None
    deficits: deque[int] | None = None


class Judge:
    """Judges the workers that this replica was given. ``reported`` is called once for each report of each worker."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}

    def drop(self, worker: str) -> None:
        """Forget a worker that left, or that another replica judges now."""
        self._workers.pop(worker, None)

    def reported(
        self,
        worker: str,
        *,
        begun: float,
        requests: int,
        active: Collection[str],
        draining: Sequence[Draining],
    ) -> tuple[str, ...]:
        """Take one report; returns the ids of draining bookings that are over.

        ``begun`` is when its scrape began, ``requests`` what the engine carries (running and waiting). Only bookings
        that were draining before the scrape began are judged. Two rules:

        - fewer requests than draining bookings: the excess is proven to be over, whatever else runs there;
        - a deficit (bookings that were active all the while, plus the draining ones, less the requests reported) above
          the worker's usual one in `SCRAPES` reports in a row: so many are over as the smallest of them says.

        A booking counts as active all the while when it was so at this and at the last report: that is never too many.
        """
        known = self._workers.setdefault(worker, _Worker())
        now_active = frozenset(active)
        steady = len(known.active & now_active)
        known.active = now_active
        judged = sorted((one for one in draining if one.since < begun), key=lambda one: one.since)
        if not judged:
            self._note_usual(known, steady + len(draining) - requests, quiet=not draining)
            known.deficits = None
            return ()
        proven = max(len(judged) - requests, 0)
        proven = max(proven, self._lasting(known, steady + len(judged) - requests))
        return tuple(one.id for one in judged[: min(proven, len(judged))])

    def _note_usual(self, known: _Worker, deficit: int, *, quiet: bool) -> None:
        if not quiet:
            return
        if known.usual is None:
            known.usual = deque(maxlen=USUAL_KEPT)
        known.usual.append(max(deficit, 0))

    def _lasting(self, known: _Worker, deficit: int) -> int:
        """The deficit beyond the usual one that all of the last reports show."""
        usual = max(known.usual, default=0) if known.usual else 0
        if known.deficits is None:
            known.deficits = deque(maxlen=SCRAPES)
        known.deficits.append(max(deficit - usual, 0))
        if len(known.deficits) < SCRAPES:
            return 0
        ended = min(known.deficits)
        if ended:
            known.deficits = None
        return ended
