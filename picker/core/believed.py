"""Prompts that were lately sent to workers: for a short life each is believed to lie there, whatever the index says.

The prompts themselves make a tree (`picker.core.trails`), and wait in the order in which their lives end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from picker.core.index import PrefixIndex
from picker.core.match import Runs
from picker.core.trails import Trails


class Seats(Protocol):
    """Who has which bit in masks: `picker.core.index.PrefixIndex`."""

    @property
    def seating(self) -> int:
        """Another number whenever a worker has got a bit or given up its own."""
        ...

    def slot(self, worker: str) -> int | None:
        """The number of the worker's bit; None for one that is not known."""
        ...


class _Sent(NamedTuple):
    """A prompt that is believed to be held where it was sent."""

    until: float
    number: int
    bit: int
    hashes: Sequence[int]


class Believed:
    """What workers are believed to hold. A worker that has no bit, or gives up its own, is believed to hold nothing.

    Args:
        most: Most blocks of all the prompts together; the oldest prompts are forgotten.
    """

    __slots__ = ("_bits", "_blocks", "_most", "_number", "_seating", "_seats", "_sent", "_trails")

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._seats: Seats = PrefixIndex()
        self._seating = 0
        self._bits: dict[str, int] = {}
        """Of the workers of which anything may be believed."""
        self._trails, self._number = Trails(), 0
        self._sent: deque[_Sent] = deque()
        """Their lives are all of one length: the first ends first."""
        self._blocks = 0

    def __len__(self) -> int:
        """Blocks of the prompts."""
        return self._blocks

    @property
    def pieces(self) -> int:
        """Pieces that the tree of the prompts is made of."""
        return len(self._trails)

    def beside(self, seats: Seats) -> None:
        """Tell it in these bits from now on."""
        self._doubt(-1)
        self._bits.clear()
        self._seats, self._seating = seats, seats.seating

    def note(self, worker: str, hashes: Sequence[int], until: float) -> int:
        """A prompt was sent there, and is believed to lie there until then; it must not change.

        The answer is how many blocks of older prompts were forgotten for it.
        """
        self._reseat()
        bit = self._bits.get(worker)
        if bit is None:
            slot = self._seats.slot(worker)
            if slot is None:
                return 0
            bit = self._bits[worker] = 1 << slot
        self._number += 1
        self._trails.mark(hashes, bit, self._number)
        self._sent.append(_Sent(until, self._number, bit, hashes))
        self._blocks += len(hashes)
        forgotten = 0
        while self._sent and max(self._blocks, len(self._trails)) > self._most:
            forgotten += self._forget()
        return forgotten

    def left(self, worker: str) -> None:
        """Nothing is believed of it any more."""
        self._doubt(self._bits.pop(worker, 0))

    def settle(self, now: float) -> None:
        """Believe no more what was sent too long ago, and to workers that gave up their bits."""
        self._reseat()
        sent = self._sent
        while sent and sent[0].until <= now:
            self._forget()

    def runs(self, hashes: Sequence[int], now: float) -> Runs:
        """How many leading blocks of a prompt which workers are believed to hold: `picker.core.match.Match.runs`."""
        if not self._sent:
            return []
        self.settle(now)
        return self._trails.runs(hashes)

    def _forget(self) -> int:
        _, number, bit, hashes = self._sent.popleft()
        self._trails.unmark(hashes, bit, number)
        self._blocks -= len(hashes)
        if not self._sent:
            # prompts with one hash, by chance or by malice, may have left something behind
            self._trails = Trails()
        return len(hashes)

    def _reseat(self) -> None:
        if self._seating == self._seats.seating:
            return
        self._seating = self._seats.seating
        gone, slot = 0, self._seats.slot
        for worker, bit in list(self._bits.items()):
            if (now := slot(worker)) is None or bit != 1 << now:
                gone |= bit
                del self._bits[worker]
        self._doubt(gone)

    def _doubt(self, gone: int) -> None:
        """Nothing is believed any more of the workers with these bits."""
        if not gone:
            return
        for _, number, bit, hashes in self._sent:
            if bit & gone:
                self._trails.unmark(hashes, bit, number)
