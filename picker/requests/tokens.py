"""
Token ids within a budget: tokenizers loaded in the background, prompts tokenised beside the event loop.

Nothing here is ever an error to the client: what cannot be told in time is `Untold`, with the reason counted.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from picker.requests.ask import Ask, TokenIds, Untold, Why
from picker.requests.counts import Counts
from picker.requests.engine import Engine
from picker.requests.sources import ANY, parse_tokenizers
from picker.requests.tokenising import Job, at_once, is_small, size_of, steps
from picker.requests.turns import Turn, Turns
from picker.requests.vocabulary import Vocabulary, VocabularyError, load
from picker.settings import RequestSettings

__all__ = ["Counts", "TokenIds", "Tokens", "Untold", "Why", "parse_tokenizers"]

log = structlog.get_logger(__name__)

RETRY_SECONDS = 30.0
"""Between two tries to load a tokenizer whose files are missing or broken."""

_UNREAD, _NO_TOKENIZER = Untold(Why.UNREAD), Untold(Why.NO_TOKENIZER)


class Begun:
    """An ask whose token ids have to be waited for, and what was done for it already."""

    __slots__ = ("engine", "job")

    def __init__(self, *, engine: Engine | None = None, job: Job | None = None) -> None:
        self.engine = engine
        self.job = job


@dataclass(slots=True)
class _Model:
    """A directory and what came of loading it."""

    directory: Path
    vocabulary: Vocabulary | None = None
    state: str = "loading"
    detail: str = ""


class Tokens:
    """
    Tells the token ids of asks.

    Raises:
        ValueError: `PICKER_TOKENIZERS` is not a list of pairs.

    """

    def __init__(self, settings: RequestSettings) -> None:
        self._budget = settings.tokenize_budget_seconds
        self._counts = Counts()
        self._by_model: dict[str, _Model | Engine] = {}
        self._models: dict[Path, _Model] = {}
        for name, place in parse_tokenizers(settings.tokenizers).items():
            if isinstance(place, Path):
                self._by_model[name] = self._models.setdefault(place, _Model(place))
            else:
                self._by_model[name] = Engine(place, "" if name == ANY else name, self._counts)
        self._engines = [place for place in self._by_model.values() if isinstance(place, Engine)]
        self._turns = Turns(settings.tokenize_threads, settings.tokenize_queue)
        self._tried = asyncio.Event()
        self._closed = False

    @property
    def counts(self) -> Counts:
        """The counters, those of the caches summed up to now."""
        caches = [model.vocabulary.cache for model in self._models.values() if model.vocabulary is not None]
        self._counts.pieces_hit = sum(cache.hits for cache in caches)
        self._counts.pieces_missed = sum(cache.misses for cache in caches)
        self._counts.pieces_evicted = sum(cache.evicted for cache in caches)
        return self._counts

    async def run(self) -> None:
        """Load the tokenizers, and try again now and then where that failed; look after engines. Never returns."""
        async with asyncio.TaskGroup() as group:
            for engine in self._engines:
                group.create_task(engine.run())
            while True:
                for model in self._models.values():
                    if model.vocabulary is None:
                        await self._load(model)
                await asyncio.gather(*(engine.tried() for engine in self._engines))
                self._tried.set()
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def tried(self) -> bool:
        """Whether every tokenizer and engine was tried once, whatever came of it."""
        return self._tried.is_set()

    async def loaded(self) -> None:
        """Wait until every tokenizer was tried once."""
        await self._tried.wait()

    async def _load(self, model: _Model) -> None:
        try:
            model.vocabulary = await asyncio.to_thread(load, model.directory)
        except VocabularyError as error:
            self._counts.load_failures += 1
            if model.detail != str(error):
                log.warning("tokenizer not loaded, its models are routed by load alone", reason=str(error))
            model.state, model.detail = "broken", str(error)
            return
        model.state, model.detail = "ready", ""
        log.info(
            "tokenizer loaded",
            directory=str(model.directory),
            tokens=model.vocabulary.size,
            template=model.vocabulary.template is not None,
            pieces_cached=model.vocabulary.cuts,
            slices=[place.name for place in model.vocabulary.slices],
        )

    async def ids(
        self, ask: Ask, budget: float | None = None, begun: Begun | None = None
    ) -> TokenIds | Untold:
        """
        The token ids of every prompt, or why there are none.

        Past ``budget`` (seconds; the setting's where None) it answers with the leading ids known by then, if any.
        ``begun`` is what `known` said of this ask.
        """
        answer = self._told(ask) if begun is None else begun
        if isinstance(answer, Begun):
            answer = await self._found(ask, answer, self._budget if budget is None else budget)
        return self._counted(answer)

    def known(self, ask: Ask) -> TokenIds | Untold | Begun:
        """As `ids`, where nothing has to be waited for; else what `ids` takes up, and nothing is counted."""
        answer = self._told(ask)
        return answer if isinstance(answer, Begun) else self._counted(answer)

    def _counted(self, answer: TokenIds | Untold) -> TokenIds | Untold:
        counts = self._counts
        if isinstance(answer, Untold):
            reason = answer.reason.value
            setattr(counts, reason, getattr(counts, reason) + 1)
        else:
            counts.told += answer.complete
            counts.partly += not answer.complete
            counts.tokens += sum(map(len, answer.prompts))
        return answer

    def _told(self, ask: Ask) -> TokenIds | Untold | Begun:
        prompts = ask.prompts
        if ask.unread is not None or not prompts:
            return _UNREAD
        if isinstance(prompts[0], array):
            ready = tuple(prompt for prompt in prompts if isinstance(prompt, array))
            if len(ready) == len(prompts):
                return TokenIds(ready)
        if self._closed:
            return Untold(Why.CLOSED)
        found = self._place(ask)
        if found is None:
            return _NO_TOKENIZER
        if isinstance(found, _Model) and found.vocabulary is None:
            return Untold(Why.LOADING if found.state == "loading" else Why.BROKEN)
        if isinstance(found, Engine):
            return Begun(engine=found)
        assert found.vocabulary is not None, "told above"
        answer = at_once(ask, found.vocabulary) if is_small(ask) else Job(ask, found.vocabulary)
        return Begun(job=answer) if isinstance(answer, Job) else answer

    async def _found(self, ask: Ask, begun: Begun, budget: float) -> TokenIds | Untold:
        if begun.engine is not None:
            return await begun.engine.ids(ask, budget)
        assert begun.job is not None, "there is no third kind"
        return await self._in_thread(begun.job, budget)

    def _place(self, ask: Ask) -> _Model | Engine | None:
        places = self._by_model
        for name in (ask.model, ask.base_model, ANY) if places else ():
            if name in places:
                return places[name]
        return None

    async def _in_thread(self, job: Job, budget: float) -> TokenIds | Untold:
        turn = self._turns.begin(steps(job), size_of(job.ask))
        if turn is None:
            return Untold(Why.BUSY)
        future = asyncio.wrap_future(turn.future)
        future.add_done_callback(lambda _: self._finished(turn))
        try:
            done, _ = await asyncio.wait((future,), timeout=budget)
            if done:
                return Untold(Why.CLOSED) if future.cancelled() else future.result()
            leading = job.first[:]
            return TokenIds((leading,), complete=False) if leading else Untold(Why.LATE)
        finally:
            if not turn.future.done():
                self._turns.abandon(turn)

    def _finished(self, turn: Turn[TokenIds | Untold]) -> None:
        self._counts.thread_seconds += turn.seconds

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``: each named model, what came of loading it, and the queue."""
        return {
            "models": [
                {"model": name, **(_status(place) if isinstance(place, _Model) else place.status())}
                for name, place in self._by_model.items()
            ],
            "in_flight": self._turns.held,
            "limit": self._turns.limit,
        }

    def close(self) -> None:
        """Take no more asks; those in the queue are answered at once."""
        self._closed = True
        self._turns.close()


def _status(model: _Model) -> dict[str, Any]:
    status: dict[str, Any] = {
        "directory": str(model.directory),
        "state": model.state,
        "detail": model.detail,
    }
    if model.vocabulary is not None:
        cache, recall = model.vocabulary.cache, model.vocabulary.recall
        status |= {
            "tokens": model.vocabulary.size,
            "chat_template": model.vocabulary.template is not None,
            "pieces_cached": model.vocabulary.cuts,
            "slices": [place.name for place in model.vocabulary.slices],
            "cache": {"pieces": len(cache), "bytes": cache.bytes, "hits": cache.hits, "misses": cache.misses},
            "recall": {"stretches": len(recall), "bytes": recall.size},
        }
    return status
