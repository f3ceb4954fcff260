"""
Token ids within a budget: tokenizers loaded in the background, prompts tokenised beside the event loop.

A prompt that is short, or known but for a little, is tokenised on the loop itself: handing it to a thread and back
would cost more than that.

Nothing here is ever an error to the client: what cannot be told in time is `Untold`, with the reason counted.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from picker.requests.ask import BYTES_PER_TOKEN, Ask, Chat, Ids, TokenIds, Untold, Why
from picker.requests.counts import Counts
from picker.requests.engine import Engine
from picker.requests.media import words
from picker.requests.sources import ANY, parse_tokenizers
from picker.requests.template import Rendered, RenderError
from picker.requests.turns import Turn, Turns
from picker.requests.vocabulary import MAX_PIECE, Vocabulary, VocabularyError, load
from picker.settings import RequestSettings

__all__ = ["Counts", "TokenIds", "Tokens", "Untold", "Why", "parse_tokenizers"]

log = structlog.get_logger(__name__)

MAX_TEXT = 4 * MAX_PIECE
"""Longest text of one request that is tokenised, in characters, all prompts together."""
MAX_BEHIND = 65_536
"""Most ids that stand for what follows the known tokens of a conversation with media."""
AT_ONCE_TEXT = 65_536
"""Longest text, in characters, that is looked at on the loop: to render it and to find its pieces takes under 1 ms."""
AT_ONCE_NEW = 1_024
"""Most characters of it that may have to be encoded there: about 0.3 ms."""
AT_ONCE_MESSAGES = 64
"""Most messages of a conversation that is rendered there."""
RETRY_SECONDS = 30.0
"""Between two tries to load a tokenizer whose files are missing or broken."""

_UNREAD, _NO_TOKENIZER = Untold(Why.UNREAD), Untold(Why.NO_TOKENIZER)

Work = Generator[int, None, TokenIds | Untold]
"""Tokenising, in steps: each gives the size of the next one."""


class _Job:
    """One ask on its way through the threads."""

    __slots__ = ("ask", "first", "vocabulary")

    def __init__(self, ask: Ask, vocabulary: Vocabulary) -> None:
        self.ask = ask
        self.vocabulary = vocabulary
        self.first: Ids = array("I")
        """Leading ids of the first prompt, growing; the loop may read them at any moment."""


class Begun:
    """An ask whose token ids have to be waited for, and what was done for it already."""

    __slots__ = ("ahead", "engine", "job", "spent", "work")

    def __init__(self, *, engine: Engine | None = None, job: _Job | None = None) -> None:
        self.engine = engine
        self.job = job
        self.work: Work | None = None if job is None else _guarded(job)
        self.spent = self.ahead = 0
        """Characters encoded, and those of the next step."""


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
        begun = Begun(job=_Job(ask, found.vocabulary))
        return (_at_once(begun) or begun) if _small(ask) else begun

    async def _found(self, ask: Ask, begun: Begun, budget: float) -> TokenIds | Untold:
        if begun.engine is not None:
            return await begun.engine.ids(ask, budget)
        assert begun.job is not None, "there is no third kind"
        return await self._in_thread(begun, begun.job, budget)

    def _place(self, ask: Ask) -> _Model | Engine | None:
        places = self._by_model
        for name in (ask.model, ask.base_model, ANY) if places else ():
            if name in places:
                return places[name]
        return None

    async def _in_thread(self, begun: Begun, job: _Job, budget: float) -> TokenIds | Untold:
        assert begun.work is not None, "a job has its work"
        turn = self._turns.begin(begun.work, _size(job.ask), spent=begun.spent, ahead=begun.ahead)
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


def _small(ask: Ask) -> bool:
    """Whether an ask may be looked at on the loop."""
    if _size(ask) > AT_ONCE_TEXT or len(ask.prompts) > AT_ONCE_MESSAGES:
        return False
    for prompt in ask.prompts:
        if isinstance(prompt, Chat) and (
            len(prompt.messages) > AT_ONCE_MESSAGES
            or prompt.tools
            or prompt.documents
            or prompt.arguments
            or prompt.exact_until is not None
        ):
            return False
    return True


def _at_once(begun: Begun) -> TokenIds | Untold | None:
    """Do the work as long as little is to be encoded; None where more is."""
    work = begun.work
    assert work is not None, "a job has its work"
    try:
        while True:
            begun.ahead = next(work)
            if begun.spent + begun.ahead > AT_ONCE_NEW:
                return None
            begun.spent += begun.ahead
    except StopIteration as end:
        told: TokenIds | Untold = end.value
        return told


def _guarded(job: _Job) -> Work:
    """Whatever a tokenizer does, the request is served."""
    try:
        return (yield from _tokenise(job))
    except RenderError:
        return Untold(Why.TEMPLATE)
    except Exception as error:  # noqa: BLE001 - see above
        log.debug("tokenizer failed", error=type(error).__name__)
        return Untold(Why.FAILED)


def _tokenise(job: _Job) -> Work:
    rendered: Rendered | None = None
    prompts: list[str | Ids] = []
    for prompt in job.ask.prompts:
        if isinstance(prompt, Chat):
            template = job.vocabulary.template_for(tools=bool(prompt.tools))
            if template is None:
                return Untold(Why.NO_TEMPLATE)
            rendered = template.render(prompt, limit=MAX_TEXT)
            prompt = rendered.text
        prompts.append(prompt)
    if sum(len(prompt) for prompt in prompts if isinstance(prompt, str)) > MAX_TEXT:
        return Untold(Why.TOO_LONG)
    told: list[Ids] = []
    for prompt in prompts:
        ids = array("I") if told else job.first
        if isinstance(prompt, array):
            ids.extend(prompt)
        elif not (yield from job.vocabulary.encode(prompt, special=job.ask.add_special_tokens, into=ids)):
            # A piece too long stopped it.
            return TokenIds((job.first,), complete=False) if job.first else Untold(Why.TOO_LONG)
        told.append(ids)
    if rendered is None or rendered.whole:
        return TokenIds(tuple(told))
    return TokenIds(tuple(told), complete=False, behind=(yield from _behind(job.vocabulary, rendered)))


def _behind(vocabulary: Vocabulary, rendered: Rendered) -> Generator[int, None, Ids]:
    """Ids for what follows the known text, in the order of what is rendered, up to `MAX_BEHIND`."""
    behind: Ids = array("I")
    for part in rendered.behind:
        if isinstance(part, bytes):
            behind.extend(words(part))
        elif not (yield from vocabulary.encode(part, special=False, into=behind)):
            break
        if len(behind) >= MAX_BEHIND:
            break
    return behind[:MAX_BEHIND]


def _size(ask: Ask) -> int:
    """A guess of the text's length, in characters."""
    return ask.estimated_tokens * BYTES_PER_TOKEN


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
            "slices": [place.name for place in model.vocabulary.slices],
            "cache": {"pieces": len(cache), "bytes": cache.bytes, "hits": cache.hits, "misses": cache.misses},
        }
    return status
