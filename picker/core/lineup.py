"""The workers of a pool side by side, kept from pick to pick: a choice then costs little more than a look at each.

`picker.core.choose` weighs candidates that somebody makes for each pick. Here the part of a price that no request
changes is worked out when a worker's load changes, and a pick compares those. The answer is that of
`picker.core.choose.choose` on the same loads and overlaps, digit for digit and draw for draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol, overload

from picker.core.choose import AllFull, Candidate, Choice, NoWorker, drawn, next_best
from picker.core.cost import Demand, Weights
from picker.core.load import NO_LOAD, Load
from picker.core.match import NO_OVERLAP, Overlap

ROUNDING: Final = 1e-12
"""Two orders of adding up one price differ by less than this share of it: a handful of roundings of 1.1e-16 each."""


class Carried(Protocol):
    """A load by any name. It never changes; another load is another value."""

    @property
    def prefill_tokens(self) -> float:
        """Prompt tokens still to be computed."""
        ...

    @property
    def blocks(self) -> float:
        """KV blocks, of the pool's block size."""
        ...

    @property
    def requests(self) -> float:
        """Requests."""
        ...


class Weighed(Sequence[Candidate]):
    """The candidates of one pick as they were, each made only when somebody looks at it."""

    __slots__ = ("_booked", "_limit", "_names", "_overlaps", "_unbooked")

    def __init__(
        self,
        names: Sequence[str],
        booked: Sequence[Carried],
        unbooked: Sequence[Load],
        overlaps: Mapping[str, Overlap],
        limit: int,
    ) -> None:
        self._names, self._booked, self._unbooked = names, booked, unbooked
        self._overlaps, self._limit = overlaps, limit

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, at: int) -> Candidate: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, at: int | slice) -> Candidate | Sequence[Candidate]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        name, booked = self._names[at], self._booked[at]
        load = Load(booked.prefill_tokens, booked.blocks, booked.requests)
        return Candidate(name, load, self._unbooked[at], self._overlaps.get(name, NO_OVERLAP), self._limit)

    def __iter__(self) -> Iterator[Candidate]:
        return (self[at] for at in range(len(self._names)))


