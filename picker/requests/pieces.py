"""
Pieces of text whose token ids stand for themselves: where text may be cut, and a bounded cache of what was cut.

A special token cuts the text before anything else looks at it, so the ids of a text are the ids of its pieces, each
beginning with such a token, one after the other. Whether that holds for a given tokenizer is tried at load.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from picker.requests.ask import Ids

ENTRY_BYTES = 200
"""What an entry costs beside its text and its ids: two objects and its place in the order."""
WINDOW = 65_536
"""Characters searched at one go."""


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
    # What stands past the first character of each token: another one that begins in there is not found.
    inner = "\0".join(token.content[1:] for token in tokens)
    tails = {token.content[at:] for token in tokens for at in range(1, len(token.content))}
    fit = {
        token.content
        for token in tokens
        if token.special and not (token.normalized or token.lstrip or token.single_word)
        if token.content not in inner
        if not any(token.content[:end] in tails for end in range(1, len(token.content) + 1))
    }
    return tuple(sorted(fit, key=len, reverse=True))


class Cutter:
    """Cuts text before each of the given tokens."""

    __slots__ = ("_longest", "_pattern", "tokens")

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self._longest = max(map(len, tokens), default=0)
        self._pattern = re.compile(any_of(tokens)) if tokens else None

    def cut(self, text: str) -> Iterator[str]:
        """The pieces, which joined are the text; none is empty. Each is cut when it is asked for."""
        begin = 0
        for start in self._starts(text):
            if begin < start:
                yield text[begin:start]
                begin = start
        if begin < len(text):
            yield text[begin:]

    def cut_few(self, text: str, most: int) -> list[str] | None:
        """As `cut`; None where there are more pieces than that, found out in as many steps."""
        pieces = list(islice(self.cut(text), most + 1))
        return None if len(pieces) > most else pieces

    def _starts(self, text: str) -> Iterator[int]:
        """Where tokens begin. Searched a window at a time: no thread runs beside a search."""
        if self._pattern is None:
            return
        at = 0
        while at < len(text):
            stop = at + WINDOW
            at = stop
            for found in self._pattern.finditer(text, stop - WINDOW, stop + self._longest):
                if found.start() >= stop:
                    break
                yield found.start()
                at = max(stop, found.end())


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of place inside plain text at which most tokenizers start anew, whatever stands around it."""

    name: str
    pattern: str
    """Matches, without width, at such a place."""
    spanning: str
    """Matches in a token that may reach over such a place, be it spelled in bytes, as byte-level BPE spells them, or
    with visible blanks."""

    def may_span(self, words: Iterable[str]) -> bool:
        """Whether some token may reach over such a place."""
        reaches = re.compile(self.spanning).search
        return any(reaches(word) is not None for word in words)


PLACES = (
    Place("lines", r"(?<=[^\s]\n)(?=[A-Za-z\u4e00-\u9fff])", "[\\n\u010a][A-Za-z\xe4-\xe9\u4e00-\u9fff]"),
    Place("words", r"(?<=[A-Za-z])(?= [A-Za-z])", "[A-Za-z][ \u0120\u2581]"),
)
"""Between two lines, and between two words of Latin letters."""


class Slicer:
    """Cuts a long text at places of the given kinds, at the first one past every ``length`` characters."""

    __slots__ = ("_length", "_pattern")

    def __init__(self, places: Sequence[Place], length: int) -> None:
        self._length = length
        self._pattern = re.compile("|".join(place.pattern for place in places)) if places else None

    def cut(self, text: str) -> Iterator[str]:
        """
        The slices, which joined are the text.

        Where a text is cut depends on what stands before and one character behind, so texts that begin alike are
        cut alike.
        """
        begin = 0
        while self._pattern is not None and len(text) - begin > self._length:
            found = self._find(text, begin + self._length)
            if found is None:
                break
            yield text[begin:found]
            begin = found
        if begin < len(text):
            yield text[begin:]

    def _find(self, text: str, at: int) -> int | None:
        """Searched a window at a time: no thread runs beside a search."""
        assert self._pattern is not None, "asked only where there are places"
        while at < len(text):
            found = self._pattern.search(text, at, min(at + WINDOW, len(text)))
            if found is not None and found.start() < len(text):
                return found.start()
            at += WINDOW - 2
        return None


def any_of(words: Sequence[str]) -> str:
    """
    A regular expression that finds the longest of the words at a place, in time that does not grow with their number.

    Models hold a thousand special tokens that begin alike; tried one after the other they would let a client spend
    our time on their first letters.
    """
    branches: dict[str, list[str]] = {}
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word)
    choices = []
    for alike in branches.values():
        common = os.path.commonprefix(alike)  # noqa: RUF071 - letter by letter is what is wanted
        rests = [word[len(common) :] for word in alike]
        tail = any_of(rests)
        choices.append(re.escape(common) + (f"(?:{tail})" + ("?" if "" in rests else "") if tail else ""))
    return "|".join(choices)


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

    def find(self, pieces: Sequence[str]) -> list[Ids | None]:
        """As `get` for each of several pieces; `count` counts them, once it is known what becomes of them."""
        with self._lock:
            found = [self._entries.get(piece) for piece in pieces]
            for piece, ids in zip(pieces, found, strict=True):
                if ids is not None:
                    self._entries.move_to_end(piece)
        return found

    def count(self, hits: int, misses: int) -> None:
        """Count pieces whose ids were known here or elsewhere, and such as were not."""
        with self._lock:
            self.hits += hits
            self.misses += misses

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
