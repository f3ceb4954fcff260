"""The workers of a pool side by side, kept from pick to pick: a choice then costs little more than a look at each.

`picker.core.choose` weighs candidates that somebody makes for each pick. Here the part of a price that no request
changes is worked out when a worker's load changes, and a pick compares those. The answer is that of
`picker.core.choose.choose` on the same loads and overlaps, digit for digit and draw for draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Final

from picker.core.choose import AllFull, Candidate, Choice, NoWorker, Offer, drawn, next_best, offer
from picker.core.cost import Demand, Weights
from picker.core.groups import ROUNDING, Groups, Part
from picker.core.load import Load
from picker.core.match import NO_OVERLAP, Overlap, Shares, bits
from picker.core.weighed import Carried, Loads, Weighed, candidate, held

_NOTHING: Final[Part] = (0, 0, 0.0)

_REST: Final = (-1, NO_OVERLAP)
"""All that hold nothing, where those that hold something are taken out."""


class Lineup:
    """Every worker that may be picked, with its load.

    A worker has a *seat*, a number that is its bit in the masks of those that hold something.

    Args:
        weights: of the price.
        block_size: tokens per block; demands are of the same.
        limit: most requests booked on one worker; 0: no limit.
    """

    def __init__(self, weights: Weights, *, block_size: int, limit: int = 0) -> None:
        self._weights, self._size, self._limit = weights, block_size, limit
        self._named: Sequence[str] = ()
        self._seats: Sequence[int] = ()
        """Those that are taken, rising."""
        self._seat_of: dict[str, int] = {}
        self._names: list[str] = []
        """By seat, as all that follows."""
        self._loads = Loads.of(0)
        self._parts: list[Part] = []
        self._groups = Groups(0)
        """Of those below their limit."""
        self._taken = 0
        """Mask of all seats."""
        self._odd: set[int] = set()
        """Seats with less than nothing of something, where a standing proves nothing."""

    @property
    def names(self) -> Sequence[str]:
        """The workers, as they were lined up."""
        return self._named

    def line_up(self, names: Sequence[str], seats: Sequence[int] | None = None) -> None:
        """Take these workers and no others, each on its own seat (None: in their order); they carry nothing until `put`
        says so. A tie between some is drawn as if they stood in the order of seats. ``names`` must not change.
        """
        by_seat = dict(zip(range(len(names)) if seats is None else seats, names, strict=True))
        self._named, self._seats = names, sorted(by_seat)
        self._seat_of = {name: seat for seat, name in by_seat.items()}
        n = max(by_seat, default=-1) + 1
        self._names = [by_seat.get(seat, "") for seat in range(n)]
        self._loads = Loads.of(n)
        self._parts, self._groups, self._odd = [_NOTHING] * n, Groups(n), set()
        for seat in self._seats:
            self._groups.join(seat, _NOTHING, 0.0)
        self._taken = self._groups.taken

    def reseat(self, seats: Sequence[int]) -> None:
        """The same workers, as they were lined up, on these seats from now on, with all that they carry."""
        moved = [
            (name, seat, self._seat_of[name])
            for name, seat in zip(self._named, seats, strict=True)
            if seat != self._seat_of[name]
        ]
        if not moved:
            return
        more = max(0, *(seat + 1 - len(self._names) for _, seat, _ in moved))
        loads, names = self._loads.grown(more), [*self._names, *[""] * more]
        self._parts += [_NOTHING] * more
        self._groups.grow(more)
        for _, _, old in moved:
            names[old] = ""
            self._odd.discard(old)
            if (group := self._groups.of(old)) is not None:
                self._groups.leave(old, group)
        carried = [(name, loads.booked[old], loads.unbooked[old]) for name, _, old in moved]
        for name, seat, _ in moved:
            names[seat] = name
            self._seat_of[name] = seat
        self._loads, self._names, self._seats = loads, names, sorted(seats)
        self._taken = sum(1 << seat for seat in seats)
        for each in carried:
            self.put(*each)

    def put(self, worker: str, booked: Carried, unbooked: Load | None = None) -> None:
        """That much is booked there from now on, and carried beyond that (None: as before).

        A worker that is not lined up is ignored.
        """
        seat = self._seat_of.get(worker)
        if seat is None:
            return
        if unbooked is None:
            unbooked = self._loads.unbooked[seat]
        self._loads = self._loads.put(seat, booked, unbooked)
        more_tokens, more_blocks, more_requests = unbooked
        weights, count = self._weights, booked.requests
        tokens, blocks = booked.prefill_tokens + more_tokens, booked.blocks + more_blocks
        requests = weights.request_weight * (count + more_requests)
        part = tokens, blocks, requests
        group = self._groups.of(seat)
        full = 0 < self._limit <= count
        if group is not None and not full and part == group.part:
            return
        if group is not None:
            self._groups.leave(seat, group)
        self._parts[seat] = part
        if tokens < 0 or blocks < 0 or requests < 0:
            self._odd.add(seat)
        elif self._odd:
            self._odd.discard(seat)
        if not full:
            self._groups.join(seat, part, weights.prefill_scale * tokens / self._size + blocks + requests)

    def overlaps(self, shares: Shares) -> dict[str, Overlap]:
        """What the workers hold that hold something, by name."""
        names, taken = self._names, self._taken
        return {names[seat]: overlap for mask, overlap in shares for seat in bits(mask & taken)}

    def weigh(
        self,
        overlaps: Mapping[str, Overlap],
        names: Sequence[str] | None = None,
        booked: Mapping[str, Load] | None = None,
    ) -> list[Candidate]:
        """The workers for `picker.core.choose`, ``names`` of them (None: all), with what they hold.

        ``booked`` are loads to be taken for those booked there; None: these themselves.
        """
        loads, seat_of, limit = self._loads, self._seat_of, self._limit
        found = []
        for name in self._named if names is None else names:
            seat = seat_of[name]
            if booked is None:
                each = loads.booked[seat]
                load = Load(each.prefill_tokens, each.blocks, each.requests)
            else:
                load = booked[name]
            found.append(Candidate(name, load, loads.unbooked[seat], overlaps.get(name, NO_OVERLAP), limit))
        return found

    def choose(
        self, demand: Demand, shares: Shares, rng: Random, fallbacks: int = 0
    ) -> Choice | NoWorker | AllFull:
        """As `picker.core.choose.choose`. ``shares`` say what workers hold, by seat; they must not change."""
        weights, loads = self._weights, self._loads
        weighed = Weighed(self._seats, self._names, loads, shares, self._limit)
        if not self._groups.taken:
            return (AllFull if self._seats else NoWorker)(weighed, demand, weights)
        others: tuple[str, ...] = ()
        if fallbacks or weights.temperature or self._odd:
            seats = list(bits(self._groups.taken))
            prices = self._prices(seats, demand, shares)
            at = drawn(prices, weights.temperature, rng)
            seat = seats[at]
            if fallbacks:
                others = next_best([self._names[one] for one in seats], prices, at, rng, fallbacks)
        else:
            seat = _any_of(self._cheapest(demand, shares), rng)
        chosen = candidate(
            self._names[seat], loads.booked[seat], loads.unbooked[seat], held(shares, seat), self._limit
        )
        return Choice(chosen, others, candidates=weighed, demand=demand, weights=weights)

    def offer(self, demand: Demand, shares: Shares, rng: Random, most: int) -> Offer | NoWorker:
        """As `picker.core.choose.offer`, with draws of its own among workers that cost the same."""
        weights, groups, left = self._weights, self._groups, self._groups.taken
        weighed = Weighed(self._seats, self._names, self._loads, shares, self._limit)
        if weights.temperature or self._odd or left.bit_count() < len(self._seats) or not left:
            return offer(list(weighed), demand, weights, rng, most)
        prices: dict[float, int] = {}
        for mask, overlap in (*shares, _REST):
            here = mask & left
            left ^= here
            cached = self._cached(overlap, demand.block_size)
            whole = cached > demand.prompt_tokens or here.bit_count() <= most
            for group in groups.all_of(here) if whole else groups.first(here, self._common(demand), most):
                price = _price(group.part, demand, weights.prefill_scale, cached)
                prices[price] = prices.get(price, 0) | (group.mask & here)
        seats: list[int] = []
        for _, mask in sorted(prices.items()):
            alike, room = list(bits(mask)), most - len(seats)
            seats += alike if len(alike) <= room else rng.sample(alike, room)
            if len(seats) == most:
                break
        rng.shuffle(seats)
        loads = self._loads
        offered = [
            candidate(
                self._names[seat], loads.booked[seat], loads.unbooked[seat], held(shares, seat), self._limit
            )
            for seat in seats
        ]
        return Offer(
            offered, [0.0] * len(seats), complete=len(seats) == len(self._seats), candidates=weighed, demand=demand,
            weights=weights,
        )  # fmt: skip

    def _cheapest(self, demand: Demand, shares: Shares) -> int:
        """The workers whose price is the least, digit for digit.

        Of those that hold the same, or all of them nothing, only the ones that carry the least are worth a look: a
        request adds the same to the price of each, but for roundings.
        """
        prompt, _, size = demand
        scale, groups, left = self._weights.prefill_scale, self._groups, self._groups.taken
        least, common = groups.least, self._common(demand)
        slack = ROUNDING * (least + common + 1.0)
        best, cheapest = inf, 0
        for mask, overlap in (*reversed(shares), _REST):
            here = mask & left
            if not here:
                continue
            left ^= here
            cached = self._cached(overlap, size)
            if cached > prompt:
                worth = groups.all_of(here)  # more credit than work: what is too much is worth nothing
            elif least + common - scale * cached / size > best + slack:
                continue  # even the least loaded of all would cost more
            else:
                worth = groups.near(here, common)
            for group in worth:
                price = _price(group.part, demand, scale, cached)
                if price < best:
                    best, cheapest = price, group.mask & here
                elif price == best:
                    cheapest |= group.mask & here
        return cheapest

    def _common(self, demand: Demand) -> float:
        """About what the request adds to the price of every worker that holds nothing of it."""
        return self._weights.prefill_scale * demand.prompt_tokens / demand.block_size + demand.blocks

    def _cached(self, overlap: Overlap, size: int) -> float:
        device, host, disk = overlap
        weights = self._weights
        return weights.overlap_credit * (device + weights.host_tier * host + weights.disk_tier * disk) * size

    def _prices(self, seats: Sequence[int], demand: Demand, shares: Shares) -> list[float]:
        """`picker.core.cost.price` of each."""
        scale, parts, size = self._weights.prefill_scale, self._parts, demand.block_size
        cached: dict[int, float] = {}
        for mask, overlap in shares:
            cached.update(dict.fromkeys(bits(mask & self._taken), self._cached(overlap, size)))
        return [_price(parts[seat], demand, scale, cached.get(seat, 0.0)) for seat in seats]


def _price(part: Part, demand: Demand, scale: float, cached: float) -> float:
    """`picker.core.cost.price`, digit for digit."""
    tokens, blocks, requests = part
    prompt, more, size = demand
    prefill = tokens + prompt - cached
    return (scale * prefill / size if prefill > 0 else 0.0) + (blocks + more) + requests


def _any_of(mask: int, rng: Random) -> int:
    """The number of a bit that is set; of several one at random, as `random.choice` takes it of their list."""
    if not mask & (mask - 1):
        return mask.bit_length() - 1
    wanted, low, width = rng.choice(range(mask.bit_count())), 0, mask.bit_length()
    while width > 1:
        half = width >> 1
        lower = mask & (1 << half) - 1
        below = lower.bit_count()
        if wanted < below:
            mask, width = lower, half
        else:
            mask >>= half
            wanted, low, width = wanted - below, low + half, width - half
    return low