class Lineup:
    """Every worker that may be picked, with its load.

    Args:
        weights: of the price.
        block_size: tokens per block; demands are of the same.
        limit: most requests booked on one worker; 0: no limit.
    """

    def __init__(self, weights: Weights, *, block_size: int, limit: int = 0) -> None:
        self._weights, self._size, self._limit = weights, block_size, limit
        self._names: Sequence[str] = ()
        self._places: dict[str, int] = {}
        self._booked: list[Carried] = []
        self._unbooked: list[Load] = []
        self._shown = False
        """Whether former choices hold `_unbooked`, which changes with reports alone: it is copied before it changes."""
        self._tokens: list[float] = []
        self._blocks: list[float] = []
        self._requests: list[float] = []
        """By place: what is added up of a worker's load before the request comes into it."""
        self._standing: list[float] = []
        """By place: about the price of a request of nothing."""
        self._full: set[int] = set()
        self._odd: set[int] = set()
        """Places with less than nothing of something, where `_standing` proves nothing."""

    def __contains__(self, worker: str) -> bool:
        return worker in self._places

    @property
    def names(self) -> Sequence[str]:
        """The workers, in the order of places."""
        return self._names

    def line_up(self, names: Sequence[str]) -> None:
        """Take these workers and no others; they carry nothing until `put` says so. ``names`` must not change."""
        self._names, n = names, len(names)
        self._places = {name: place for place, name in enumerate(names)}
        self._booked, self._unbooked, self._shown = [NO_LOAD] * n, [NO_LOAD] * n, False
        self._tokens, self._blocks, self._requests, self._standing = [0] * n, [0] * n, [0.0] * n, [0.0] * n
        self._full, self._odd = set(), set()

    def put(self, worker: str, booked: Carried, unbooked: Load) -> None:
        """That much is booked there from now on, and carried beyond that. A worker that is not lined up is ignored."""
        place = self._places.get(worker)
        if place is None:
            return
        more_tokens, more_blocks, more_requests = unbooked
        weights, count = self._weights, booked.requests
        self._booked[place] = booked
        if self._unbooked[place] is not unbooked:
            if self._shown:
                self._unbooked, self._shown = self._unbooked[:], False
            self._unbooked[place] = unbooked
        self._tokens[place] = tokens = booked.prefill_tokens + more_tokens
        self._blocks[place] = blocks = booked.blocks + more_blocks
        self._requests[place] = requests = weights.request_weight * (count + more_requests)
        self._standing[place] = weights.prefill_scale * tokens / self._size + blocks + requests
        _mark(self._full, place, on=0 < self._limit <= count)
        _mark(self._odd, place, on=tokens < 0 or blocks < 0 or requests < 0)

    def carrying(self, loads: Mapping[str, Load]) -> Lineup:
        """A line-up of the same workers, each with that load booked instead; what is unbooked stays."""
        line = Lineup(self._weights, block_size=self._size, limit=self._limit)
        line.line_up(self._names)
        for place, name in enumerate(self._names):
            line.put(name, loads[name], self._unbooked[place])
        return line

    def choose(
        self, demand: Demand, overlaps: Mapping[str, Overlap], rng: Random, fallbacks: int = 0
    ) -> Choice | NoWorker | AllFull:
        """As `picker.core.choose.choose`. ``overlaps`` names the workers that hold something; it must not change."""
        weights, names = self._weights, self._names
        weighed = Weighed(names, self._booked[:], self._unbooked, overlaps, self._limit)
        self._shown = True
        if len(self._full) == len(names):
            return (AllFull if names else NoWorker)(weighed, demand, weights)
        every = fallbacks or weights.temperature
        places = self._open() if every or self._full or self._odd else self._near(demand, overlaps)
        if len(places) == 1 and not every:
            return Choice(weighed[places[0]], (), candidates=weighed, demand=demand, weights=weights)
        if not every and not overlaps and self._alike(places):
            place = rng.choice(places)
            return Choice(weighed[place], (), candidates=weighed, demand=demand, weights=weights)
        prices = self._prices(places, demand, overlaps)
        at = drawn(prices, weights.temperature, rng)
        others = (
            next_best([names[place] for place in places], prices, at, rng, fallbacks) if fallbacks else ()
        )
        return Choice(weighed[places[at]], others, candidates=weighed, demand=demand, weights=weights)

    def _open(self) -> Sequence[int]:
        if not self._full:
            return range(len(self._names))
        return [place for place in range(len(self._names)) if place not in self._full]

    def _near(self, demand: Demand, overlaps: Mapping[str, Overlap]) -> Sequence[int]:
        """The places that may turn out the cheapest, in their order: where the prompt is held, and the least others.

        A request adds the same to the price of every worker that holds nothing of it, but for roundings.
        """
        standing = self._standing
        least = min(standing)
        common = self._weights.prefill_scale * demand.prompt_tokens / self._size + demand.blocks
        reach = least + ROUNDING * (least + common + 1.0)
        near = [place for place, value in enumerate(standing) if value <= reach]
        if overlaps:
            places = self._places
            holders = [places[name] for name in overlaps if name in places]
            return sorted({*near, *holders})
        return near

    def _alike(self, places: Sequence[int]) -> bool:
        """Whether all of them carry the same, as the many idle workers of a large pool do: then so do their prices."""
        loads = (self._tokens, self._blocks, self._requests) if self._weights.request_weight else (
            self._tokens, self._blocks,
        )  # fmt: skip
        return all(len(set(map(load.__getitem__, places))) == 1 for load in loads)

    def _prices(self, places: Sequence[int], demand: Demand, overlaps: Mapping[str, Overlap]) -> list[float]:
        """`picker.core.cost.price` of each, digit for digit."""
        prompt, more, size = demand
        weights, names = self._weights, self._names
        scale, credit = weights.prefill_scale, weights.overlap_credit
        host_tier, disk_tier = weights.host_tier, weights.disk_tier
        tokens, blocks, requests = self._tokens, self._blocks, self._requests
        prices = []
        for place in places:
            prefill = tokens[place] + prompt
            if overlaps and (overlap := overlaps.get(names[place])) is not None:
                device, host, disk = overlap
                prefill = prefill - credit * (device + host_tier * host + disk_tier * disk) * size
            prices.append(
                (scale * prefill / size if prefill > 0 else 0.0) + (blocks[place] + more) + requests[place]
            )
        return prices


def _mark(places: set[int], place: int, *, on: bool) -> None:
    if on:
        places.add(place)
    elif places:
        places.discard(place)
