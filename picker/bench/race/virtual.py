"""Replicas in virtual time: the product's choice, on views that are as late as the given delays. Pure."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence

from picker.bench.race.log import Pick
from picker.bench.race.world import WEIGHTS, Request, Setting, names
from picker.core.choose import Candidate, Choice, choose
from picker.core.load import Load

OFFERED = 8
"""Candidates that mode atomic offers to the plane: the best by its view."""


class _View:
    """What one replica believes every worker carries, ready to be chosen from."""

    def __init__(self, workers: Sequence[str]) -> None:
        self.candidates = [Candidate(worker) for worker in workers]
        self._coming: deque[tuple[float, int, int, int]] = deque()
        self._latest = 0.0

    def hear_at(self, at: float, worker: int, tokens: int, blocks: int) -> None:
        """A change of another replica arrives then; changes keep their order."""
        self._latest = max(self._latest, at)
        self._coming.append((self._latest, worker, tokens, blocks))

    def catch_up(self, now: float) -> None:
        """Take in what has arrived."""
        while self._coming and self._coming[0][0] <= now:
            _, worker, tokens, blocks = self._coming.popleft()
            self.add(worker, tokens, blocks)

    def add(self, worker: int, tokens: int, blocks: int) -> None:
        """It carries so much more, or less."""
        had = self.candidates[worker]
        load = Load(had.booked.prefill_tokens + tokens, had.booked.blocks + blocks, 0)
        self.candidates[worker] = Candidate(had.worker, load)


class Pool:
    """Every replica's view and the truth, for one run."""

    def __init__(self, setting: Setting, delays: Sequence[float], rng: random.Random) -> None:
        workers = names(setting.workers)
        self._numbers = {worker: number for number, worker in enumerate(workers)}
        self._mode = setting.mode
        self._truth = _View(workers)
        self._views = [_View(workers) for _ in range(setting.replicas)]
        self._delays = delays
        self._rng = rng
        self._ends: list[tuple[float, int, int, int, int]] = []

    def pick(self, request: Request) -> int:
        """Choose the worker of a request, and let it count: here at once, elsewhere one delay later."""
        self._end_until(request.at)
        replica = request.replica(len(self._views))
        view = self._views[replica]
        view.catch_up(request.at)
        worker = self._numbers[self._chosen(view, request)]
        amount = request.amount
        self._tell(request.at, replica, worker, amount.prefill_tokens, amount.blocks)
        end = (request.at + request.seconds, replica, worker, amount.prefill_tokens, amount.blocks)
        heapq.heappush(self._ends, end)
        return worker

    def _chosen(self, view: _View, request: Request) -> str:
        if self._mode != "atomic":
            return self._best(list(view.candidates), request)
        # the plane adds its exact sums to what the best by the view are worth, as its script does
        best = sorted(
            range(len(view.candidates)),
            key=lambda at: (view.candidates[at].booked.prefill_tokens, self._rng.random()),
        )
        return self._best([self._truth.candidates[at] for at in best[:OFFERED]], request)

    def _best(self, candidates: list[Candidate], request: Request) -> str:
        choice = choose(candidates, request.demand, WEIGHTS, self._rng)
        assert isinstance(choice, Choice), "no worker is ever barred or full here"
        return choice.worker

    def _end_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, replica, worker, tokens, blocks = heapq.heappop(self._ends)
            self._tell(at, replica, worker, -tokens, -blocks)

    def _tell(self, at: float, replica: int, worker: int, tokens: int, blocks: int) -> None:
        self._truth.add(worker, tokens, blocks)
        for number, view in enumerate(self._views):
            if number == replica:
                # ends are told in their order, but a replica's own are known to it at once
                view.add(worker, tokens, blocks)
            elif self._mode != "isolated":
                view.hear_at(at + self._rng.choice(self._delays), worker, tokens, blocks)


def simulate(setting: Setting, requests: Sequence[Request], delays: Sequence[float], seed: int) -> list[Pick]:
    """Every pick of a run. ``delays``: seconds, from which each change's way to each view is drawn."""
    pool = Pool(setting, delays, random.Random(f"virtual/{seed}"))
    return [Pick(one.at, one.at + one.seconds, pool.pick(one), one.tokens) for one in requests]
