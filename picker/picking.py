"""One request's way, from what the gateway showed to the answer.

Reads the body, lets `picker.deciding` choose and book, answers. What happens to the request afterwards is
`picker.underway`'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.core.blocks import sequence_hashes
from picker.core.choose import AllFull, Demand, NoWorker
from picker.core.index import PrefixIndex
from picker.core.predicted import Predicted
from picker.core.worker import worker_address, worker_rank
from picker.deciding import Bookings, Deciding, Placed, Pool, Wish
from picker.decision import Decision
from picker.prefills import Run
from picker.requests.ask import Ask, BadRequest, TokenIds, Untold
from picker.requests.keys import request_key
from picker.requests.reading import path_of, read
from picker.requests.tokens import Tokens
from picker.serving.seam import End, HttpRequest, LogEntry, Picked, Refused, Responded
from picker.settings import Settings
from picker.underway import Underway

RANK_HEADER = "x-data-parallel-rank"
"""vLLM sends a request to the data-parallel rank that this header names."""


class Events(Protocol):
    """What a pick tells the event path."""

    def routed(self, worker: str, now: float, hashes: Sequence[int] = ()) -> None:
        """A request was sent to the worker."""
        ...

    def told_of(self, worker: str) -> bool:
        """Whether the worker's events are followed."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a pick knows of a prompt."""

    tokens: int
    blocks: int
    hashes: tuple[Sequence[int], ...]
    """Sequence hashes of each prompt's full blocks; empty where token ids are not known."""
    untold: str = ""
    """Why token ids are not known."""

    @property
    def last_block(self) -> int | None:
        """Hash of the last full block of the last prompt: what a worker announces once it has computed the prompt."""
        return self.hashes[-1][-1] if self.hashes and self.hashes[-1] else None


