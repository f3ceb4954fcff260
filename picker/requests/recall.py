"""
Leading stretches of texts whose token ids are known: what texts begin with alike is cut and looked up once.

The turns of a conversation, and all that begin with one system prompt, have long stretches in common. A stretch ends at
one of `ENDS`; it is known by what stands from the text's beginning to there, and tells the ids up to the last cut whose
place that alone decides. So what follows is cut as if the whole text were.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from xxhash import xxh3_128

from picker.requests.ask import Ids

ENTRY_BYTES: Final = 400
"""What an entry costs beside its ids: its key, two objects and its place."""
FIRST: Final = 512
MOST: Final = 4_096


def _ends(longest: int) -> Iterable[int]:
    """The step is half of what lies before it, rounded down to a power of two, from `FIRST` to `MOST`."""
    end = FIRST
    while end <= longest:
        yield end
        end += min(max(FIRST, 1 << ((end // 2).bit_length() - 1)), MOST)


ENDS: Final = tuple(_ends(4 * 1024 * 1024))
"""Where stretches end, in bytes of UTF-8 from the text's beginning."""

Cut = tuple[int, int]
"""Where a piece of a text ends, in characters, and how many ids there are up to there."""


class Known:
    """What is known of a text."""

    __slots__ = ("end", "parts", "pieces", "stretches", "whole")

    def __init__(self) -> None:
        self.parts: list[Ids] = []
        """Its leading ids, in parts."""
        self.end = 0
        """How many characters they stand for."""
        self.pieces = 0
        """How many pieces these were cut into."""
        self.stretches = 0
        self.whole: Ids | None = None
        """All its ids, not to be changed; None: they are not known."""


class Recall:
    """
    Remembers stretches, in bounded memory; the oldest go first. Safe to use from several threads.

    Stretches are known by 128 bits of xxh3 under a seed that no client knows: two made up to collide would let one
    client's prompt be taken for another's, and misroute it.

    Args:
        limit: Bytes.
        reach: Bytes behind a cut that decide whether there is one.
        secret: The seed, 64 bits drawn at random at the start.

    """

    __slots__ = ("_known", "_limit", "_lock", "_reach", "_secret", "_size")

    def __init__(self, limit: int, *, reach: int, secret: int) -> None:
        self._limit, self._reach, self._secret = limit, reach, secret
        self._known: OrderedDict[bytes, tuple[int, int, Ids]] = OrderedDict()
        """By key: the characters and pieces up to a stretch's last cut, and the ids since the last but one; or all."""
        self._lock = threading.Lock()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that it holds now."""
        return self._size

    def __len__(self) -> int:
        return len(self._known)

    def find(self, text: str) -> Known:
        """What is known of a text's beginning, or of all of it."""
        known, data = Known(), memoryview(text.encode())
        running, at = xxh3_128(seed=self._secret), 0
        for end in ENDS:
            if end > len(data):
                break
            running.update(data[at:end])
            found = self._known.get(running.digest())
            if found is None:
                return known
            known.end, known.pieces, ids = found
            known.parts.append(ids)
            known.stretches += 1
            at = end
        running.update(data[at:])
        whole = self._known.get(_of_whole(running.digest()))
        if whole is not None:
            known.end, known.pieces, known.whole = whole
        return known

    def keep(self, text: str, known: Known, cuts: Sequence[Cut], ids: Ids) -> None:
        """
        Remember a text.

        Args:
            text: The text.
            known: What was known of it.
            cuts: Where its pieces end, from ``known.end`` on, which comes first.
            ids: All its ids.

        """
        data = memoryview(text.encode())
        running, at = xxh3_128(seed=self._secret), 0
        places = self._places(text, len(data), cuts)
        last, upto = 0, cuts[0][1]
        entries: list[tuple[bytes, tuple[int, int, Ids]]] = []
        for number, end in enumerate(ENDS):
            if end > len(data):
                break
            running.update(data[at:end])
            at = end
            if number < known.stretches:
                continue
            while last + 1 < len(cuts) and places[last + 1] + self._reach <= end:
                last += 1
            entries.append(
                (running.digest(), (cuts[last][0], known.pieces + last, ids[upto : cuts[last][1]]))
            )
            upto = cuts[last][1]
        running.update(data[at:])
        entries.append((_of_whole(running.digest()), (len(text), known.pieces + len(cuts) - 1, ids)))
        self._put(entries)

    @staticmethod
    def _places(text: str, size: int, cuts: Sequence[Cut]) -> Sequence[int]:
        """The cuts' ends in bytes of UTF-8."""
        if size == len(text):
            return [end for end, _ in cuts]
        place, before, places = 0, 0, []
        for end, _ in cuts:
            place += len(text[before:end].encode())
            before = end
            places.append(place)
        return places

    def _put(self, entries: Sequence[tuple[bytes, tuple[int, int, Ids]]]) -> None:
        with self._lock:
            for key, entry in entries:
                cost = _cost(entry)
                if key in self._known or cost > self._limit // 8:
                    continue
                self._known[key] = entry
                self._size += cost
            while self._size > self._limit:
                self._size -= _cost(self._known.popitem(last=False)[1])


def _of_whole(digest: bytes) -> bytes:
    """The key of a text that ends there: a stretch that ends there may go on."""
    return digest + b"."


def _cost(entry: tuple[int, int, Ids]) -> int:
    return len(entry[2]) * 4 + ENTRY_BYTES
