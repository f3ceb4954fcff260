"""One request's way, from what the gateway showed to the answer.

Reads the body, lets `picker.deciding` choose and book, answers. What happens to the request afterwards is
`picker.underway`'s.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.answers import Answers, Expected
from picker.core.choose import AllFull, Demand, NoWorker
from picker.core.index import PrefixIndex
from picker.core.predicted import Predicted
from picker.core.worker import worker_address, worker_rank
from picker.deciding import Bookings, Deciding, Placed, Pool, Wish
from picker.decision import Decision
from picker.eligibility import Eligibility
from picker.prefills import Run
from picker.prompts import Prompt, prompt_of
from picker.requests.ask import Api, Ask, BadRequest, TokenIds, Unread, Untold
from picker.requests.keys import request_key
from picker.requests.reading import path_of, read
from picker.requests.routes import read_route
from picker.requests.tenants import Tenants
from picker.requests.tokens import Begun, Tokens
from picker.responses.reading import Reading
from picker.rewriting import BY_HEADER, OTHER, NoRules, Rewriting, Rewritten, Source
from picker.serving.seam import End, HttpRequest, LogEntry, Picked, Refused, Responded
from picker.serving.statuses import Why, refusal
from picker.settings import Settings
from picker.underway import Underway

RANK_HEADER = "x-data-parallel-rank"
"""vLLM sends a request to the data-parallel rank that this header names."""


class Events(Protocol):
    """What a pick tells the event path."""

    def routed(self, worker: str, now: float, hashes: Sequence[int] = (), tail: Sequence[int] = ()) -> None:
        """A request was sent to the worker."""
        ...

    def told_of(self, worker: str) -> bool:
        """Whether the worker's events are followed."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, read."""

    ask: Ask
    key: str
    done: Rewritten | None
    """What was rewritten of it."""


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
        eligibility: Eligibility | None = None,
        tails: PrefixIndex | None = None,
        adapters: Container[str] | None = None,
        rules: Source | None = None,
    ) -> None:
        self._eligibility = eligibility
        self._adapters = settings.requests.loras if adapters is None else adapters
        self._settings, self._tokens = settings, tokens
        self._predicted, self._events = predicted, events
        self._underway, self._journal, self._metrics = underway, journal, metrics
        self._clock, self._wall = clock, wall
        self._deciding = Deciding(
            settings, pool=pool, index=index, bookings=bookings, clock=clock, rng=rng, predicted=predicted,
            eligibility=eligibility, tails=tails,
        )  # fmt: skip
        self.counts = self._deciding.counts
        self.rewriting = Rewriting(
            NoRules() if rules is None else rules, rng=rng, loras=self._adapters,
            base_model=settings.requests.base_model,
        )  # fmt: skip
        self.tenants = Tenants(settings.requests.tenant_header)
        self.answers = Answers(metrics.models, read_usage=settings.requests.read_usage)

    # the gateway's side

    def pick(self, request: HttpRequest) -> Picked | Refused | Awaitable[Picked | Refused]:
        """Decide: at once, unless token ids or the plane have to be waited for.

        Cancelled when the stream ends first: nothing is booked before the last wait.
        """
        began = self._clock()
        try:
            asked = self._asked(request)
            told = self._tokens.known(asked.ask)
            if isinstance(told, Begun) or self._deciding.waits:
                return self._waited(request, asked, told, began)
            answer = self._answered(request, asked, told, began)
        except BadRequest as error:
            answer = refusal(Why.BAD_REQUEST, error.message, param=error.param)
        return self._counted(answer, began)

    async def decide(self, request: HttpRequest) -> Picked | Refused:
        """As `pick`, for callers that wait anyway."""
        answer = self.pick(request)
        return answer if isinstance(answer, Picked | Refused) else await answer

    def responded(self, booking_id: str, response: Responded) -> None:
        """Response headers were seen."""
        self._underway.responded(booking_id, response)

    def body_seen(self, booking_id: str) -> None:
        """The first piece of a response body was seen."""
        self._underway.body_seen(booking_id)

    def over(self, booking_id: str, end: End) -> None:
        """The stream of that booking is over."""
        self.answers.over(booking_id)
        self._underway.over(booking_id, end)

    def logged(self, entries: Sequence[LogEntry]) -> None:
        """Access log entries that name bookings."""
        self._underway.logged(entries)

    # one request

    def _asked(self, request: HttpRequest) -> _Asked:
        """What the request asks for. Raises `BadRequest`."""
        ask = read(
            path_of(request.headers),
            request.headers,
            request.body,
            complete=request.complete,
            loras=self._adapters,
            base_model=self._settings.requests.base_model,
            unknown_path=self._settings.serving.unknown_path,
        )
        # The body as the client sent it names the request, so that a retry is known and goes to the same model.
        key = request_key(
            self._settings.pool.pool,
            request.headers,
            self._settings.requests.request_key_headers,
            request.body,
        )
        done = self.rewriting.apply(request, ask, key)
        if done is not None and done.body is not None:
            self._metrics.models.rewrote(done.rule, done.target if done.rule != BY_HEADER else OTHER)
        return _Asked(ask if done is None else done.ask, key, done)

    async def _waited(
        self, request: HttpRequest, asked: _Asked, told: TokenIds | Untold | Begun, began: float
    ) -> Picked | Refused:
        settings = self._settings
        try:
            if isinstance(told, Begun):
                budget = settings.requests.tokenize_budget_seconds
                told = await self._tokens.ids(asked.ask, budget, told)
            if self._deciding.waits:
                prompt = prompt_of(asked.ask, told, settings.price.block_size)
                placed = await self._deciding.place(self._wish(request, asked.ask, prompt, asked.key))
                answer = self._told(request, asked, prompt, placed, began)
            else:
                answer = self._answered(request, asked, told, began)
        except BadRequest as error:
            answer = refusal(Why.BAD_REQUEST, error.message, param=error.param)
        return self._counted(answer, began)

    def _answered(
        self, request: HttpRequest, asked: _Asked, told: TokenIds | Untold, began: float
    ) -> Picked | Refused:
        prompt = prompt_of(asked.ask, told, self._settings.price.block_size)
        placed = self._deciding.place_at_once(self._wish(request, asked.ask, prompt, asked.key))
        return self._told(request, asked, prompt, placed, began)

    def _told(
        self,
        request: HttpRequest,
        asked: _Asked,
        prompt: Prompt,
        placed: Placed | NoWorker | AllFull,
        began: float,
    ) -> Picked | Refused:
        if isinstance(placed, NoWorker):
            return _no_worker(request.subset, placed)
        if isinstance(placed, AllFull):
            return _all_full(placed.weighed)
        return self._picked(request, asked.ask, prompt, placed, began, asked.done)

    def _counted(self, answer: Picked | Refused, began: float) -> Picked | Refused:
        if isinstance(answer, Refused):
            self._metrics.refused(answer.code)
            self._metrics.picked("error", self._clock() - began)
        return answer

    def _wish(self, request: HttpRequest, ask: Ask, prompt: Prompt, key: str) -> Wish:
        settings = self._settings
        prepared = self._eligibility and self._eligibility.prepare(
            ask, request.headers, tokens=prompt.tokens, known=not prompt.untold
        )
        return Wish(
            Demand(prompt.tokens, prompt.blocks, settings.price.block_size),
            prompt.hashes,
            None if request.subset is None else frozenset(request.subset),
            key,
            ask.lora,
            prepared or (),
            prompt.tail,
            "" if self._eligibility is None else self._eligibility.model(ask),
        )

    def _picked(
        self,
        request: HttpRequest,
        ask: Ask,
        prompt: Prompt,
        placed: Placed,
        began: float,
        done: Rewritten | None,
    ) -> Picked:
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
            ask.standing, None if done is None else done.shown(), self.tenants.read(request.headers),
            read_route(request.attributes) if request.attributes else None,
        )  # fmt: skip
        self._journal.note(placed.booking_id, request_id, decision)
        destination = worker_address(worker)
        if placed.choice.fallbacks:
            others = (worker_address(name) for name in placed.choice.fallbacks)
            destination = ",".join(dict.fromkeys((destination, *others)))
        return Picked(
            destination, placed.booking_id, _rank_headers(worker), None if done is None else done.body,
            self._reading(request, ask, prompt, placed, done),
        )  # fmt: skip

    def _reading(
        self, request: HttpRequest, ask: Ask, prompt: Prompt, placed: Placed, done: Rewritten | None
    ) -> Reading | None:
        """What is to read the response, where the gateway shows it."""
        name = "" if done is None else done.restored
        if not request.response_shown:
            self.rewriting.counts.unrestored += bool(name)
            return None
        chosen = placed.choice.chosen
        cached = min(chosen.overlap.total * self._settings.price.block_size, prompt.tokens)
        expected = Expected(
            ask.model if done is None else done.label, ask.model, worker_address(placed.choice.worker),
            cached if prompt.hashes and prompt.complete else None,
        )  # fmt: skip
        computes = ask.api is not Api.OTHER and ask.unread is not Unread.UNCOMPUTED
        return self.answers.reading(placed.booking_id, expected, name=name, usage=computes)

    def _expect(self, worker: str, prompt: Prompt, *, held: int, model: str) -> None:
        """The worker should soon tell of the prompt's blocks; until it does they are predicted."""
        if self._events is None:
            return
        now, hashes = self._clock(), prompt.hashes[0] if len(prompt.hashes) == 1 else ()
        self._events.routed(worker, now, hashes, prompt.tail)
        if self._predicted is not None and hashes and self._events.told_of(worker):
            self._predicted.note(worker, hashes, now, held=held, model=model)


def _rank_headers(worker: str) -> tuple[tuple[str, str], ...]:
    if "@" not in worker:
        return ()
    rank = worker_rank(worker)
    return ((RANK_HEADER, str(rank)),) if rank else ()


def _no_worker(subset: Sequence[str] | None, none: NoWorker) -> Refused:
    text = (
        "no model server is in the pool"
        if subset is None
        else "no model server of the pool is in the given subset"
    )
    if none.weighed:
        # the reasons themselves are for operators
        names = sorted({reason.partition(":")[0] for reason in none.left_out})
        text = f"no model server may take this request: {', '.join(names)} left out all {none.weighed}"
    return refusal(Why.NO_ENDPOINTS, text)


def _all_full(workers: int) -> Refused:
    return refusal(Why.SATURATED, f"all {workers} model servers are at their limit")
