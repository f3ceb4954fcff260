"""Which API a path belongs to, and how its bodies are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from picker.requests.anthropic import read_messages
from picker.requests.ask import Api, Ask
from picker.requests.generate import read_generate, read_pairs, read_token_generate
from picker.requests.openai import (
    Adapters,
    read_chat,
    read_completion,
    read_embeddings,
    read_pooling,
)
from picker.requests.responses import read_response

Reader = Callable[[Mapping[str, Any], Adapters], Ask]


class Shown(Enum):
    """What is read of the body of an API that has no reader."""

    MODEL = auto()  # the model, where it is easily told
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Family:
    """Paths that are read in one way."""

    api: Api
    reader: Reader | None = None
    computes: bool = True
    """False: the engine renders or counts tokens only. Such a body is checked, and weighs nothing."""
    shown: Shown = Shown.MODEL


_COUNTED = Family(Api.TOKENIZE, computes=False)
_AUDIO, _IMAGES = Family(Api.AUDIO), Family(Api.IMAGES)
_STORED = Family(Api.OTHER)
_BARE = Family(Api.OTHER, shown=Shown.NOTHING)
_POOLING, _PAIRS = Family(Api.POOLING, read_pooling), Family(Api.POOLING, read_pairs)

FAMILIES: Mapping[str, Family] = {
    "/completions": Family(Api.COMPLETIONS, read_completion),
    "/completions/render": Family(Api.COMPLETIONS, read_completion, computes=False),
    "/chat/completions": Family(Api.CHAT, read_chat),
    "/chat/completions/render": Family(Api.CHAT, read_chat, computes=False),
    "/responses": Family(Api.RESPONSES, read_response),
    "/embeddings": Family(Api.EMBEDDINGS, read_embeddings),
    "/messages": Family(Api.MESSAGES, read_messages),
    "/messages/count_tokens": Family(Api.MESSAGES, read_messages, computes=False),
    "/generate": Family(Api.GENERATE, read_generate),
    "/inference/v1/generate": Family(Api.GENERATE, read_token_generate),
    "/pooling": _POOLING,
    "/classify": _POOLING,
    "/score": _PAIRS,
    "/rerank": _PAIRS,
    "/tokenize": _COUNTED,
    "/detokenize": _COUNTED,
    "/conversations": _STORED,
    "/audio/transcriptions": _AUDIO,
    "/audio/translations": _AUDIO,
    "/audio/speech": _AUDIO,
    "/images/generations": _IMAGES,
    "/images/edits": _IMAGES,
    "/images/variations": _IMAGES,
    "/models": _BARE,
    "/health": _BARE,
    "/ping": _BARE,
    "/version": _BARE,
    "/load": _BARE,
}
"""By path suffix; of several the longest counts."""

_BELOW = ("/v1/responses/", "/v1/conversations/", "/v1/models/")
"""What lies below these names one stored thing: the engine alone knows what it is."""

_SUFFIXES = sorted(FAMILIES, key=len, reverse=True)

REMEMBERED_LENGTH = 128
"""Longest path that is remembered."""

DEFAULT_PATH = "/v1/completions"


def path_of(headers: Mapping[str, str]) -> str:
    """The path of a request: ``:path``, else what proxies keep of it, else that of completions."""
    for name in (":path", "x-original-path", "x-forwarded-path"):
        if headers.get(name):
            return headers[name]
    return DEFAULT_PATH


def suffix_of(path: str) -> str | None:
    """The longest known path suffix, query and trailing slash removed; None for a path that nobody knows."""
    plain = _plain(path)
    return next((suffix for suffix in _SUFFIXES if plain.endswith(suffix)), None)


def family_of(path: str) -> Family | None:
    """How a path's bodies are read; None for a path that nobody knows."""
    return _remembered(path) if len(path) <= REMEMBERED_LENGTH else _found(path)


def _found(path: str) -> Family | None:
    suffix = suffix_of(path)
    if suffix is None:
        return _BARE if any(below in _plain(path) for below in _BELOW) else None
    return FAMILIES[suffix]


_remembered = lru_cache(maxsize=256)(_found)
"""Nearly all requests go to a few paths; whoever makes up others pays for a search and no more."""


def _plain(path: str) -> str:
    return path.partition("?")[0].partition("#")[0].rstrip("/")
