"""What was chosen, judged against what was truly under way at that moment."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from picker.bench.timing import percentile


@dataclass(frozen=True, slots=True)
class Pick:
    """One decision and its request's life, in seconds of one clock."""

    at: float
    """When the request went to its worker."""
    until: float
    worker: int
    tokens: int
    degraded: bool = False
    """Chosen on the view because the plane did not answer in time."""
    wrong: bool | None = None
    """Whether a worker with strictly less was passed over; None: to be told from the order of the picks."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one run was balanced."""

    picks: int
    wrong_pick_pct: float
    max_over_mean: float
    """Tokens on the busiest worker to those on the mean one, each averaged over the arrivals."""
    p99_excess_tokens: float
    """99th percentile of what the busiest worker carries above the mean one."""
    degraded_pct: float


def judge(picks: Iterable[Pick], workers: int, since: float) -> Verdict:
    """Walk through all picks in their order; only those from ``since`` on are counted.

    Loads are looked at right after each arrival, which with random arrivals is as good as at random moments.
    """
    loads = [0] * workers
    ends: list[tuple[float, int, int]] = []
    excess: list[float] = []
    counted = wrong = degraded = 0
    most = total = 0.0
    for pick in sorted(picks, key=lambda one: one.at):
        while ends and ends[0][0] <= pick.at:
            _, worker, tokens = heapq.heappop(ends)
            loads[worker] -= tokens
        astray = loads[pick.worker] > min(loads) if pick.wrong is None else pick.wrong
        loads[pick.worker] += pick.tokens
        heapq.heappush(ends, (pick.until, pick.worker, pick.tokens))
        if pick.at < since:
            continue
        counted += 1
        wrong += astray
        degraded += pick.degraded
        busiest, mean = max(loads), sum(loads) / workers
        most += busiest
        total += mean
        excess.append(busiest - mean)
    if not counted:
        raise ValueError("no pick was made after the warm-up: the run is too short")
    return Verdict(
        counted, 100 * wrong / counted, most / total, percentile(excess, 0.99), 100 * degraded / counted
    )


def in_plane_order(changes: Sequence[tuple[int, int, int]], workers: int) -> dict[int, bool]:
    """Request -> whether a worker with strictly less was passed over when it was booked, by the plane's own sums.

    ``changes``: (request, worker, tokens) in the plane's order, with tokens 0 for its end.
    """
    loads = [0] * workers
    standing: dict[int, tuple[int, int]] = {}
    wrong: dict[int, bool] = {}
    for request, worker, tokens in changes:
        if request in standing:
            where, held = standing.pop(request)
            loads[where] -= held
        if tokens:
            wrong.setdefault(request, loads[worker] > min(loads))
            loads[worker] += tokens
            standing[request] = (worker, tokens)
    return wrong
