"""The workers as a pick finds them: who may be picked, what each carries, and what it holds of the prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from picker.core.cost import Weights
from picker.core.index import PrefixIndex
from picker.core.lineup import Lineup
from picker.core.load import Load, aged, ageing
from picker.core.match import NO_OVERLAP, Overlap, Shares, sum_overlaps
from picker.core.predicted import Predicted
from stateplane.view import View


class Pool(Protocol):
    """The workers that may be picked."""

    def routable(self, now: float) -> Sequence[str]:
        """Workers that are in the pool and not asleep, in a steady order."""
        ...

    def unbooked(self, worker: str, now: float) -> Load:
        """What the worker reports beyond what was booked, fixed until its next report."""
        ...

    def changed(self, now: float) -> Sequence[str]:
        """Workers whose unbooked load may differ from what it was at the last call; `Deciding` alone calls it."""
        ...


class Survey:
    """
    Keeps the line-up of the pool's workers as it is.

    Args:
        pool: the workers.
        index: who holds which prefix.
        predicted: who is about to, in the index's bits from now on.
        tails: who holds what behind prompts with media; None: nobody.
        view: what is booked.
        weights: of prices.
        block_size: tokens per block.
        limit: most requests booked on one worker; 0: no limit.

    """

    def __init__(
        self,
        *,
        pool: Pool,
        index: PrefixIndex,
        predicted: Predicted,
        tails: PrefixIndex | None,
        view: View,
        weights: Weights,
        block_size: int,
        limit: int,
    ) -> None:
        self._pool, self._index, self._predicted, self._tails = pool, index, predicted, tails
        self._view = view
        self._lineup = Lineup(weights, block_size=block_size, limit=limit)
        self._seating = index.seating
        self._touched: set[str] = set()
        """Workers whose booked load has changed since the last look."""
        predicted.beside(index)
        view.listen(self._booked)

    def _booked(self, worker: str, _requests: int, _blocks: int, _now: float) -> None:
        self._touched.add(worker)

    def lineup(self, now: float) -> Lineup:
        """The workers that may be picked, with what they carry now."""
        lineup, names, pool, view = self._lineup, self._pool.routable(now), self._pool, self._view
        changed: Iterable[str] = pool.changed(now)
        if names is not lineup.names:
            lineup.line_up(names, self._index.seats(names))
            self._seating, changed = self._index.seating, names
        else:
            if self._seating != self._index.seating:
                lineup.reseat(self._index.seats(names))
                self._seating = self._index.seating
            for name in self._touched:
                lineup.put(name, view.load(name))
        self._touched.clear()
        for name in changed:
            lineup.put(name, view.load(name), pool.unbooked(name, now))
        return lineup

    def shares(self, hashes: Sequence[int], now: float) -> Shares:
        """What the workers hold of a prompt or are about to hold, by their seats in the line-up."""
        return self._index.match(hashes, self._predicted.runs(hashes, now)).shares()

    def overlaps(
        self, prompts: Sequence[Sequence[int]], tail: Sequence[int], lineup: Lineup, now: float
    ) -> Mapping[str, Overlap]:
        """What each worker of the line-up holds of all prompts together, and is about to hold of a single one.

        A tail counts only where the worker holds all that stands before it.
        """
        if not prompts:
            return {}
        if len(prompts) > 1:
            matches = [self._index.match(hashes) for hashes in prompts]
            return {name: sum_overlaps(matches, name) for name in lineup.names}
        found = lineup.overlaps(self.shares(prompts[0], now))
        if self._tails is not None and tail:
            tails, whole = self._tails.match(tail), len(prompts[0])
            for name in lineup.names:
                held = found.get(name, NO_OVERLAP)
                if held.total >= whole and (more := tails.overlap(name).total):
                    found[name] = Overlap(held.device + more, held.host, held.disk)
        return found

    def aged(self, names: Sequence[str], unseen: float) -> dict[str, Load]:
        """Own load exactly, foreign load moved toward its mean over the pool: the view is behind."""
        view = self._view
        foreign: dict[str, Load] = {}
        owned = []
        for name in names:
            all_of_it, own = view.load(name), view.own_load(name)
            owned.append(own)
            foreign[name] = Load(
                all_of_it.prefill_tokens - own.prefill_tokens,
                all_of_it.blocks - own.blocks,
                all_of_it.requests - own.requests,
            )
        moved = aged(foreign, ageing(unseen))
        return {
            name: Load(own.prefill_tokens + tokens, own.blocks + blocks, own.requests + requests)
            for own, (name, (tokens, blocks, requests)) in zip(owned, moved.items(), strict=True)
        }
