"""The choice among workers, with the reasons in numbers."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import NamedTuple

from picker.core.cost import Demand, Weights, base_price, cached_tokens, terms
from picker.core.load import NO_LOAD, Load
from picker.core.match import NO_OVERLAP, Overlap
from picker.core.worker import worker_address

__all__ = [
    "AllFull", "Candidate", "Choice", "Demand", "NoWorker", "Offer", "Reason", "Surcharges", "choose", "offer",
]  # fmt: skip

FULL = "full"
"""`Reason.left_out` of a worker at its limit of booked requests."""


class Candidate(NamedTuple):
    """One worker as a request sees it. A tuple, because a pick makes one for each worker of the pool."""

    worker: str
    booked: Load = NO_LOAD
    unbooked: Load = NO_LOAD
    overlap: Overlap = NO_OVERLAP
    max_requests: int = 0
    """Most requests booked there; 0: no limit."""
    barred: str = ""
    """Why it may not be chosen at all (asleep, not in the subset, ...); empty: it may."""

    @property
    def full(self) -> bool:
        """Whether it is at its limit."""
        return 0 < self.max_requests <= self.booked.requests


class Surcharges:
    """What is added to workers' prices for one request, beside the terms of the price; in blocks."""

    __slots__ = ("_by", "totals")

    def __init__(self, by: Mapping[str, Mapping[str, float]]) -> None:
        """``by`` says who adds how much to which worker, in finite numbers; a worker that is not named pays nothing."""
        self._by = by
        self.totals: dict[str, float] = {}
        """Per worker, over all that add to it."""
        for added in by.values():
            for worker, blocks in added.items():
                self.totals[worker] = self.totals.get(worker, 0.0) + blocks

    def of(self, worker: str) -> tuple[tuple[str, float], ...]:
        """What each adds to that worker."""
        return tuple((name, added[worker]) for name, added in self._by.items() if worker in added)


@dataclass(frozen=True, slots=True)
class Reason:
    """One worker's price in numbers, or why it was left out. Token counts in tokens, the rest in blocks."""

    worker: str
    price: float | None
    """None: left out."""
    left_out: str
    """Empty: it had a price. ``full``, or what the candidate was barred for."""
    prefill: float
    """The price's part for prompts still to be computed, this one included."""
    decode: float
    """The price's part for KV blocks, this request's included."""
    requests: float
    """The price's part for the number of requests."""
    cached_tokens: float
    """Prompt tokens credited as cached."""
    overlap: Overlap
    booked: Load
    unbooked: Load
    added: tuple[tuple[str, float], ...] = ()
    """The price's parts beside those: by whom, and how much."""

    def shown(self) -> dict[str, object]:
        """As plain values that any JSON encoder takes."""
        names = [field.name for field in fields(self)]
        values = [getattr(self, name) for name in names]
        shown: dict[str, object] = {
            n: v._asdict() if isinstance(v, Load | Overlap) else v for n, v in zip(names, values, strict=True)
        }
        return shown | {"added": dict(self.added)}


