"""What a worker carries: what is booked there, what it reports, and what it carries beyond the bookings.

Bookings say what is coming, the engine's report says what is there. A report covers a moment between the begin and the
end of its scrape, bookings reach a replica a little late, so a report is compared with the **most** that was booked
around the scrape: only what exceeds it is *unbooked* load (other clients, other gateways, requests whose booking is
over).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

SLACK = 0.05
"""Seconds around a scrape in which a booking may or may not show in the report."""


class Load(NamedTuple):
    """What a worker carries; a tuple, because every pick makes some for each worker."""

    prefill_tokens: float = 0
    """Prompt tokens still to be computed."""
    blocks: float = 0
    """KV blocks, of the pool's block size."""
    requests: float = 0


NO_LOAD = Load()


def ageing(unseen: float) -> float:
    """How far foreign load is to be moved toward its mean, 0..1, when so many foreign requests are not seen yet.

    ``unseen / (1 + unseen)``: 0 while the view is level; a half at one unseen request, amid the 0.5 (64 workers) to 2.5
    (8 workers) from which a shared view balances worse than own bookings alone, by simulation (`picker bench race`);
    toward 1 when nothing that the view says of others can be relied on.
    """
    return unseen / (1.0 + unseen) if unseen > 0 else 0.0


def aged(foreign: Mapping[str, Load], factor: float) -> Mapping[str, Load]:
    """Each worker's foreign load moved toward the mean over all of them by a factor of 0..1; the sum stays.

    A minimum that everybody saw a while ago draws everybody: where it is old, what others placed is better taken to be
    spread evenly than to lie where it was seen last.
    """
    if factor <= 0 or not foreign:
        return foreign
    n, keep = len(foreign), 1.0 - factor
    tokens, blocks, requests = (factor * sum(part) / n for part in zip(*foreign.values(), strict=True))
    return {
        name: Load(
            keep * load.prefill_tokens + tokens, keep * load.blocks + blocks, keep * load.requests + requests
        )
        for name, load in foreign.items()
    }


@dataclass(frozen=True, slots=True)
class Report:
    """What one scrape of a worker said. Times are monotonic seconds of this replica."""

    begun: float
    ended: float
    running: int
    """Requests that the engine works on."""
    waiting: int
    """Requests queued in the engine, for whatever reason."""
    kv_usage: float | None = None
    """Part of the KV cache that running requests occupy, 0..1; None where the engine does not say."""
    total_blocks: int | None = None
    """Size of the KV cache in the engine's blocks; None where it does not say."""
    block_size: int | None = None
    """Tokens in one of the engine's blocks."""
    total_tokens: int | None = None
    """Size of the KV cache in tokens, for engines whose blocks do not all hold tokens of one kind."""
    waiting_capacity: int | None = None
    """Of those waiting: queued for room. None where the engine does not tell reasons apart."""
    waiting_deferred: int | None = None
    """Of those waiting: held back for another reason (adapter budget, KV transfer)."""
    asleep: bool = False
    """The engine sleeps: it answers nothing and holds no prefix."""
    prefix_queries: float | None = None
    """Counter: tokens looked up in the engine's prefix cache."""
    prefix_hits: float | None = None
    """Counter: tokens found there."""
    loras: frozenset[str] | None = None
    """Adapters running or waiting in the engine; None where LoRA is off or the engine does not name them."""
    max_loras: int | None = None
    """Most adapters that it can hold at one time; None where it does not say."""

    @property
    def routable(self) -> bool:
        """Whether a request may be sent there."""
        return not self.asleep

    @property
    def requests(self) -> int:
        """Everything the engine has accepted and not finished."""
        return self.running + self.waiting

    def used_blocks(self, block_size: int = 0) -> float | None:
        """Occupied KV blocks, in blocks of ``block_size`` tokens (0: the engine's own); None where it does not say."""
        if self.kv_usage is None:
            return None
        if block_size and self.total_tokens is not None:
            return self.kv_usage * self.total_tokens / block_size
        if self.total_blocks is None:
            return None
        scale = self.block_size / block_size if block_size and self.block_size else 1.0
        return self.kv_usage * self.total_blocks * scale


def unbooked(report: Report, most_requests: int, most_blocks: float, *, block_size: int = 0) -> Load:
    """What the worker carries beyond the most that was booked there during the scrape; never negative.

    ``block_size`` is the pool's, in tokens; 0 takes the engine's blocks as they are. Prompt tokens still to be computed
    are not reported by engines: that part is 0.
    """
    used = report.used_blocks(block_size)
    blocks = 0.0 if used is None else max(0.0, used - most_blocks)
    return Load(0, blocks, max(0, report.requests - most_requests))


