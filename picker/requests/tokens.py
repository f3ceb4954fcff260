"""
Token ids within a budget: tokenizers loaded in the background, prompts tokenised beside the event loop.

Nothing here is ever an error to the client: what cannot be told in time is `Untold`, with the reason counted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from picker.requests.ask import Ask, Chat, Ids, TokenIds, Untold, Why
from picker.requests.template import RenderError
from picker.requests.vocabulary import MAX_PIECE, Vocabulary, VocabularyError, load
from picker.settings import RequestSettings

__all__ = ["Counts", "TokenIds", "Tokens", "Untold", "Why", "parse_tokenizers"]

log = structlog.get_logger(__name__)

MAX_TEXT = 4 * MAX_PIECE
"""Longest text of one request that is tokenised, in characters, all prompts together."""
RETRY_SECONDS = 30.0
"""Between two tries to load a tokenizer whose files are missing or broken."""
ANY = "*"


@dataclass(slots=True)
class Counts:
    """What became of the asks, since the start."""

    told: int = 0
    partly: int = 0
    """The budget ran out, or a part of the prompt is no text: leading tokens only."""
    unread: int = 0
    no_tokenizer: int = 0
    loading: int = 0
    broken: int = 0
    no_template: int = 0
    template: int = 0
    late: int = 0
    busy: int = 0
    too_long: int = 0
    failed: int = 0
    closed: int = 0
    load_failures: int = 0
    pieces_hit: int = 0
    pieces_missed: int = 0
    pieces_evicted: int = 0
    tokens: int = 0
    """Token ids told."""
    thread_seconds: float = 0.0
    """Time that tokenising threads spent, finished in time or not."""


class _Job:
    """One ask on its way through a thread. The loop may abandon it; the thread looks at that between its steps."""

    __slots__ = ("ask", "first", "seconds", "vocabulary")

    def __init__(self, ask: Ask, vocabulary: Vocabulary) -> None:
        self.ask: Ask | None = ask
        self.vocabulary = vocabulary
        self.first: Ids = array("I")
        """Leading ids of the first prompt, growing."""
        self.seconds = 0.0

    def abandon(self) -> None:
        """Nobody waits any more; lets go of the body at once."""
        self.ask = None


@dataclass(slots=True)
class _Model:
    """A directory and what came of loading it."""

    directory: Path
    vocabulary: Vocabulary | None = None
    state: str = "loading"
    detail: str = ""


def parse_tokenizers(text: str) -> dict[str, Path]:
    """
    ``MODEL=DIR`` pairs separated by commas, as in `PICKER_TOKENIZERS`.

    Raises:
        ValueError: says which pair is wrong and what is allowed.

    """
    pairs: dict[str, Path] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        model, sign, directory = (word.strip() for word in pair.partition("="))
        if not sign or not model or not directory:
            raise ValueError(
                f"{pair!r} is no MODEL=DIR pair; pairs are separated by commas, '*' is any other model"
            )
        if model in pairs:
            raise ValueError(f"model {model!r} is named twice; one directory serves a model")
        pairs[model] = Path(directory)
    return pairs


class Tokens:
    """
    Tells the token ids of asks.

    Raises:
        ValueError: `PICKER_TOKENIZERS` is not a list of pairs.

    """

    def __init__(self, settings: RequestSettings) -> None:
        self._budget = settings.tokenize_budget_seconds
        self._by_model = parse_tokenizers(settings.tokenizers)
        self._models = {directory: _Model(directory) for directory in self._by_model.values()}
        self._threads = ThreadPoolExecutor(settings.tokenize_threads, thread_name_prefix="tokenize")
        self._room = threading.BoundedSemaphore(settings.tokenize_threads + settings.tokenize_queue)
        self._thread_count = settings.tokenize_threads
        self._limit = settings.tokenize_threads + settings.tokenize_queue
        self._held = 0
        self._tried = asyncio.Event()
        self._closed = False
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        """The counters, those of the caches summed up to now."""
        caches = [model.vocabulary.cache for model in self._models.values() if model.vocabulary is not None]
        self._counts.pieces_hit = sum(cache.hits for cache in caches)
        self._counts.pieces_missed = sum(cache.misses for cache in caches)
        self._counts.pieces_evicted = sum(cache.evicted for cache in caches)
        return self._counts

    async def run(self) -> None:
        """Load the tokenizers, and try again now and then where that failed. Never returns."""
        while True:
            for model in self._models.values():
                if model.vocabulary is None:
                    await self._load(model)
            self._tried.set()
            await asyncio.sleep(RETRY_SECONDS)

    @property
    def tried(self) -> bool:
        """Whether every tokenizer was tried once, whatever came of it."""
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
        )

    async def ids(self, ask: Ask, budget: float | None = None) -> TokenIds | Untold:
        """
        The token ids of every prompt, or why there are none.

        Past ``budget`` (seconds; the setting's where None) it answers with the leading ids known by then, if any.
        """
        answer = await self._ids(ask, self._budget if budget is None else budget)
        if isinstance(answer, Untold):
            setattr(self._counts, answer.reason.value, getattr(self._counts, answer.reason.value) + 1)
        else:
            self._counts.told += answer.complete
            self._counts.partly += not answer.complete
            self._counts.tokens += sum(len(prompt) for prompt in answer.prompts)
        return answer

    async def _ids(self, ask: Ask, budget: float) -> TokenIds | Untold:
        if ask.unread is not None or not ask.prompts:
            return Untold(Why.UNREAD)
        ready = tuple(prompt for prompt in ask.prompts if isinstance(prompt, array))
        if len(ready) == len(ask.prompts):
            return TokenIds(ready)
        found = self._find(ask)
        if isinstance(found, Why):
            return Untold(found)
        return await self._in_thread(_Job(ask, found), budget)

    def _find(self, ask: Ask) -> Vocabulary | Why:
        if self._closed:
            return Why.CLOSED
        directory = next(
            (self._by_model[name] for name in (ask.model, ask.base_model, ANY) if name in self._by_model),
            None,
        )
        if directory is None:
            return Why.NO_TOKENIZER
        model = self._models[directory]
        if model.vocabulary is None:
            return Why.LOADING if model.state == "loading" else Why.BROKEN
        return model.vocabulary

    async def _in_thread(self, job: _Job, budget: float) -> TokenIds | Untold:
        if not self._room.acquire(blocking=False):
            return Untold(Why.BUSY)
        future = asyncio.wrap_future(self._threads.submit(self._work, job))
        self._held += 1
        future.add_done_callback(lambda _: self._finished(job))
        try:
            done, _ = await asyncio.wait((future,), timeout=budget)
            if done:
                return Untold(Why.CLOSED) if future.cancelled() else future.result()
            leading = job.first[:]
            return TokenIds((leading,), complete=False) if leading else Untold(Why.LATE)
        finally:
            job.abandon()

    def _finished(self, job: _Job) -> None:
        self._held -= 1
        self._counts.thread_seconds += job.seconds

    def _work(self, job: _Job) -> TokenIds | Untold:
        """In a thread. The place in the queue is given back here: only then does the queue hold no more of it."""
        begun = time.monotonic()
        try:
            ask = job.ask
            return Untold(Why.LATE) if ask is None else self._tokenise(job, ask)
        except RenderError:
            return Untold(Why.TEMPLATE)
        except Exception as error:  # noqa: BLE001 - whatever a tokenizer does, the request is served
            log.debug("tokenizer failed", error=type(error).__name__)
            return Untold(Why.FAILED)
        finally:
            self._room.release()
            job.seconds = time.monotonic() - begun

    def _tokenise(self, job: _Job, ask: Ask) -> TokenIds | Untold:
        whole = True
        prompts: list[str | Ids] = []
        for prompt in ask.prompts:
            if isinstance(prompt, Chat):
                template = job.vocabulary.template_for(tools=bool(prompt.tools))
                if template is None:
                    return Untold(Why.NO_TEMPLATE)
                prompt, whole = template.render(prompt, limit=MAX_TEXT)
            prompts.append(prompt)
        if sum(len(prompt) for prompt in prompts if isinstance(prompt, str)) > MAX_TEXT:
            return Untold(Why.TOO_LONG)
        told: list[Ids] = []
        for prompt in prompts:
            ids = array("I") if told else job.first
            if not self._encode(prompt, ids, job, special=ask.add_special_tokens):
                # What stopped it is a piece too long, or nobody waits: then the answer is not read.
                return TokenIds((job.first,), complete=False) if job.first else Untold(Why.TOO_LONG)
            told.append(ids)
        return TokenIds(tuple(told), complete=whole)

    def _encode(self, prompt: str | Ids, into: Ids, job: _Job, *, special: bool) -> bool:
        if isinstance(prompt, array):
            into.extend(prompt)
            return True
        return job.vocabulary.encode(prompt, special=special, into=into, go_on=lambda: self._go_on(job))

    def _go_on(self, job: _Job) -> bool:
        """A job that nobody waits for goes on, to warm the cache, while no other one waits for its thread."""
        return job.ask is not None or self._held <= self._thread_count

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``: each named model, what came of loading it, and the queue."""
        return {
            "models": [
                {"model": name, **_status(self._models[directory])}
                for name, directory in self._by_model.items()
            ],
            "in_flight": self._held,
            "limit": self._limit,
        }

    def close(self) -> None:
        """Take no more asks; those in the queue are answered at once."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _status(model: _Model) -> dict[str, Any]:
    status: dict[str, Any] = {
        "directory": str(model.directory),
        "state": model.state,
        "detail": model.detail,
    }
    if model.vocabulary is not None:
        cache = model.vocabulary.cache
        status |= {
            "tokens": model.vocabulary.size,
            "chat_template": model.vocabulary.template is not None,
            "pieces_cached": model.vocabulary.cuts,
            "cache": {"pieces": len(cache), "bytes": cache.bytes, "hits": cache.hits, "misses": cache.misses},
        }
    return status
