"""Which workers were lately sent which prefix: a tree of prompts, where a long one costs no more than a short one.

A *trail* is the chain of a prompt's blocks. Blocks that the same prompts go through make one piece, with the mask of
the workers that were sent one of those; a prompt that parts from the others amid a piece cuts it in two. A sequence
hash stands for its whole prefix and so for its place: where a prompt has the last block of a piece, it has all of it,
and a piece is found by its first.
"""

from __future__ import annotations

from collections.abc import Sequence

from picker.core.match import Runs


class _Piece:
    """The blocks ``start`` to before ``end`` of some prompts."""

    __slots__ = ("end", "hashes", "last", "mask", "start")

    def __init__(self, hashes: Sequence[int], start: int, end: int, mask: int, last: dict[int, int]) -> None:
        self.hashes = hashes
        """Of the prompt marked last, from its first block on: no prompt is kept longer than its own mark."""
        self.start, self.end, self.mask = start, end, mask
        self.last = last
        """The number of the last mark, by the worker's bit."""


class Trails:
    """
    The prefixes that count for some workers.

    Marks have numbers that rise, and are taken away in that order. So what counts for a worker is prefix-closed: a
    block's last mark is no older than those of the blocks behind it.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[int, _Piece] = {}
        """By its first block."""

    def __len__(self) -> int:
        """Pieces that count for any worker."""
        return len(self._pieces)

    def mark(self, hashes: Sequence[int], bit: int, number: int) -> None:
        """These blocks, a prompt from its first on, count for the worker. They must not change."""
        pieces, at, n = self._pieces, 0, len(hashes)
        while at < n:
            piece = pieces.get(hashes[at])
            if piece is None:
                pieces[hashes[at]] = _Piece(hashes, at, n, bit, {bit: number})
                return
            if piece.start != at:
                return  # two prompts with one hash: nothing behind it can be told apart
            at = _shared(piece, hashes)
            if at < piece.end:
                self._cut(piece, at)
            piece.hashes = hashes
            piece.mask |= bit
            piece.last[bit] = number

    def unmark(self, hashes: Sequence[int], bit: int, number: int) -> None:
        """Take a mark away: what no later one of the worker covers does not count for it any more."""
        pieces, at, n = self._pieces, 0, len(hashes)
        while at < n:
            piece = pieces.get(hashes[at])
            if piece is None or piece.start != at:
                return
            at = piece.end
            last = piece.last.get(bit)
            if last is None or last > number:
                continue
            del piece.last[bit]
            piece.mask ^= bit
            if not piece.mask:
                del pieces[piece.hashes[piece.start]]

    def runs(self, hashes: Sequence[int]) -> Runs:
        """How many leading blocks of a prompt count for whom, as `picker.core.match.Match` has it."""
        pieces, at, n = self._pieces, 0, len(hashes)
        runs: Runs = []
        mask = -1
        while at < n:
            piece = pieces.get(hashes[at])
            if piece is None or piece.start != at:
                break
            here = mask & piece.mask
            if at and here != mask:
                runs.append((mask ^ here, at))
            mask = here
            at = _shared(piece, hashes)
        if at and mask:
            runs.append((mask, at))
        return runs

    def _cut(self, piece: _Piece, at: int) -> None:
        rest = _Piece(piece.hashes, at, piece.end, piece.mask, piece.last.copy())
        self._pieces[piece.hashes[at]] = rest
        piece.end = at


def _shared(piece: _Piece, hashes: Sequence[int]) -> int:
    """Where a prompt leaves a piece that it has come to: at its end, at the prompt's own, or amid it."""
    known, end = piece.hashes, min(piece.end, len(hashes))
    if known[end - 1] == hashes[end - 1]:
        return end
    low, high = piece.start, end - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if known[middle] == hashes[middle]:
            low = middle
        else:
            high = middle
    return high
