"""How one replica picks in each mode, with its desk."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from picker.bench.race.virtual import OFFERED
from picker.bench.race.world import BLOCK, WEIGHTS, Request
from picker.core.choose import Candidate, Choice, choose
from picker.core.load import Load
from stateplane import booking
from stateplane.booking import Cause, Terms
from stateplane.desk import Desk

TERMS = Terms(per_token=WEIGHTS.prefill_scale / BLOCK, per_block=1.0, per_request=WEIGHTS.request_weight)


def request_of(booking_id: str) -> int:
    """Number of the request that a booking is of."""
    return int(booking_id.partition(".")[0])


class Hand:
    """One replica that picks: on the view, or in mode atomic on the plane's sums where it answers in time."""

    def __init__(self, desk: Desk, workers: Sequence[str], rng: random.Random) -> None:
        self._desk, self._workers, self._rng = desk, workers, rng
        self._booked: dict[int, str] = {}

    async def pick(self, request: Request) -> tuple[str, bool]:
        """The worker, and whether the pick was degraded: made on the view although the mode is atomic."""
        if self._desk.mode != "atomic":
            return self._on_view(request, f"{request.number}.v"), False
        name = f"{request.number}.p"
        selection = await self._desk.select(name, key="", candidates=self._offered(request), terms=TERMS)
        if selection.booking is None:
            return self._on_view(request, f"{request.number}.v"), True
        self._booked[request.number] = name
        return selection.booking.worker, False

    def end(self, request: Request) -> None:
        """Its end is proven."""
        self._desk.end(self._booked.pop(request.number), Cause.ENDED)

    def _on_view(self, request: Request, name: str) -> str:
        """Between reading the view and recording the pick nothing waits."""
        choice = choose(self._candidates(), request.demand, WEIGHTS, self._rng)
        assert isinstance(choice, Choice), "no worker is ever barred or full here"
        self._desk.book(name, key="", worker=choice.worker, amount=request.amount, now=time.monotonic())
        self._booked[request.number] = name
        return choice.worker

    def _candidates(self) -> list[Candidate]:
        view = self._desk.view
        return [
            Candidate(name, Load(held.prefill_tokens, held.blocks, held.requests))
            for name, held in ((name, view.load(name)) for name in self._workers)
        ]

    def _offered(self, request: Request) -> list[booking.Candidate]:
        """The least loaded by the view, ties at random, with what the request is worth there."""
        found = sorted(
            (one.booked.prefill_tokens, self._rng.random(), one.worker) for one in self._candidates()
        )
        amount = request.amount
        base = request.tokens / BLOCK + amount.blocks
        return [booking.Candidate(worker, base, amount) for _, _, worker in found[:OFFERED]]
