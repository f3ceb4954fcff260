"""
Pieces of text whose token ids stand for themselves: where text may be cut, and a bounded cache of what was cut.

A special token cuts the text before anything else looks at it, so the ids of a text are the ids of its pieces, each
beginning with such a token, one after the other. Whether that holds for a given tokenizer is tried at load.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from picker.requests.ask import Ids

ENTRY_BYTES = 200
"""What an entry costs beside its text and its ids: two objects and its place in the order."""


class Added(Protocol):
    """What is read of a tokenizer's added token."""

    @property
    def content(self) -> str:
        """Its text."""
        ...

    @property
    def special(self) -> bool:
        """Whether it steers the model, rather than being a word."""
        ...

    @property
    def normalized(self) -> bool:
        """Whether it is looked for after normalising."""
        ...

    @property
    def lstrip(self) -> bool:
        """Whether it takes the blanks on its left."""
        ...

    @property
    def single_word(self) -> bool:
        """Whether it is found as a whole word only."""
        ...


def cutting_tokens(added: Iterable[Added]) -> tuple[str, ...]:
    """
    The tokens before which text may be cut, longest first.

    Left out is a token that takes blanks on its left, is found only as a whole word or after normalising, and one that
    may overlap with the inside or the end of another: the tokenizer would find the other one there.
    """
    tokens = [token for token in added if token.content]
    every = [token.content for token in tokens]
    fit = {
        token.content
        for token in tokens
        if token.special and not (token.normalized or token.lstrip or token.single_word)
        if not any(_hides(other, token.content) for other in every)
    }
    return tuple(sorted(fit, key=len, reverse=True))


def _hides(other: str, token: str) -> bool:
    """Whether ``token`` may begin inside ``other``, past its first character."""
    return any(token.startswith(other[at : at + len(token)]) for at in range(1, len(other)))


class Cutter:
    """Cuts text before each of the given tokens."""

    __slots__ = ("_pattern", "tokens")

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self._pattern = re.compile("|".join(map(re.escape, tokens))) if tokens else None

    def cut(self, text: str) -> list[str]:
        """The pieces, which joined are the text; none is empty."""
        if self._pattern is None:
            return [text] if text else []
        cuts = [0, *(found.start() for found in self._pattern.finditer(text)), len(text)]
        return [text[begin:end] for begin, end in pairwise(cuts) if begin < end]


class PieceCache:
    """Piece -> token ids, least recently used out first, bounded in bytes. Safe to use from several threads."""

    __slots__ = ("_bytes", "_entries", "_limit", "_lock", "evicted", "hits", "misses")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[str, Ids] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = self.evicted = 0

    def get(self, piece: str) -> Ids | None:
        """The ids of a piece, not to be changed; None where it is not held."""
        with self._lock:
            ids = self._entries.get(piece)
            if ids is None:
                self.misses += 1
                return None
            self.hits += 1
            self._entries.move_to_end(piece)
            return ids

    def put(self, piece: str, ids: Ids) -> None:
        """Keep the ids of a piece, unless it alone would push out a large part of the rest."""
        cost = _cost(piece, ids)
        if cost > self._limit // 8:
            return
        with self._lock:
            if piece in self._entries:
                return
            self._entries[piece] = ids
            self._bytes += cost
            while self._bytes > self._limit:
                old = self._entries.popitem(last=False)
                self._bytes -= _cost(*old)
                self.evicted += 1

    @property
    def bytes(self) -> int:
        """What it holds now."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)


def _cost(piece: str, ids: Ids) -> int:
    return sys.getsizeof(piece) + len(ids) * ids.itemsize + ENTRY_BYTES
