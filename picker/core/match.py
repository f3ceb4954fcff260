"""The answer of the index to one prompt: how many leading blocks each worker holds, and on which tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

Runs = list[tuple[int, int]]
Split = Callable[[], Iterable[tuple[int, int, int]]]

_TRUTH = bytes.maketrans(b"01", b"\x00\x01")


class Overlap(NamedTuple):
    """How many leading blocks of a prompt a worker holds, each counted once, in its best tier.

    A tuple and not a dataclass: it is made on the pick path.
    """

    device: int = 0
    host: int = 0
    disk: int = 0

    @property
    def total(self) -> int:
        """The length of the prefix, over all tiers."""
        return self.device + self.host + self.disk


NO_OVERLAP = Overlap()


class Match:
    """The answer to one query; good until the index next changes.

    ``runs`` is a list of ``(mask, length)`` with rising lengths: the workers whose bits are in ``mask`` hold exactly
    the first ``length`` blocks. Workers in no run hold none of them.
    """

    __slots__ = ("_dense", "_slots", "_split", "_width", "runs")

    def __init__(self, runs: Runs, slots: Mapping[str, int], width: int, split: Split) -> None:
        """``slots`` names each worker's bit, ``split`` says ``(bit, host, disk)`` where lower tiers have a part."""
        self.runs = runs
        self._slots = slots
        self._width = width
        self._split = split
        self._dense: list[Overlap] | None = None

    @property
    def best(self) -> int:
        """The longest prefix that any worker holds, in blocks."""
        return self.runs[-1][1] if self.runs else 0

    def overlap(self, worker: str) -> Overlap:
        """What that worker holds of the prompt; nothing for a worker that is not known."""
        if not self.runs:
            return NO_OVERLAP
        dense = self._dense
        if dense is None:
            dense = self._dense = self._spread()
        slot = self._slots.get(worker)
        return dense[slot] if slot is not None and slot < len(dense) else NO_OVERLAP

    def holders(self, names: Sequence[str]) -> dict[str, Overlap]:
        """What each worker holds that holds something; ``names`` are the workers by bit."""
        found: dict[str, Overlap] = {}
        if not self.runs:
            return found
        for mask, length in self.runs:
            overlap = Overlap(length)
            for slot in bits(mask):
                found[names[slot]] = overlap
        for slot, host, disk in self._split():
            name = names[slot]
            found[name] = Overlap(found[name].device - host - disk, host, disk)
        return found

    def _spread(self) -> list[Overlap]:
        """One overlap per bit; the workers of a run share theirs unless lower tiers have a part in it."""
        dense = [NO_OVERLAP] * self._width
        for mask, length in self.runs:
            overlap = Overlap(length)
            for slot in bits(mask):
                dense[slot] = overlap
        for slot, host, disk in self._split():
            dense[slot] = Overlap(dense[slot].device - host - disk, host, disk)
        return dense


def sum_overlaps(matches: Iterable[Match], worker: str) -> Overlap:
    """What a worker holds of several prompts of one request, added up."""
    parts = [match.overlap(worker) for match in matches]
    return Overlap(*(sum(tier) for tier in zip(*parts, strict=True)))


class Tally:
    """Counts, for each bit, in how many of the masks it was set: a binary counter whose digits are masks.

    Adding a mask costs two or three operations on integers, however many bits it has.
    """

    __slots__ = ("_digits",)

    def __init__(self) -> None:
        self._digits: list[int] = []

    def add(self, mask: int) -> None:
        """Count one more for each bit of the mask."""
        digits = self._digits
        at = 0
        while mask:
            if at == len(digits):
                digits.append(mask)
                return
            carry = digits[at] & mask
            digits[at] ^= mask
            mask = carry
            at += 1

    def totals(self) -> dict[int, int]:
        """Bit -> count, for the bits that were counted at all."""
        totals: dict[int, int] = {}
        for at, digit in enumerate(self._digits):
            for slot in bits(digit):
                totals[slot] = totals.get(slot, 0) + (1 << at)
        return totals


def bits(mask: int) -> Iterable[int]:
    """The numbers of the bits that are set, lowest first."""
    if not mask & (mask - 1):
        return (mask.bit_length() - 1,) if mask else ()
    digits = bin(mask)[:1:-1].encode().translate(_TRUTH)
    return compress(range(len(digits)), digits)
