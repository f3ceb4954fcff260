"""The answer of the index to one prompt: how many leading blocks each worker holds, and on which tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import NamedTuple

Runs = list[tuple[int, int]]
Shares = Sequence[tuple[int, "Overlap"]]
"""Masks of workers without a common bit, each with what all of them hold."""

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
    """The answer to one query; which worker has which bit is good until the index next changes.

    ``runs`` is a list of ``(mask, length)`` with rising lengths: the workers whose bits are in ``mask`` hold exactly
    the first ``length`` blocks. Workers in no run hold none of them.
    """

    __slots__ = ("_dense", "_lower", "_slots", "runs")

    def __init__(self, runs: Runs, slots: Mapping[str, int], lower: Mapping[int, tuple[int, int]]) -> None:
        """``slots`` names each worker's bit, ``lower`` says ``host, disk`` of the bits with a part on lower tiers."""
        self.runs = runs
        self._slots = slots
        self._lower = lower
        self._dense: dict[int, Overlap] | None = None

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
            dense = self._dense = {slot: overlap for mask, overlap in self.shares() for slot in bits(mask)}
        return dense.get(self._slots.get(worker, -1), NO_OVERLAP)

    def shares(self) -> Shares:
        """The same as masks: a run is one of them, but for its workers with a part on lower tiers."""
        if not self._lower:
            return [(mask, Overlap(length)) for mask, length in self.runs]
        found = []
        for mask, length in self.runs:
            rest = mask
            for slot, (host, disk) in self._lower.items():
                bit = 1 << slot
                if mask & bit:
                    rest ^= bit
                    found.append((bit, Overlap(length - host - disk, host, disk)))
            if rest:
                found.append((rest, Overlap(length)))
        return found


def longer(runs: Runs, others: Runs) -> Runs:
    """For each worker the longer of two prefixes of one prompt."""
    if not runs or not others:
        return runs or others
    found: Runs = []
    seen = 0
    for mask, length in sorted([*runs, *others], key=itemgetter(1), reverse=True):
        new = mask & ~seen
        if new:
            if found and found[-1][1] == length:
                new |= found.pop()[0]
            found.append((new, length))
            seen |= new
    found.reverse()
    return found


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