class _Field:
    """What was weighed, kept as it was; the reasons are put into words only when somebody asks."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        demand: Demand,
        weights: Weights,
        added: Surcharges | None = None,
    ) -> None:
        self._candidates = candidates
        self._demand = demand
        self._weights = weights
        self._added = added

    @property
    def weighed(self) -> int:
        """How many candidates there were."""
        return len(self._candidates)

    @property
    def left_out(self) -> Mapping[str, int]:
        """Why candidates were left out, and how many for each reason."""
        return Counter(why for why in map(_left_out, self._candidates) if why)

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """One per candidate: the cheapest first, those left out last."""
        found = [self._reason(candidate) for candidate in self._candidates]
        return tuple(sorted(found, key=lambda r: math.inf if r.price is None else r.price))

    def _reason(self, candidate: Candidate) -> Reason:
        demand, weights = self._demand, self._weights
        parts = terms(demand, candidate.booked, candidate.unbooked, candidate.overlap, weights)
        left_out = _left_out(candidate)
        price = parts.price
        added: tuple[tuple[str, float], ...] = ()
        if self._added is not None:
            price, added = (
                price + self._added.totals.get(candidate.worker, 0.0),
                self._added.of(candidate.worker),
            )
        return Reason(
            worker=candidate.worker,
            price=None if left_out else price,
            left_out=left_out,
            prefill=parts.prefill,
            decode=parts.decode,
            requests=parts.requests,
            cached_tokens=cached_tokens(candidate.overlap, demand.block_size, weights),
            overlap=candidate.overlap,
            booked=candidate.booked,
            unbooked=candidate.unbooked,
            added=added,
        )


class Choice(_Field):
    """A worker was chosen."""

    def __init__(
        self,
        chosen: Candidate,
        fallbacks: tuple[str, ...],
        *,
        candidates: Sequence[Candidate],
        demand: Demand,
        weights: Weights,
        added: Surcharges | None = None,
    ) -> None:
        super().__init__(candidates, demand, weights, added)
        self.chosen = chosen
        self.fallbacks = fallbacks
        """The next best workers, cheapest first, each on an address of its own."""

    @property
    def worker(self) -> str:
        """The chosen worker."""
        return self.chosen.worker

    @property
    def reason(self) -> Reason:
        """The chosen worker's numbers."""
        return self._reason(self.chosen)


class Offer(_Field):
    """The workers that look cheapest, for a choice by somebody who knows what is booked there to the last request."""

    def __init__(
        self,
        offered: Sequence[Candidate],
        noise: Sequence[float],
        *,
        complete: bool,
        candidates: Sequence[Candidate],
        demand: Demand,
        weights: Weights,
        added: Surcharges | None = None,
    ) -> None:
        super().__init__(candidates, demand, weights, added)
        more = {} if added is None else added.totals
        self.offered = offered
        """In random order: the first of equally cheap ones may be taken."""
        self.bases = tuple(
            base_price(demand, one.unbooked, one.overlap, weights) + more.get(one.worker, 0.0) + drawn
            for one, drawn in zip(offered, noise, strict=True)
        )
        """Of each, the part of its price that does not depend on the bookings, with its noise for temperature."""
        self.complete = complete
        """Whether every worker that may be chosen at all is offered."""

    def taken(self, worker: str, rng: Random, fallbacks: int = 0) -> Choice:
        """That one of the offered workers was chosen; ``fallbacks`` further ones are named as by `choose`."""
        chosen = next(one for one in self.offered if one.worker == worker)
        others: tuple[str, ...] = ()
        if fallbacks > 0:
            open_to = [one for one in self._candidates if one.worker == worker or not _left_out(one)]
            prices = _prices(open_to, self._demand, self._weights, self._added)
            at = next(at for at, one in enumerate(open_to) if one.worker == worker)
            others = _fallbacks(open_to, prices, at, rng, fallbacks)
        return Choice(
            chosen, others, candidates=self._candidates, demand=self._demand, weights=self._weights, added=self._added
        )  # fmt: skip

    def full(self) -> AllFull:
        """All were at their limit."""
        return AllFull(self._candidates, self._demand, self._weights, self._added)


class NoWorker(_Field):
    """There is no worker that the request may go to at all."""


class AllFull(_Field):
    """There are workers for the request, and each is at its limit."""


def choose(
    candidates: Sequence[Candidate],
    demand: Demand,
    weights: Weights,
    rng: Random,
    fallbacks: int = 0,
    added: Surcharges | None = None,
) -> Choice | NoWorker | AllFull:
    """Take the cheapest worker that may be chosen, ties at random; with a temperature draw one by softmax of the price.

    The draw is ``p ~ exp(-(price - min) / ((max - min) * temperature))``. ``candidates`` must not change afterwards:
    the reasons are read from it. ``fallbacks`` further workers are named, the next cheapest ones. ``added`` is part of
    the prices.
    """
    open_to = [c for c in candidates if not c.barred and (not c.max_requests or not c.full)]
    if not open_to:
        none = all(candidate.barred not in ("", FULL) for candidate in candidates)
        return (NoWorker if none else AllFull)(candidates, demand, weights, added)
    prices = _prices(open_to, demand, weights, added)
    at = drawn(prices, weights.temperature, rng)
    others = _fallbacks(open_to, prices, at, rng, fallbacks)
    return Choice(open_to[at], others, candidates=candidates, demand=demand, weights=weights, added=added)


