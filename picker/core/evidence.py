"""What a worker's own report proves about bookings: which draining ones are over, and how far bookings drift.

A draining booking may or may not still be worked on. The worker's report counts the requests it carries, so it can
disprove some of them, never which: the oldest are ended first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import NamedTuple

SCRAPES = 4
"""So few reports do not tell a deficit from chance."""

USUAL_KEPT = 30
"""Reports without anything draining, from which the worker's usual deficit is taken."""

SUSPECT_SECONDS = 6.0
"""Before bookings drain: reports of that time tell nothing of what is usual.

What made them drain, a gateway that died or an owner that fell silent, happened a lease or three intervals of the log
before. From then on what they stand for was missing at the worker while they still counted as active.
"""

ENOUGH_USUAL = 5
"""Fewer of them do not tell how much a deficit varies."""

MOST_SCRAPES = 60
"""Reports over which a deficit is averaged at most."""

DOUBT = 2.5
"""Standard errors that a deficit must lie above the usual one."""

DOUBT_OF_SOME = 3.5
"""The same where only the last reports are taken: looked at again and again, chance shows more in them."""

LEAST_SPREAD, UNKNOWN_SPREAD = 0.3, 0.5
"""Standard deviation of a worker's deficits: at least the one, and the other where it is not known yet."""


class Draining(NamedTuple):
    """One draining booking, as the replica that judges saw it."""

    id: str
    since: float
    """When the draining was first seen here, in this replica's monotonic seconds: at a scrape's begin, or later."""


@dataclass(slots=True)
class _Worker:
    usual: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=USUAL_KEPT))
    """Deficits of reports without anything draining, each with when its scrape began."""
    deficits: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_SCRAPES))


class Judge:
    """Judges workers by their reports. `reported` is called once for each report of each worker."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}

    def drop(self, worker: str) -> None:
        """Forget a worker that left."""
        self._workers.pop(worker, None)

    def seen(self, worker: str, *, begun: float, requests: int, active: int) -> None:
        """Take a report of a worker on which nothing drains: how its reports usually differ from what is booked."""
        known = self._workers.setdefault(worker, _Worker())
        known.usual.append((begun, active - requests))
        known.deficits.clear()

    def reported(
        self,
        worker: str,
        *,
        begun: float,
        requests: int,
        active: int | None,
        draining: Sequence[Draining],
    ) -> tuple[str, ...]:
        """Take one report of a worker on which bookings drain; returns the ids of those that are over.

        ``begun`` is when its scrape began, ``requests`` what the engine carries (running and waiting), ``active`` how
        many bookings were active when the scrape began and are so still; None where that cannot be known. Only
        bookings that were draining before the scrape began are judged. Two rules:

        - fewer requests than draining bookings: the excess is proven to be over, whatever else runs there;
        - a deficit (active and draining bookings less the requests reported) above the worker's usual one. Requests on
          their way to the engine and ends on their way back make it vary from report to report, so it is averaged, over
          the last `SCRAPES` reports or more: as many are over as its mean lies above the usual mean, less `DOUBT`
          standard errors.
        """
        known = self._workers.setdefault(worker, _Worker())
        _forget_suspect(known, drains_since=min((one.since for one in draining), default=math.inf))
        judged = sorted((one for one in draining if one.since < begun), key=lambda one: one.since)
        if not judged:
            known.deficits.clear()
            return ()
        proven = max(len(judged) - requests, 0)
        if active is not None:
            known.deficits.append(active + len(judged) - requests)
            proven = max(proven, _beyond_usual(known))
        ended = tuple(one.id for one in judged[: min(proven, len(judged))])
        known.deficits = deque((deficit - len(ended) for deficit in known.deficits), maxlen=MOST_SCRAPES)
        return ended


def _forget_suspect(known: _Worker, *, drains_since: float) -> None:
    while known.usual and known.usual[-1][0] > drains_since - SUSPECT_SECONDS:
        known.usual.pop()


def _beyond_usual(known: _Worker) -> int:
    """How many bookings too many there are, with little doubt: by the longest run of last reports that tells of most.

    What drains may have worked on for long before it ended, so that reports from before say nothing of now.
    """
    usual, spread = 0.0, UNKNOWN_SPREAD
    if len(known.usual) >= ENOUGH_USUAL:
        deficits = [deficit for _, deficit in known.usual]
        usual, spread = max(fmean(deficits), 0.0), max(pstdev(deficits), LEAST_SPREAD)
    found, doubt, last = 0, DOUBT, list(known.deficits)
    count = len(last)
    while count >= SCRAPES:
        surplus = fmean(last[-count:]) - usual - doubt * spread / math.sqrt(count)
        found = max(found, math.floor(surplus + 0.5))
        count, doubt = count // 2, DOUBT_OF_SOME
    return found
