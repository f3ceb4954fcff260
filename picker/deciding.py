"""Which worker gets a request, and its booking: on the shared view, or by the plane's exact sums.

On the view nothing waits between reading it and recording the pick. In mode atomic the cheapest workers by the view are
offered to the plane, which chooses and books in one step; where it does not, the pick is made on the view as it stands
then, and counted as degraded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from picker.core.choose import (
    FULL,
    AllFull,
    Candidate,
    Choice,
    Demand,
    NoWorker,
    Offer,
    Surcharges,
    choose,
    offer,
)
from picker.core.cost import Weights, slopes, uncached_tokens
from picker.core.index import PrefixIndex
from picker.core.match import Overlap
from picker.core.predicted import Predicted
from picker.core.worker import worker_address
from picker.criteria.judging import Prepared
from picker.decision import Way
from picker.eligibility import Eligibility
from picker.settings import Settings
from picker.survey import Pool, Survey
from stateplane.booking import Amount, Booking, Cause, Terms
from stateplane.booking import Candidate as Offered
from stateplane.selecting import Miss, Selection
from stateplane.values import value
from stateplane.view import View

__all__ = ["LEFT", "Bookings", "Counts", "Deciding", "Placed", "Pool", "Wish"]

LEFT = "left"
"""Degraded because the worker that the plane chose left the pool meanwhile."""


class Bookings(Protocol):
    """What a choice asks of the replica's hand in the plane."""

    view: View

    def new_id(self) -> str:
        """A fresh booking id."""
        ...

    def book(self, booking_id: str, *, key: str, worker: str, amount: Amount, now: float) -> Booking:
        """Record the booking at once and tell the plane."""
        ...

    async def select(
        self, booking_id: str, *, key: str, candidates: Sequence[Offered], terms: Terms
    ) -> Selection:
        """Let the plane choose and book."""
        ...

    def end(self, booking_id: str, cause: Cause) -> None:
        """End a booking of ours."""
        ...

    def unseen(self, now: float) -> float:
        """How many foreign requests the view probably misses; 0 while it is level."""
        ...


@value
class Wish:
    """What a request asks of the pool."""

    demand: Demand
    hashes: tuple[Sequence[int], ...]
    """Sequence hashes of each prompt's full blocks."""
    subset: frozenset[str] | None
    """The only workers that may be taken, as addresses or hosts; None: all."""
    key: str
    """Request key."""
    lora: str = ""
    """The LoRA adapter that the worker should hold; empty: none."""
    prepared: tuple[Prepared, ...] = ()
    """The criteria that have something to say on the request."""
    tail: Sequence[int] = ()
    """Of a single prompt with media: hashes of what stands behind ``hashes``."""
    model: str = ""
    """The model that the worker should serve; empty: any may take it."""

    @property
    def picky(self) -> bool:
        """Whether single workers must be asked if they suit it."""
        return bool(self.lora or self.prepared or self.model)


@value
class Placed:
    """A worker was chosen, and the request is booked there."""

    booking_id: str
    uncached: int
    """Prompt tokens booked as still to be computed."""
    choice: Choice
    way: Way
    earlier: tuple[Booking, ...]
    """The attempts of the same request that were known before."""


@dataclass(slots=True)
class Counts:
    """How picks came about."""

    on_view: int = 0
    by_plane: int = 0
    aged: int = 0  # picks on a view whose foreign load was moved toward the mean
    degraded: dict[str, int] = field(default_factory=lambda: {**{str(miss): 0 for miss in Miss}, LEFT: 0})