def offer(
    candidates: Sequence[Candidate],
    demand: Demand,
    weights: Weights,
    rng: Random,
    most: int,
    added: Surcharges | None = None,
) -> Offer | NoWorker:
    """The ``most`` cheapest workers that may be chosen, those at their limit last: whether they still are is not known.

    With a temperature each price gets Gumbel noise of the scale that `choose` has, drawn here: the least of the
    ``price - scale * G`` is a draw by softmax of the price, so that whoever takes the least noisy price samples.
    """
    allowed = [one for one in candidates if not one.barred]
    if not allowed:
        return NoWorker(candidates, demand, weights, added)
    prices = _prices(allowed, demand, weights, added)
    scale = (max(prices) - min(prices)) * weights.temperature
    noise = [scale * math.log(max(rng.expovariate(1.0), 1e-300)) if scale > 0 else 0.0 for _ in prices]
    best = heapq.nsmallest(
        most, range(len(prices)), key=lambda at: (allowed[at].full, prices[at] + noise[at], rng.random())
    )
    rng.shuffle(best)
    return Offer(
        [allowed[at] for at in best], [noise[at] for at in best], complete=len(best) == len(allowed),
        candidates=candidates, demand=demand, weights=weights, added=added,
    )  # fmt: skip


def _prices(
    candidates: Sequence[Candidate], demand: Demand, weights: Weights, added: Surcharges | None
) -> list[float]:
    """`picker.core.cost.price` of each, digit for digit; written out because every pick walks the whole pool here.

    What is added to the prices costs a walk of its own, and none where nothing is.
    """
    prompt, blocks, size = demand
    scale, credit, host_tier, disk_tier = (
        weights.prefill_scale, weights.overlap_credit, weights.host_tier, weights.disk_tier,
    )  # fmt: skip
    per_request = weights.request_weight
    prices = []
    for _, (tokens, held, requests), (more_tokens, more_held, more_requests), (
        device,
        host,
        disk,
    ), _, _ in candidates:
        prefill = (
            tokens + more_tokens + prompt - credit * (device + host_tier * host + disk_tier * disk) * size
        )
        prices.append(
            (scale * prefill / size if prefill > 0 else 0.0)
            + (held + more_held + blocks)
            + per_request * (requests + more_requests)
        )
    if added is not None:
        totals = added.totals
        return [price + totals.get(one.worker, 0.0) for price, one in zip(prices, candidates, strict=True)]
    return prices


def _left_out(candidate: Candidate) -> str:
    return candidate.barred or (FULL if candidate.full else "")


def _fallbacks(
    open_to: Sequence[Candidate], prices: Sequence[float], chosen: int, rng: Random, wanted: int
) -> tuple[str, ...]:
    return next_best([one.worker for one in open_to], prices, chosen, rng, wanted) if wanted > 0 else ()


def drawn(prices: Sequence[float], temperature: float, rng: Random) -> int:
    """Which of the prices wins: the least, ties at random; with a temperature by softmax, as `choose` says."""
    least = min(prices)
    scale = (max(prices) - least) * temperature
    if scale > 0:
        summed = list(accumulate(math.exp(-(value - least) / scale) for value in prices))
        return rng.choices(range(len(prices)), cum_weights=summed)[0]
    if temperature > 0:
        return rng.randrange(len(prices))
    ties = [at for at, value in enumerate(prices) if value == least]
    return ties[0] if len(ties) == 1 else rng.choice(ties)


def next_best(
    workers: Sequence[str], prices: Sequence[float], chosen: int, rng: Random, wanted: int
) -> tuple[str, ...]:
    """The cheapest ``wanted`` workers after the chosen one, ties at random, each on an address of its own."""

    def ranked() -> Iterator[str]:
        taken = {worker_address(workers[chosen])}
        for at in sorted(range(len(prices)), key=lambda at: (prices[at], rng.random())):
            worker = workers[at]
            if worker_address(worker) not in taken:
                taken.add(worker_address(worker))
                yield worker

    return tuple(worker for worker, _ in zip(ranked(), range(wanted), strict=False))
