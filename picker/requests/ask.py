"""What a body asks for, as values: the request that was read, its token ids, or why there are none."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from stateplane.values import value

if TYPE_CHECKING:
    Ids = array[int]
else:
    Ids = array  # takes no parameter before Python 3.12
"""Token ids, ``array('I')``: unsigned and 32 bits wide, as the hashes of blocks want them."""

JsonObject = Mapping[str, Any]

BYTES_PER_TOKEN = 4
"""Characters of text for one token, where nothing better is known; the figure the field uses."""


class BadRequest(Exception):  # noqa: N818 - named after the answer that it becomes
    """The client's mistake. ``message`` says what is wrong and what is allowed; ``param`` names the field."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status


class Api(StrEnum):
    """The API that a path belongs to."""

    COMPLETIONS = "completions"
    CHAT = "chat"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"  # Anthropic's
    GENERATE = "generate"  # engines' own
    POOLING = "pooling"  # classes, scores, ranks, pooled states
    TOKENIZE = "tokenize"
    AUDIO = "audio"
    IMAGES = "images"
    OTHER = "other"


class Unread(StrEnum):
    """Why a request has no prompt that we can read. It is routed by load alone."""

    PATH = "path"  # an API without prompts, or one whose prompts are not read
    HIDDEN = "hidden"  # the gateway does not show the body, or there is none
    CUT = "cut"  # the gateway shows a part of the body
    ENCODED = "encoded"  # a content encoding that is not read
    EMBEDDINGS = "embeddings"  # the prompt is given as embeddings
    TRUNCATED = "truncated"  # the engine is asked to cut the prompt: which tokens stay is its own business
    STORED = "stored"  # the conversation so far, or the prompt, lies in the engine
    ITEMS = "items"  # items, blocks or tools of a kind that the engine alone knows how to render
    MEDIA = "media"  # media beside a text, at places that the engine alone knows
    PAIRS = "pairs"  # two texts, joined in a way that the engine alone knows
    SHAPE = "shape"  # an engine's own API, and the prompt is in no field that is known
    UNCOMPUTED = (
        "uncomputed"  # the engine renders or counts tokens and computes nothing: there is no load either
    )


@value
class Chat:
    """A conversation, checked for its shape and otherwise as the client sent it."""

    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject] | None = None
    documents: Sequence[JsonObject] | None = None
    arguments: JsonObject = field(default_factory=dict)
    """Variables for the template: ``chat_template_kwargs`` less what names the conversation itself."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    exact_until: int | None = None
    """
    Index of the first message whose place or content the engine alone can render: one with media in it, or a system
    message amid the turns. Tokens are known up to there. None: all of them are.
    """


Prompt = str | Ids | Chat
"""A text, token ids where the client sent those, or a conversation."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the client says about the standing of its request. Read for later use; nothing acts upon it yet."""

    objective: str = ""
    fairness_id: str = ""
    priority: int | None = None
    """As vLLM means it: lower is earlier."""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    ignored: tuple[str, ...] = ()
    """Names of headers whose value was too long or made no sense."""


@value
class Ask:
    """One request, read."""

    api: Api
    model: str = ""
    """The model as the client named it; empty where none was named."""
    base_model: str = ""
    """The model whose tokenizer and weights serve it: differs from ``model`` for a LoRA adapter."""
    lora: str = ""
    """Name of the LoRA adapter; empty: none."""
    salt: str = ""
    """``cache_salt``: requests share cached prefixes only under equal salts."""
    prompts: tuple[Prompt, ...] = ()
    """What is to be computed, in the order sent: several are computed apart. Empty where ``unread`` says why."""
    stream: bool = False
    n: int = 1
    """Answers to each prompt."""
    sequences: int = 1
    """Sequences that are decoded for each prompt: ``n``, or ``best_of`` where that is more."""
    max_tokens: int | None = None
    add_special_tokens: bool = True
    """Whether the tokenizer frames the text with its special tokens; a rendered template holds its own."""
    unread: Unread | None = None
    estimated_tokens: int = 0
    """Prompt tokens: exact for token ids, else a guess from the length of the text."""
    priority: int | None = None
    """The body's own ``priority``."""
    standing: Standing | None = None
    """None: nothing was said about it."""
    bulky: bool = False
    """Whether the body holds much beside the text of its prompts."""


@value
class TokenIds:
    """The token ids of every prompt of one request, in order."""

    prompts: tuple[Ids, ...]
    complete: bool = True
    """False: leading tokens of the first prompt only; each of them is right, there are more behind them."""
    behind: Ids = field(default_factory=lambda: array("I"))
    """
    What follows the leading tokens of a conversation with media, as the engine does not see it: ids of the texts, and
    for each medium words made from its identity. Equal for equal conversations, and good for nothing else.
    """


class Unreadable(Exception):  # noqa: N818 - it is no error
    """The engine alone knows the prompt; ``unread`` says why. Not the client's mistake."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(str(unread))
        self.unread = unread


class Why(StrEnum):
    """Why there are no token ids."""

    UNREAD = "unread"  # the request has no prompt that we read
    NO_TOKENIZER = "no_tokenizer"  # none is set for the model
    LOADING = "loading"  # it is still being loaded
    BROKEN = "broken"  # its files are missing or wrong
    NO_TEMPLATE = "no_template"  # a chat, and the model has no chat template
    TEMPLATE = "template"  # the template refused the conversation
    LATE = "late"  # the budget ran out
    BUSY = "busy"  # too many prompts wait for a thread
    TOO_LONG = "too_long"  # longer than what is tokenised
    FAILED = "failed"  # the tokenizer failed
    AWAY = "away"  # the engine that tokenises does not answer, or not as it should
    REFUSED = "refused"  # the engine that tokenises refused the prompt
    UNASKABLE = "unaskable"  # the prompt holds what an engine cannot be asked to tokenise alone
    CLOSED = "closed"  # the picker is shutting down


@value
class Untold:
    """No token ids: the request is routed by load alone."""

    reason: Why