class Picking:
    """Answers requests. Implements `picker.serving.seam.Requests`."""

    def __init__(
        self,
        settings: Settings,
        *,
        pool: Pool,
        index: PrefixIndex,
        bookings: Bookings,
        tokens: Tokens,
        underway: Underway,
        journal: Journal,
        metrics: Metrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: random.Random,
        predicted: Predicted | None = None,
        events: Events | None = None,
    ) -> None:
        self._settings, self._tokens = settings, tokens
        self._predicted, self._events = predicted, events
        self._underway, self._journal, self._metrics = underway, journal, metrics
        self._clock, self._wall = clock, wall
        self._deciding = Deciding(
            settings, pool=pool, index=index, bookings=bookings, clock=clock, rng=rng, predicted=predicted
        )
        self.counts = self._deciding.counts

    # the gateway's side

    async def pick(self, request: HttpRequest) -> Picked | Refused:
        """Decide. Cancelled when the stream ends first: nothing is booked before the last wait."""
        began = self._clock()
        try:
            answer = await self._answer(request, began)
        except BadRequest as error:
            answer = Refused(
                error.status, "invalid_request_error", "bad_request", error.message, param=error.param
            )
        if isinstance(answer, Refused):
            self._metrics.refused(answer.code)
            self._metrics.picked("error", self._clock() - began)
        return answer

    def responded(self, booking_id: str, response: Responded) -> None:
        """Response headers were seen."""
        self._underway.responded(booking_id, response)

    def body_seen(self, booking_id: str) -> None:
        """The first piece of a response body was seen."""
        self._underway.body_seen(booking_id)

    def over(self, booking_id: str, end: End) -> None:
        """The stream of that booking is over."""
        self._underway.over(booking_id, end)

    def logged(self, entries: Sequence[LogEntry]) -> None:
        """Access log entries that name bookings."""
        self._underway.logged(entries)

    # one request

    async def _answer(self, request: HttpRequest, began: float) -> Picked | Refused:
        ask = read(
            path_of(request.headers),
            request.headers,
            request.body,
            complete=request.complete,
            loras=self._settings.requests.loras,
            base_model=self._settings.requests.base_model,
            unknown_path=self._settings.serving.unknown_path,
        )
        prompt = await self._prompt(ask)
        placed = await self._deciding.place(self._wish(request, prompt))
        if isinstance(placed, NoWorker):
            return _no_worker(request.subset)
        if isinstance(placed, AllFull):
            return _all_full(placed.weighed)
        return self._picked(request, ask, prompt, placed, began)

    def _wish(self, request: HttpRequest, prompt: Prompt) -> Wish:
        settings = self._settings
        key = request_key(
            settings.pool.pool, request.headers, settings.requests.request_key_headers, request.body
        )
        return Wish(
            Demand(prompt.tokens, prompt.blocks, settings.price.block_size),
            prompt.hashes,
            None if request.subset is None else frozenset(request.subset),
            key,
        )

    async def _prompt(self, ask: Ask) -> Prompt:
        size = self._settings.price.block_size
        told = await self._tokens.ids(ask, self._settings.requests.tokenize_budget_seconds)
        if isinstance(told, Untold):
            reason = told.reason if ask.unread is None else ask.unread
            return Prompt(ask.estimated_tokens, -(-ask.estimated_tokens // size), (), untold=str(reason))
        return _hashed(ask, told, size)

    def _picked(self, request: HttpRequest, ask: Ask, prompt: Prompt, placed: Placed, began: float) -> Picked:
        """Follow the request from here on, and answer."""
        worker, chosen, settings = placed.choice.worker, placed.choice.chosen, self._settings
        alone = chosen.booked.prefill_tokens == 0
        run = Run(
            placed.booking_id, worker, prompt.tokens, placed.uncached, prompt.blocks, self._clock(),
            prompt.last_block, alone=alone,
        )  # fmt: skip
        self._underway.begin(run)
        self._expect(worker, prompt, held=chosen.overlap.total, model=ask.model)
        seconds = self._clock() - began
        self._metrics.picked("hit" if chosen.overlap.total else "miss", seconds)
        if prompt.untold:
            self._metrics.untold(prompt.untold)
        request_id = request.headers.get("x-request-id", "")
        decision = Decision(
            placed.booking_id, request_id, settings.pool.replica_name, self._wall(), seconds, ask.model,
            str(ask.api), prompt.tokens, prompt.blocks, prompt.untold, placed.choice, placed.way, placed.earlier,
        )  # fmt: skip
        self._journal.note(placed.booking_id, request_id, decision)
        addresses = dict.fromkeys(worker_address(name) for name in (worker, *placed.choice.fallbacks))
        return Picked(",".join(addresses), placed.booking_id, _rank_headers(worker))

    def _expect(self, worker: str, prompt: Prompt, *, held: int, model: str) -> None:
        """The worker should soon tell of the prompt's blocks; until it does they are predicted."""
        if self._events is None:
            return
        now, hashes = self._clock(), prompt.hashes[0] if len(prompt.hashes) == 1 else ()
        self._events.routed(worker, now, hashes)
        if self._predicted is not None and hashes and self._events.told_of(worker):
            self._predicted.note(worker, hashes, now, held=held, model=model)


def _hashed(ask: Ask, told: TokenIds, size: int) -> Prompt:
    hashes = tuple(sequence_hashes(ids, size, lora=ask.lora, salt=ask.salt) for ids in told.prompts)
    tokens = sum(len(ids) for ids in told.prompts)
    if not told.complete:
        tokens = max(tokens, ask.estimated_tokens)
    blocks = max(sum(-(-len(ids) // size) for ids in told.prompts), -(-tokens // size))
    return Prompt(tokens, blocks, hashes)


def _rank_headers(worker: str) -> tuple[tuple[str, str], ...]:
    rank = worker_rank(worker)
    return ((RANK_HEADER, str(rank)),) if rank else ()


def _no_worker(subset: Sequence[str] | None) -> Refused:
    text = (
        "no model server is in the pool"
        if subset is None
        else "no model server of the pool is in the given subset"
    )
    return Refused(503, "service_unavailable", "no_endpoints", text, "rejected-no-endpoints", retry_after=1)


def _all_full(workers: int) -> Refused:
    text = f"all {workers} model servers are at their limit"
    return Refused(429, "rate_limit_error", "saturated", text, "rejected-saturated", retry_after=1)