class BookedHistory:
    """How much was booked on each worker in the recent past, to compare reports with.

    Bounded: per worker at most ``horizon / resolution`` + 2 points; what happens within one ``resolution`` is kept as
    its maximum. A worker never noted has nothing booked.
    """

    def __init__(self, *, horizon: float = 8.0, resolution: float = 0.02) -> None:
        self.horizon = horizon
        self.resolution = resolution
        self._points: dict[str, deque[_Point]] = {}

    def note(self, worker: str, now: float, requests: int, blocks: float) -> None:
        """From now on that much is booked there. Call it at every change; ``now`` never falls."""
        points = self._points.get(worker)
        if points is None:
            points = self._points[worker] = deque((_Point(now - self.resolution, 0, 0, 0, 0),))
        last = points[-1]
        if last.requests == requests and last.blocks == blocks:
            return  # what stands stands on
        if now - last.start < self.resolution:
            if requests > last.most_requests:
                last.most_requests = requests
            if blocks > last.most_blocks:
                last.most_blocks = blocks
            last.requests, last.blocks = requests, blocks
            return
        points.append(_Point(now, requests, blocks, requests, blocks))
        while len(points) > 2 and points[1].start <= now - self.horizon:
            points.popleft()

    def most(self, worker: str, since: float, until: float) -> tuple[int, float]:
        """The most requests and the most blocks booked there at any moment in ``since..until``.

        The two maxima may be of different moments. Times further back than the horizon are answered from what is left.
        """
        requests, blocks = 0, 0.0
        for point in reversed(self._points.get(worker, ())):
            if point.start > until:
                continue
            if point.start + self.resolution <= since:
                # it lay wholly before: of it only the value it left behind reaches into the window
                return max(requests, point.requests), max(blocks, point.blocks)
            requests = max(requests, point.most_requests)
            blocks = max(blocks, point.most_blocks)
            if point.start <= since:
                break
        return requests, blocks

    def drop(self, worker: str) -> None:
        """Forget a worker that left."""
        self._points.pop(worker, None)


@dataclass(slots=True)
class _Point:
    start: float
    most_requests: int
    most_blocks: float
    requests: int
    blocks: float


class UnbookedLoads:
    """Each worker's unbooked load, worked out once per report and then fixed until the next one.

    A report can be compared only when the slack after its scrape has passed: bookings made elsewhere may still be on
    their way. Until then the former report's value stands, and for a worker's first report a provisional one.
    """

    def __init__(self, history: BookedHistory, *, block_size: int = 0, slack: float = SLACK) -> None:
        self._history = history
        self._block_size = block_size
        self._slack = slack
        self._fixed: dict[str, tuple[float, Load]] = {}

    def of(self, worker: str, report: Report | None, now: float) -> Load:
        """The unbooked load of a worker; nothing without a fresh report."""
        if report is None:
            return NO_LOAD
        known = self._fixed.get(worker)
        if known is not None and (known[0] == report.ended or now < report.ended + self._slack):
            return known[1]
        most = self._history.most(worker, report.begun - self._slack, report.ended + self._slack)
        load = unbooked(report, *most, block_size=self._block_size)
        if now >= report.ended + self._slack:
            self._fixed[worker] = (report.ended, load)
        return load

    def fixed(self, worker: str) -> float | None:
        """The end of the scrape whose report the worker's unbooked load was worked out from; None: of none yet."""
        known = self._fixed.get(worker)
        return None if known is None else known[0]

    def drop(self, worker: str) -> None:
        """Forget a worker that left."""
        self._fixed.pop(worker, None)


class PrefillRate:
    """How fast one worker computes prompts, in tokens per second: an average over the last dozens of requests."""

    __slots__ = ("_least", "_rate", "_weight")

    def __init__(self, *, weight: float = 0.1, least_tokens: int = 64) -> None:
        """``weight`` is that of a new value; prompts below ``least_tokens`` measure overheads, not a rate."""
        self._weight = weight
        self._least = least_tokens
        self._rate: float | None = None

    @property
    def rate(self) -> float | None:
        """Tokens per second; None until something was measured."""
        return self._rate

    def observe(self, tokens: float, seconds: float) -> None:
        """A prompt with so many uncached tokens took so long there."""
        if tokens < self._least or seconds <= 0:
            return
        rate = tokens / seconds
        self._rate = rate if self._rate is None else self._rate + self._weight * (rate - self._rate)

    def seconds(self, tokens: float) -> float | None:
        """How long so many uncached tokens are likely to take there; None until something was measured."""
        return None if self._rate is None else max(tokens, 0.0) / self._rate
