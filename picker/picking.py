"""One request's way, from what the gateway showed to the answer.

Reads the body, matches its prefix, prices the workers on the shared view, books, answers. Between reading the view and
recording the pick nothing waits. What happens to the request afterwards is `picker.underway`'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.core.blocks import sequence_hashes
from picker.core.choose import AllFull, Candidate, Choice, Demand, NoWorker, Reason, choose
from picker.core.cost import Weights, uncached_tokens
from picker.core.index import PrefixIndex
from picker.core.load import Load
from picker.core.match import NO_OVERLAP, Match, Overlap
from picker.core.worker import worker_address, worker_rank
from picker.requests.ask import Ask, BadRequest, TokenIds, Untold
from picker.requests.keys import request_key
from picker.requests.reading import path_of, read
from picker.requests.tokens import Tokens
from picker.serving.seam import End, HttpRequest, LogEntry, Picked, Refused, Responded
from picker.settings import Settings
from picker.underway import Run, Underway
from stateplane.booking import Amount, Booking
from stateplane.view import View

RANK_HEADER = "x-data-parallel-host-rank"
BYTES_PER_TOKEN = 4
"""Rough size of a token, for the load of a prompt that was not tokenised."""

SHOWN_REASONS = 16
"""So many workers' prices are kept per decision, the cheapest first."""


class Bookings(Protocol):
    """What a pick asks of the replica's hand in the plane."""

    view: View

    def new_id(self) -> str:
        """A fresh booking id."""
        ...

    def book(self, booking_id: str, *, key: str, worker: str, amount: Amount, now: float) -> Booking:
        """Record the booking at once and tell the plane."""
        ...


