"""Requests in prefill, and when it is over: the worker announces the prompt's last block, or its time has passed.

Knows no desk: it says which runs are over, `picker.underway` tells the plane.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from picker.core.load import PrefillRate

ASSUMED_RATE = 5000.0
"""Prompt tokens per second of a worker that has not been measured yet."""

LONGEST_PREFILL = 600.0
"""Seconds after which a prefill counts as over, however slow the worker was measured."""


@dataclass(slots=True)
class Run:
    """One request that this replica placed or took over, and whose end it has not seen."""

    booking_id: str
    worker: str
    prompt_tokens: int
    uncached_tokens: int
    blocks: int
    begun: float
    last_block: int | None
    """Hash of the prompt's last full block: once the worker announces it, prefill is over."""
    alone: bool
    """No other prefill was booked on the worker: its time then measures the worker's rate."""
    prefilling: bool = True
    stream_open: bool = True
    named: float = 0.0
    """When the access log last named it; 0: never."""
    released_at: float = 0.0
    """When we let go of its stream."""


class Prefills:
    """The runs whose prompts are still being computed, by what will tell their end."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[str, int], list[Run]] = {}
        self._due: list[tuple[float, int, Run]] = []
        self._begun = itertools.count()
        """Tells runs apart that are due at one moment."""
        self._rates: dict[str, PrefillRate] = {}

    def begin(self, run: Run) -> None:
        """Its prefill has begun; one with nothing to compute is over at once."""
        if run.uncached_tokens <= 0:
            run.prefilling = False
            return
        if run.last_block is not None:
            awaited = run.worker, run.last_block
            if (waiting := self._awaited.get(awaited)) is None:
                self._awaited[awaited] = [run]
            else:
                waiting.append(run)
        seconds = self._rate(run.worker).seconds(run.uncached_tokens)
        if seconds is None:
            seconds = run.uncached_tokens / ASSUMED_RATE
        heapq.heappush(self._due, (run.begun + min(seconds, LONGEST_PREFILL), next(self._begun), run))

    def announced(self, worker: str, hashes: Sequence[int]) -> Iterator[Run]:
        """The worker announced blocks: the runs whose last full block is among them, still in prefill."""
        if not self._awaited:
            return
        for value in hashes:
            yield from (run for run in self._awaited.pop((worker, value), ()) if run.prefilling)

    def due(self, now: float) -> Iterator[Run]:
        """The runs whose prefill should be over by the worker's measured rate, still in prefill."""
        while self._due and self._due[0][0] <= now:
            run = heapq.heappop(self._due)[2]
            if run.prefilling:
                yield run

    def end(self, run: Run, *, seconds: float | None = None) -> None:
        """Its prefill is over; ``seconds`` is how long it took, where that was seen rather than assumed."""
        self.stop(run)
        if seconds is not None and run.alone:
            self._rate(run.worker).observe(run.uncached_tokens, seconds)

    def stop(self, run: Run) -> None:
        """Wait no longer for its end."""
        if not run.prefilling:
            return  # what is over is awaited by nobody
        run.prefilling = False
        if run.last_block is None:
            return
        awaited = run.worker, run.last_block
        waiting = self._awaited.get(awaited)
        if waiting is not None:
            left = [other for other in waiting if other is not run]
            if left:
                self._awaited[awaited] = left
            else:
                del self._awaited[awaited]

    def left(self, worker: str) -> None:
        """Forget the rate of a worker that left."""
        self._rates.pop(worker, None)

    def _rate(self, worker: str) -> PrefillRate:
        rate = self._rates.get(worker)
        if rate is None:
            rate = self._rates[worker] = PrefillRate()
        return rate
