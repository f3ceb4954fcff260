"""
Words whose token ids are known: a short new text is mostly made of words that were seen before.

Used where a tokenizer may be cut between words of Latin letters (`picker.requests.pieces.PLACES`): to look a word up
costs a tenth of encoding it. A long text is better encoded as a whole, beside the event loop.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, cast

from picker.requests.ask import Ids

MOST_WORDS: Final = 32_768
"""Words that are remembered, the oldest go first: about 10 MB."""
LONGEST: Final = 24
"""Longest word that is remembered, in characters."""
LEARNED: Final = 16
"""So many new words are encoded each for itself at one time, and remembered; others with what is new beside them."""
PROSE: Final = 12
"""Where words have more characters than this on average, it is no prose, and not looked at word by word."""

_WORD = re.compile(r".[^ ]*+(?:(?:(?<![A-Za-z]) | (?![A-Za-z]))[^ ]*+)*+", re.DOTALL)
"""What stands between two places of the kind ``words``."""


class Words:
    """
    Encodes texts word by word. Safe to use from several threads.

    Args:
        encode: Gives the ids of each of several texts.

    """

    __slots__ = ("_encode", "_known", "_lock")

    def __init__(self, encode: Callable[[Sequence[str]], Sequence[Sequence[int]]]) -> None:
        self._encode = encode
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def ids(self, texts: Sequence[str], most: int) -> list[Ids] | None:
        """The ids of each text; None where words of more than ``most`` characters would have to be encoded."""
        split = [_WORD.findall(text) for text in texts]
        if sum(map(len, texts)) > PROSE * sum(map(len, split)):
            split = [[text] if text else [] for text in texts]
        found = [list(map(self._known.get, words)) for words in split]
        new = 0
        for words, known in zip(split, found, strict=True):
            if None in known:
                new += sum(len(word) for word, ids in zip(words, known, strict=True) if ids is None)
        if new > most:
            return None
        if new:
            self._fill(split, found)
        return [_joined(cast("list[bytes]", known)) for known in found]

    def _fill(self, split: Sequence[Sequence[str]], found: Sequence[list[bytes | None]]) -> None:
        """Encode what is not known, and put its ids in its place."""
        runs: list[str] = []
        places: list[tuple[list[bytes | None], int, int]] = []
        learned: dict[str, int] = {}
        for words, known in zip(split, found, strict=True):
            running = False
            for at, word in enumerate(words):
                if known[at] is not None:
                    running = False
                    continue
                number = learned.get(word)
                if number is None:
                    if len(word) <= LONGEST and len(learned) < LEARNED:
                        number = learned[word] = len(runs)
                    elif running:
                        runs[-1] += word
                        known[at] = b""
                        continue
                    runs.append(word)
                running = number is None
                places.append((known, at, len(runs) - 1 if number is None else number))
        encoded = [array("I", ids).tobytes() for ids in self._encode(runs)]
        for known, at, number in places:
            known[at] = encoded[number]
        with self._lock:
            self._known.update((word, encoded[number]) for word, number in learned.items())
            while len(self._known) > MOST_WORDS:
                self._known.popitem(last=False)


def _joined(parts: Sequence[bytes]) -> Ids:
    ids: Ids = array("I")
    ids.frombytes(b"".join(parts))
    return ids