class Pool(Protocol):
    """The workers that may be picked."""

    def routable(self, now: float) -> Sequence[str]:
        """Workers that are in the pool and not asleep, in a steady order."""
        ...

    def unbooked(self, worker: str, now: float) -> Load:
        """What the worker reports beyond what was booked, fixed until its next report."""
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
    ) -> None:
        self._settings = settings
        self._pool, self._index, self._bookings, self._tokens = pool, index, bookings, tokens
        self._underway, self._journal, self._metrics = underway, journal, metrics
        self._clock, self._wall, self._rng = clock, wall, rng
        price = settings.price
        self._weights = Weights(
            overlap_credit=price.overlap_credit,
            prefill_scale=price.prefill_scale,
            request_weight=price.request_weight,
            host_tier=price.host_tier_weight,
            disk_tier=price.disk_tier_weight,
            temperature=price.temperature,
        )

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
        return self._place(request, ask, prompt, began)

    async def _prompt(self, ask: Ask) -> Prompt:
        size = self._settings.price.block_size
        told = await self._tokens.ids(ask, self._settings.requests.tokenize_budget_seconds)
        if isinstance(told, Untold):
            reason = told.reason if ask.unread is None else ask.unread
            return Prompt(ask.estimated_tokens, -(-ask.estimated_tokens // size), (), untold=str(reason))
        return _hashed(ask, told, size)

    def _place(self, request: HttpRequest, ask: Ask, prompt: Prompt, began: float) -> Picked | Refused:
        """Choose and book, without waiting."""
        now = self._clock()
        names = self._pool.routable(now)
        if request.subset is not None:
            subset = frozenset(request.subset)
            names = [name for name in names if _allowed(name, subset)]
        matches = [self._index.match(hashes) for hashes in prompt.hashes]
        demand = Demand(prompt.tokens, prompt.blocks, self._settings.price.block_size)
        candidates = [self._candidate(name, matches, now) for name in names]
        choice = choose(candidates, demand, self._weights, self._rng, self._settings.price.fallbacks)
        if isinstance(choice, NoWorker):
            return _no_worker(request.subset)
        if isinstance(choice, AllFull):
            return _all_full(len(names))
        return self._booked(request, ask, prompt, choice, began)

    def _candidate(self, name: str, matches: Sequence[Match], now: float) -> Candidate:
        booked = self._bookings.view.load(name)
        return Candidate(
            name,
            Load(booked.prefill_tokens, booked.blocks, booked.requests),
            self._pool.unbooked(name, now),
            _overlap(matches, name),
            self._settings.price.max_worker_requests,
        )

    def _booked(self, request: HttpRequest, ask: Ask, prompt: Prompt, choice: Choice, began: float) -> Picked:
        worker, settings, now = choice.worker, self._settings, self._clock()
        demand = Demand(prompt.tokens, prompt.blocks, settings.price.block_size)
        uncached = round(uncached_tokens(demand, choice.chosen.overlap, self._weights))
        key = request_key(
            settings.pool.pool, request.headers, settings.requests.request_key_headers, request.body
        )
        booking_id = self._bookings.new_id()
        earlier = tuple(self._bookings.view.by_key(key)) if key else ()
        alone = choice.chosen.booked.prefill_tokens == 0
        self._bookings.book(
            booking_id, key=key, worker=worker, amount=Amount(uncached, prompt.blocks), now=now
        )
        self._underway.begin(
            Run(
                booking_id,
                worker,
                prompt.tokens,
                uncached,
                prompt.blocks,
                now,
                prompt.last_block,
                alone=alone,
            )
        )
        seconds = self._clock() - began
        self._metrics.picked("hit" if choice.chosen.overlap.total else "miss", seconds)
        if prompt.untold:
            self._metrics.untold(prompt.untold)
        request_id = request.headers.get("x-request-id", "")
        decision = Decision(
            booking_id, request_id, settings.pool.replica_name, self._wall(), seconds, ask.model, str(ask.api),
            prompt.tokens, prompt.blocks, prompt.untold, choice, earlier,
        )  # fmt: skip
        self._journal.note(booking_id, request_id, decision)
        addresses = dict.fromkeys(worker_address(name) for name in (worker, *choice.fallbacks))
        return Picked(",".join(addresses), booking_id, _rank_headers(worker))


@dataclass(frozen=True, slots=True)
class Decision:
    """One pick, for `/why`; put into words only when somebody asks. Holds nothing of the body."""

    booking_id: str
    request_id: str
    replica: str
    at: float
    seconds: float
    model: str
    api: str
    tokens: int
    blocks: int
    untold: str
    choice: Choice
    earlier: tuple[Booking, ...]

    @property
    def weight(self) -> int:
        """How many workers were weighed."""
        return self.choice.weighed

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        reasons = self.choice.reasons
        prompt = {"tokens": self.tokens, "blocks": self.blocks, "tokens_known": not self.untold}
        return {
            "booking": self.booking_id,
            "request_id": self.request_id,
            "at": self.at,
            "replica": self.replica,
            "model": self.model,
            "api": self.api,
            "worker": self.choice.worker,
            "fallbacks": list(self.choice.fallbacks),
            "prompt": prompt | ({"tokens_unknown_because": self.untold} if self.untold else {}),
            "decision_ms": round(self.seconds * 1000, 3),
            "earlier_attempts": [
                {"booking": old.id, "worker": old.worker, "state": str(old.state), "owner": str(old.owner)}
                for old in self.earlier
            ],
            "candidates": [_reason(reason) for reason in reasons[:SHOWN_REASONS]],
            "candidates_left_off": max(len(reasons) - SHOWN_REASONS, 0),
        }


def _reason(reason: Reason) -> Mapping[str, Any]:
    return {
        "worker": reason.worker,
        "price": reason.price,
        "left_out": reason.left_out,
        "parts": {"prefill": reason.prefill, "blocks": reason.decode, "requests": reason.requests},
        "cached_tokens": reason.cached_tokens,
        "overlap_blocks": reason.overlap._asdict(),
        "booked": reason.booked._asdict(),
        "unbooked": reason.unbooked._asdict(),
    }


def _hashed(ask: Ask, told: TokenIds, size: int) -> Prompt:
    hashes = tuple(sequence_hashes(ids, size, lora=ask.lora, salt=ask.salt) for ids in told.prompts)
    tokens = sum(len(ids) for ids in told.prompts)
    if not told.complete:
        tokens = max(tokens, ask.estimated_tokens)
    blocks = max(sum(-(-len(ids) // size) for ids in told.prompts), -(-tokens // size))
    return Prompt(tokens, blocks, hashes)


def _overlap(matches: Sequence[Match], name: str) -> Overlap:
    """What the worker holds of all prompts of the request together."""
    if len(matches) == 1:
        return matches[0].overlap(name)
    if not matches:
        return NO_OVERLAP
    parts = [match.overlap(name) for match in matches]
    return Overlap(sum(p.device for p in parts), sum(p.host for p in parts), sum(p.disk for p in parts))


def _allowed(name: str, subset: frozenset[str]) -> bool:
    address = worker_address(name)
    return address in subset or address.rpartition(":")[0].strip("[]") in subset


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