class Deciding:
    """Chooses workers and books."""

    def __init__(
        self,
        settings: Settings,
        *,
        pool: Pool,
        index: PrefixIndex,
        bookings: Bookings,
        clock: Callable[[], float],
        rng: random.Random,
        predicted: Predicted | None = None,
        eligibility: Eligibility | None = None,
        tails: PrefixIndex | None = None,
    ) -> None:
        self.counts = Counts()
        self._eligibility = eligibility
        self._pool, self._bookings = pool, bookings
        self._clock, self._rng = clock, rng
        self._mode = settings.sync
        self._usual = Way(self._mode)
        self._most = settings.plane.atomic_candidates
        price = settings.price
        self._limit, self._fallbacks = price.max_worker_requests, price.fallbacks
        self._weights = Weights(
            overlap_credit=price.overlap_credit,
            prefill_scale=price.prefill_scale,
            request_weight=price.request_weight,
            host_tier=price.host_tier_weight,
            disk_tier=price.disk_tier_weight,
            temperature=price.temperature,
        )
        self._survey = Survey(
            pool=pool, index=index, predicted=Predicted(life=0) if predicted is None else predicted, tails=tails,
            view=bookings.view, weights=self._weights, block_size=price.block_size, limit=self._limit,
        )  # fmt: skip

    @property
    def waits(self) -> bool:
        """Whether a choice has to wait for the plane: in mode atomic."""
        return self._mode == "atomic"

    async def place(self, wish: Wish) -> Placed | NoWorker | AllFull:
        """Choose and book, with a wait for the plane; cancelled there, it leaves nothing booked."""
        return await self._by_plane(wish) if self.waits else self.place_at_once(wish)

    def place_at_once(self, wish: Wish) -> Placed | NoWorker | AllFull:
        """Choose and book on the view, where nothing `waits`."""
        return self._on_view(wish, self._usual)

    # on the view

    def _on_view(
        self, wish: Wish, way: Way, full: frozenset[str] = frozenset()
    ) -> Placed | NoWorker | AllFull:
        """Choose and book, without waiting. ``full`` are workers known to be at their limit, whatever the view says."""
        now = self._clock()
        unseen = self._bookings.unseen(now)
        if unseen or full or not self._plain(wish):
            candidates, added = self._candidates(wish, now, unseen, full)
            choice = choose(candidates, wish.demand, self._weights, self._rng, self._fallbacks, added)
        else:
            lineup = self._survey.lineup(now)
            shares = self._survey.shares(wish.hashes[0], now) if wish.hashes else ()
            choice = lineup.choose(wish.demand, shares, self._rng, self._fallbacks)
        if not isinstance(choice, Choice):
            return choice
        self.counts.on_view += 1
        if unseen:
            self.counts.aged += 1
            way = replace(way, unseen=unseen)
        amount = self._amount(wish, choice.chosen.overlap)
        booking_id = self._bookings.new_id()
        earlier = self._earlier(wish)
        self._bookings.book(booking_id, key=wish.key, worker=choice.worker, amount=amount, now=now)
        return Placed(booking_id, amount.prefill_tokens, choice, way, earlier)

    def _plain(self, wish: Wish) -> bool:
        """Whether it asks nothing of single workers but what they hold of one prompt."""
        narrowed = self._eligibility is not None and wish.picky
        return wish.subset is None and not narrowed and len(wish.hashes) <= 1 and not wish.tail

    def _earlier(self, wish: Wish) -> tuple[Booking, ...]:
        return tuple(self._bookings.view.by_key(wish.key)) if wish.key else ()

    def _amount(self, wish: Wish, overlap: Overlap) -> Amount:
        uncached = round(uncached_tokens(wish.demand, overlap, self._weights))
        return Amount(uncached, wish.demand.blocks)

    # by the plane

    async def _by_plane(self, wish: Wish) -> Placed | NoWorker | AllFull:
        offered, unseen = self._offer(wish, self._clock())
        if isinstance(offered, NoWorker):
            return offered
        booking_id, earlier = self._bookings.new_id(), self._earlier(wish)
        names = tuple(one.worker for one in offered.offered)
        way = Way(self._mode, offered=names, unseen=unseen)
        selection = await self._bookings.select(
            booking_id, key=wish.key, candidates=self.as_offered(offered, wish), terms=self.terms(wish)
        )
        booking = selection.booking
        if booking is None:
            full = frozenset(names if selection.miss is Miss.FULL else ())
            if full and offered.complete:
                return offered.full()
            return self._degraded(wish, way, str(selection.miss), full)
        if booking.worker not in self._pool.routable(self._clock()):
            self._bookings.end(booking_id, Cause.LEFT)
            return self._degraded(wish, way, LEFT)
        self.counts.by_plane += 1
        choice = offered.taken(booking.worker, self._rng, self._fallbacks)
        way = replace(way, by_plane=True)
        return Placed(booking_id, booking.amount.prefill_tokens, choice, way, earlier)

    def _offer(self, wish: Wish, now: float) -> tuple[Offer | NoWorker, float]:
        """The cheapest workers by the view, and how many foreign requests that probably misses."""
        unseen = self._bookings.unseen(now)
        if unseen or not self._plain(wish):
            candidates, added = self._candidates(wish, now, unseen)
            return offer(candidates, wish.demand, self._weights, self._rng, self._most, added), unseen
        lineup = self._survey.lineup(now)
        shares = self._survey.shares(wish.hashes[0], now) if wish.hashes else ()
        return lineup.offer(wish.demand, shares, self._rng, self._most), unseen

    def _degraded(
        self, wish: Wish, way: Way, reason: str, full: frozenset[str] = frozenset()
    ) -> Placed | NoWorker | AllFull:
        self.counts.degraded[reason] += 1
        return self._on_view(wish, replace(way, degraded=reason), full)

    def as_offered(self, offered: Offer, wish: Wish) -> list[Offered]:
        """The offer in the plane's words."""
        amounts = {
            overlap: self._amount(wish, overlap) for overlap in {one.overlap for one in offered.offered}
        }
        return [
            Offered(one.worker, base, amounts[one.overlap], self._limit)
            for one, base in zip(offered.offered, offered.bases, strict=True)
        ]

    def terms(self, wish: Wish) -> Terms:
        """What one more token, block and request booked on a worker adds to its price."""
        return Terms(*slopes(wish.demand.block_size, self._weights))

    # the workers

    def _candidates(
        self, wish: Wish, now: float, unseen: float, full: frozenset[str] = frozenset()
    ) -> tuple[list[Candidate], Surcharges | None]:
        """The workers, those that may not take the request barred, and what is added to their prices."""
        survey = self._survey
        lineup = survey.lineup(now)
        names = lineup.names
        loads = survey.aged(names, unseen) if unseen else None
        if wish.subset is not None:
            names = [name for name in names if _allowed(name, wish.subset)]
        found = lineup.weigh(survey.overlaps(wish.hashes, wish.tail, lineup, now), names, loads)
        if full:
            found = [one._replace(barred=FULL) if one.worker in full else one for one in found]
        if self._eligibility is None or not wish.picky:
            return found, None
        return self._eligibility.judge(wish.lora, wish.prepared, found, now, model=wish.model)


def _allowed(name: str, subset: frozenset[str]) -> bool:
    address = worker_address(name)
    return address in subset or address.rpartition(":")[0].strip("[]") in subset
