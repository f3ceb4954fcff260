"""Asks criteria on the pick path. Whatever one of them does, the request goes on, without it if need be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from picker.core.criteria import MOST_BLOCKS, MOST_REASON, Criterion, Traits, WorkerTraits

log = structlog.get_logger(__name__)

LOG_SECONDS = 1.0
"""Failures of criteria are logged at most once in so long."""


@dataclass(slots=True)
class Counts:
    """What criteria did, by the criterion's name."""

    failed: dict[str, int] = field(default_factory=dict)
    """Requests that were served without the criterion, because it raised or said what makes no sense."""
    refused: dict[str, int] = field(default_factory=dict)
    """Price terms that were no finite number and counted as 0."""
    clamped: dict[str, int] = field(default_factory=dict)
    """Price terms beyond the bound."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent in the criterion, all of it on the pick path."""


class Prepared(NamedTuple):
    """A criterion that has something to say on one request."""

    name: str
    judge: Any


class Verdict(NamedTuple):
    """What criteria say of the workers, for one request."""

    barred: Mapping[str, str]
    """Worker -> the criterion's name and its reason."""
    added: Mapping[str, Mapping[str, float]]
    """Criterion -> worker -> blocks; only what is not 0."""


class Criteria:
    """The criteria of one replica, in the order in which they are asked."""

    def __init__(
        self,
        criteria: Sequence[tuple[str, Criterion]] = (),
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._criteria = tuple(criteria)
        self._clock = clock
        self._logged_at = -math.inf
        self.counts = Counts()
        for name in self.names:
            self.counts.failed[name] = self.counts.refused[name] = self.counts.clamped[name] = 0
            self.counts.seconds[name] = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the criteria."""
        return tuple(name for name, _ in self._criteria)

    def prepare(self, request: Traits) -> tuple[Prepared, ...]:
        """Ask each criterion once whether it has anything to say on this request."""
        found = []
        for name, criterion in self._criteria:
            begun = self._clock()
            try:
                judge = criterion.prepare(request)
                if judge is not None:
                    found.append(Prepared(name, _checked(judge)))
            except Exception as error:  # noqa: BLE001 - somebody else's code, on the pick path
                self._failed(name, error)
            self.counts.seconds[name] += self._clock() - begun
        return tuple(found)

    def weigh(self, prepared: Sequence[Prepared], workers: Sequence[WorkerTraits]) -> Verdict:
        """Ask for each worker. A worker that one criterion bars is not shown to those behind it."""
        barred: dict[str, str] = {}
        added: dict[str, Mapping[str, float]] = {}
        for name, judge in prepared:
            begun = self._clock()
            left = [worker for worker in workers if worker.name not in barred] if barred else workers
            try:
                bars, blocks = self._asked(name, judge, left)
            except Exception as error:  # noqa: BLE001 - somebody else's code, on the pick path
                self._failed(name, error)
            else:
                barred.update(bars)
                if blocks:
                    added[name] = blocks
            self.counts.seconds[name] += self._clock() - begun
        return Verdict(barred, added)

    def _asked(
        self, name: str, judge: Any, workers: Sequence[WorkerTraits]
    ) -> tuple[dict[str, str], dict[str, float]]:
        bars, blocks = getattr(judge, "bars", None), getattr(judge, "blocks", None)
        barred: dict[str, str] = {}
        added: dict[str, float] = {}
        for worker in workers:
            if bars is not None:
                why = bars(worker)
                if not isinstance(why, str):
                    raise TypeError(f"bars gave {type(why).__name__}, not a text")
                if why:
                    barred[worker.name] = f"{name}: {_plain(why)}"
                    continue
            if blocks is not None:
                number = self._number(name, blocks(worker))
                if number:
                    added[worker.name] = number
        return barred, added

    def _number(self, name: str, said: object) -> float:
        if isinstance(said, bool) or not isinstance(said, int | float):
            raise TypeError(f"blocks gave {type(said).__name__}, not a number")
        if -MOST_BLOCKS <= said <= MOST_BLOCKS:
            return float(said)
        if isinstance(said, float) and not math.isfinite(said):
            self.counts.refused[name] += 1
            return 0.0
        self.counts.clamped[name] += 1
        return MOST_BLOCKS if said > 0 else -MOST_BLOCKS

    def _failed(self, name: str, error: Exception) -> None:
        self.counts.failed[name] += 1
        now = self._clock()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.error(
                "a criterion failed, the request is served without it",
                criterion=name,
                error=_told(error),
                failures=self.counts.failed[name],
            )


def _checked(judge: object) -> object:
    if not (hasattr(judge, "bars") or hasattr(judge, "blocks")):
        raise TypeError(f"prepare gave {type(judge).__name__}, which has neither bars nor blocks")
    return judge


def _told(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except Exception:  # noqa: BLE001 - an error whose own text fails
        return type(error).__name__


def _plain(reason: str) -> str:
    return "".join(one if one.isprintable() else " " for one in reason[:MOST_REASON])
