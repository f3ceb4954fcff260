"""
An ask's prompts into token ids: on the event loop where little is to be done, else in steps, for a thread.

A prompt that is short, or known but for a little, is tokenised on the loop: handing it to a thread and back would cost
more than that.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence

import orjson
import structlog

from picker.requests.ask import BYTES_PER_TOKEN, Ask, Chat, Ids, JsonObject, TokenIds, Untold, Why
from picker.requests.media import words
from picker.requests.template import Rendered, RenderError, TextTooLongError
from picker.requests.vocabulary import MAX_PIECE, Vocabulary

log = structlog.get_logger(__name__)

MAX_TEXT = 4 * MAX_PIECE
"""Longest text of one request that is tokenised, in characters, all prompts together."""
MAX_BEHIND = 65_536
"""Most ids that stand for what follows the known tokens of a conversation with media."""
AT_ONCE_TEXT = 262_144
"""Longest text, in characters, that is looked at on the loop: to render it and to find what is known of it takes well
under 1 ms."""
AT_ONCE_NEW = 1_024
"""Most characters of it that may have to be encoded there: about 0.3 ms."""
AT_ONCE_MESSAGES = 64
"""Most messages of a conversation that is rendered there."""
AT_ONCE_BESIDE = 32_768
"""Most bytes, as JSON, of tools, documents and variables beside the messages: to render them takes under 0.5 ms, with
templates that walk over every property up to 3 ms."""
FIELD_BYTES = 16
"""So many bytes each field in there counts for beside its own: templates spend their time on fields, not on letters."""
AT_ONCE_REPEATED = 4 * AT_ONCE_BESIDE
"""Most characters that a template may add there to the messages: some write the tools again with every message that
equals the last one."""

Work = Generator[int, None, TokenIds | Untold]
"""Tokenising, in steps: each gives the size of the next one."""


class Job:
    """One ask on its way through the threads."""

    __slots__ = ("ask", "first", "prompts", "vocabulary")

    def __init__(self, ask: Ask, vocabulary: Vocabulary, prompts: Sequence[str | Ids] | None = None) -> None:
        self.ask = ask
        self.vocabulary = vocabulary
        self.prompts = prompts
        """Its prompts, where they are rendered already."""
        self.first: Ids = array("I")
        """Leading ids of the first prompt, growing; the loop may read them at any moment."""


def is_small(ask: Ask) -> bool:
    """Whether an ask may be looked at on the loop."""
    if size_of(ask) > AT_ONCE_TEXT or len(ask.prompts) > AT_ONCE_MESSAGES:
        return False
    return all(_is_light(prompt, bulky=ask.bulky) for prompt in ask.prompts if isinstance(prompt, Chat))


def _is_light(chat: Chat, *, bulky: bool) -> bool:
    if len(chat.messages) > AT_ONCE_MESSAGES or chat.exact_until is not None:
        return False
    if bulky and not all(map(_is_plain, chat.messages)):
        return False  # a template may render calls, reasoning and parts beside the text that was counted
    if not (chat.tools or chat.documents or chat.arguments):
        return True
    if bulky:
        return False
    try:
        beside = orjson.dumps((chat.tools, chat.documents, chat.arguments))
    except TypeError:  # nested deeper than is written
        return False
    return len(beside) + FIELD_BYTES * beside.count(b":") <= AT_ONCE_BESIDE


def _is_plain(message: JsonObject) -> bool:
    """Whether it is a role and a text, and nothing beside."""
    return len(message) == 2 and type(message.get("content")) is str


def at_once(ask: Ask, vocabulary: Vocabulary) -> TokenIds | Untold | Job:
    """Tokenise here where little is to be encoded; where more is, what was rendered goes along."""
    try:
        rendered = _rendered(ask, vocabulary, min(MAX_TEXT, size_of(ask) + AT_ONCE_REPEATED))
        if isinstance(rendered, Untold):
            return rendered
        prompts, _ = rendered
        told: list[Ids] = []
        for prompt in prompts:
            if isinstance(prompt, array):
                told.append(prompt)
                continue
            ids = vocabulary.at_once(prompt, special=ask.add_special_tokens, most=AT_ONCE_NEW // len(prompts))
            if ids is None:
                return Job(ask, vocabulary, prompts)
            told.append(ids)
    except TextTooLongError:
        return Job(ask, vocabulary)
    except Exception as error:  # noqa: BLE001 - whatever a tokenizer does, the request is served
        return _failed(error)
    return TokenIds(tuple(told))


def steps(job: Job) -> Work:
    """Tokenise in steps; whatever a tokenizer does, the request is served."""
    try:
        return (yield from _tokenise(job))
    except Exception as error:  # noqa: BLE001 - as promised
        return _failed(error)


def _failed(error: Exception) -> Untold:
    if isinstance(error, RenderError):
        return Untold(Why.TEMPLATE)
    log.debug("tokenizer failed", error=type(error).__name__)
    return Untold(Why.FAILED)


def _rendered(
    ask: Ask, vocabulary: Vocabulary, limit: int
) -> tuple[Sequence[str | Ids], Rendered | None] | Untold:
    """The prompts as texts or ids, and what was rendered of the last conversation among them, in so many characters."""
    rendered: Rendered | None = None
    prompts: list[str | Ids] = []
    length = 0
    for prompt in ask.prompts:
        if isinstance(prompt, Chat):
            template = vocabulary.template_for(tools=bool(prompt.tools))
            if template is None:
                return Untold(Why.NO_TEMPLATE)
            rendered = template.render(prompt, limit=limit)
            prompt = rendered.text
        if isinstance(prompt, str):
            length += len(prompt)
        prompts.append(prompt)
    return Untold(Why.TOO_LONG) if length > MAX_TEXT else (prompts, rendered)


def _tokenise(job: Job) -> Work:
    rendered: Rendered | None = None
    if job.prompts is None:
        found = _rendered(job.ask, job.vocabulary, MAX_TEXT)
        if isinstance(found, Untold):
            return found
        job.prompts, rendered = found
    told: list[Ids] = []
    for prompt in job.prompts:
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


def size_of(ask: Ask) -> int:
    """A guess of the text's length, in characters."""
    return ask.estimated_tokens * BYTES_PER_TOKEN
