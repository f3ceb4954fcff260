"""One replica's decision code, wired as `picker.app` and `picker.picking` wire it, without their edges."""

from __future__ import annotations

import random
from collections.abc import Sequence

from picker.bench.quality.plane import Hand, Plane
from picker.bench.quality.trace import BLOCK_TOKENS, Request
from picker.bench.quality.world import World
from picker.core.choose import Candidate, Choice, Demand, choose
from picker.core.cost import Weights, uncached_tokens
from picker.core.index import PrefixIndex
from picker.core.load import Load, Report
from picker.events.bridge.changes import Change
from picker.pool import WorkerPool
from picker.prefills import Run
from picker.serving.seam import End
from picker.settings import PriceSettings, WorkerSettings
from picker.underway import Underway
from picker.workers.registry import Registry
from stateplane.booking import Amount

TICK_SECONDS = 0.1
"""How often a running replica looks for prefills that are over by time."""


def default_weights() -> Weights:
    """The price's parameters as they are without any setting."""
    price = PriceSettings.model_construct()
    return Weights(
        overlap_credit=price.overlap_credit,
        prefill_scale=price.prefill_scale,
        request_weight=price.request_weight,
        host_tier=price.host_tier_weight,
        disk_tier=price.disk_tier_weight,
        temperature=price.temperature,
    )


class _Named:
    """An endpoint as discovery names it."""

    rank = 0
    labels: dict[str, str] = {}  # noqa: RUF012 - a constant of this world

    def __init__(self, address: str) -> None:
        self.address = address


class Replica:
    """Picks workers on its own index and its own view."""

    def __init__(self, name: str, workers: Sequence[str], world: World, plane: Plane, seed: int) -> None:
        settings = WorkerSettings.model_construct()
        self.scrape_seconds = settings.scrape_seconds
        self._world = world
        self._registry = Registry(stale_seconds=settings.report_stale_seconds)
        self._pool = WorkerPool(self._registry, settings, block_size=BLOCK_TOKENS)
        self._hand = Hand(name, world, plane)
        self._hand.view.listen(self._pool.booked)
        self._underway = Underway(self._hand, known=self._registry.__contains__, clock=world.now)
        self._index = PrefixIndex()
        self._registry.update([_Named(worker) for worker in workers])
        for worker in workers:
            self._index.add(worker)
        self._weights = default_weights()
        self._rng = random.Random(seed)

    def pick(self, request: Request) -> str:
        """Choose and book, as `picker.picking` does with a request whose token ids are known."""
        now, view = self._world.now(), self._hand.view
        match = self._index.match(request.hashes)
        demand = Demand(request.input_length, request.blocks, BLOCK_TOKENS)
        candidates = []
        for name in self._registry.routable(now):
            booked = view.load(name)
            carried = Load(booked.prefill_tokens, booked.blocks, booked.requests)
            candidates.append(Candidate(name, carried, self._pool.unbooked(name, now), match.overlap(name)))
        choice = choose(candidates, demand, self._weights, self._rng)
        assert isinstance(choice, Choice), "workers without a limit can always be chosen"
        self._book(request, choice, demand)
        return choice.worker

    def _book(self, request: Request, choice: Choice, demand: Demand) -> None:
        now, booking_id = self._world.now(), str(request.number)
        uncached = round(uncached_tokens(demand, choice.chosen.overlap, self._weights))
        alone = choice.chosen.booked.prefill_tokens == 0
        self._hand.book(booking_id, worker=choice.worker, amount=Amount(uncached, request.blocks))
        last = request.hashes[-1] if request.hashes else None
        self._underway.begin(
            Run(
                booking_id,
                choice.worker,
                request.input_length,
                uncached,
                request.blocks,
                now,
                last,
                alone=alone,
            )
        )

    def ended(self, booking_id: str) -> None:
        """The end of its response was seen."""
        self._underway.over(booking_id, End.PROVEN)

    def announced(self, worker: str, changes: Sequence[Change]) -> None:
        """A worker's bridge spoke."""
        for change in changes:
            if change.kind == "stored":
                self._index.store(worker, change.hashes, change.tier)
                self._underway.stored(worker, change.hashes)
            elif change.kind == "removed":
                self._index.remove(worker, change.hashes, change.tier)
            else:
                self._index.clear(worker)

    def scraped(self, worker: str, report: Report) -> None:
        """A worker's metrics were read."""
        self._registry.heard(worker, {0: report})

    def tick(self) -> None:
        """What a running replica does every so often."""
        self._underway.tick(self._world.now(), log_expected=False)
