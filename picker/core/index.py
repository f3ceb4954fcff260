"""Who holds which prefix: an exact index of blocks over workers, in plain dictionaries and integers.

One dictionary (`picker.core.masks`) maps a sequence hash to the mask of the workers that hold it: a block which one
worker holds costs its key and its place there. Blocks in lower tiers stand in further, sparse dictionaries.

What a worker holds (over all its tiers together) is **prefix-closed**: with a block it holds all blocks before it. The
writer guarantees that; it makes the halving search exact. Where a writer breaks it, this still holds: nothing raises;
a worker is answered with ``n`` > 0 only if it holds the first block and the n-th, and not the one after the n-th; one
that does hold the first n blocks is never answered with less.

A worker that clears or leaves gives up its bit at once (the bit is *retired*: exact from that moment) and its entries
are taken out by `sweep` in small steps. A bit is given to another worker only when no entry carries it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from picker.core.masks import LAST, SHARDS, SHIFT, Bits, Masks
from picker.core.match import NO_OVERLAP, Match, Overlap, Runs, Tally, bits, longer, sum_overlaps

__all__ = [
    "DEVICE",
    "DISK",
    "HOST",
    "NO_OVERLAP",
    "Counts",
    "Match",
    "Overlap",
    "PrefixIndex",
    "sum_overlaps",
]

DEVICE, HOST, DISK = 0, 1, 2
"""Tiers, best first."""

_NONE: Mapping[int, tuple[int, int]] = {}
_MOST_RETIRED = 1024  # bits waiting for the sweep; past it a clear sweeps to the end itself


@dataclass(slots=True)
class Counts:
    """What the index could not use, and the work of its upkeep."""

    unknown_worker: int = 0
    """Stores and removals that named a worker which is not (or no longer) known; ignored."""
    not_held: int = 0
    """Blocks to be removed that were not held."""
    retired: int = 0
    """Times that a worker gave up its bit with entries on it."""
    swept: int = 0
    """Entries of retired bits that were taken out."""
    forced_sweeps: int = 0
    """Times that a clear swept to the end itself, because too many retired bits were waiting."""


class PrefixIndex:
    """The blocks that all workers of a pool hold, on three tiers: 0 device, 1 host memory, 2 disk."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.seating = 0
        """Another number whenever a worker has got a bit or given up its own."""
        self._slots: dict[str, int] = {}  # worker -> number of its bit
        self._bit = Bits()
        self._held = Masks(self._bit)  # who holds a block, on any tier
        self._below = Masks(self._bit)  # who holds it, though not on the device
        self._tiers = {HOST: Masks(self._bit), DISK: Masks(self._bit)}  # who holds it on that tier
        self._entries: list[int] = []  # by bit: blocks held
        self._lower: list[int] = []  # by bit: blocks on the host plus blocks on disk
        self._tiered = 0  # mask of the bits with blocks on lower tiers
        self._free: list[int] = []
        self._retired: set[int] = set()
        self._dead = 0  # mask of the retired bits
        self._left = 0  # entries of the retired bits
        self._live = 0
        self._shard = 0  # where the sweep stands, and the keys it has still to look at there
        self._keys: list[int] = []

    def __len__(self) -> int:
        """Entries: pairs of a worker and a block it holds."""
        return self._live

    @property
    def left(self) -> int:
        """Entries that `sweep` has still to take out."""
        return self._left

    @property
    def width(self) -> int:
        """Bits in use, retired ones included."""
        return len(self._bit)

    def slot(self, worker: str) -> int | None:
        """The number of the worker's bit in masks; None for one that is not known."""
        return self._slots.get(worker)

    def seats(self, workers: Sequence[str]) -> list[int]:
        """A number for each worker: its slot, and beyond all bits where it is not known."""
        slots = self._slots
        return [slots.get(worker, place) for place, worker in enumerate(workers, self.width)]

    def add(self, worker: str) -> None:
        """Make a worker known; one that is known keeps what it holds."""
        if worker not in self._slots:
            self._slots[worker] = self._take()

    def drop(self, worker: str) -> None:
        """Forget a worker and all it holds; what comes late for it is ignored. Exact at once."""
        slot = self._slots.pop(worker, None)
        if slot is not None:
            self.seating += 1
            self._retire(slot)

    def clear(self, worker: str) -> None:
        """The worker holds nothing any more, on any tier. Exact at once."""
        slot = self._slots.get(worker)
        if slot is not None and self._entries[slot]:
            self._retire(slot)
            self._slots[worker] = self._take()

    def count(self, worker: str) -> int:
        """How many blocks the worker holds, on any tier; 0 for one that is not known."""
        slot = self._slots.get(worker)
        return 0 if slot is None else self._entries[slot]

    def held(self, worker: str) -> frozenset[int]:
        """All blocks that the worker holds, on any tier. Walks the whole index: for checks, never on the pick path."""
        slot = self._slots.get(worker)
        if slot is None:
            return frozenset()
        return frozenset(self._held.with_bit(self._bit[slot]))

    def store(self, worker: str, hashes: Sequence[int], tier: int = DEVICE) -> int:
        """The worker now holds these blocks on that tier; the answer is how many it had held on no tier before.

        Raises:
            ValueError: there is no such tier.
        """
        slot = self._slots.get(worker)
        if slot is None:
            self.counts.unknown_worker += 1
            return 0
        bit = self._bit[slot]
        if tier == DEVICE:
            fresh = self._held.mark(hashes, bit)
            if self._tiered & bit:
                self._below.unmark(hashes, bit)
        else:
            place = self._tier(tier)
            new = [key for key in hashes if not self._held.get(key) & bit]
            fresh = self._held.mark(new, bit)
            self._below.mark(new, bit)
            self._lower[slot] += place.mark(hashes, bit)
            self._note_tiers(slot)
        self._entries[slot] += fresh
        self._live += fresh
        return fresh

    def remove(self, worker: str, hashes: Sequence[int], tier: int = DEVICE) -> int:
        """The worker no longer holds these blocks on that tier; the answer is how many it now holds on no tier at all.

        Raises:
            ValueError: there is no such tier.
        """
        slot = self._slots.get(worker)
        if slot is None:
            self.counts.unknown_worker += 1
            return 0
        bit = self._bit[slot]
        if tier != DEVICE:
            gone = self._remove_lower(slot, bit, hashes, tier)
        elif self._tiered & bit:
            gone = self._remove_device(bit, hashes)
        else:
            gone = self._held.unmark(hashes, bit)
            self.counts.not_held += len(hashes) - gone
        self._entries[slot] -= gone
        self._live -= gone
        return gone

    def match(self, hashes: Sequence[int], expected: Runs | None = None) -> Match:
        """How many leading blocks of a prompt each worker holds.

        ``expected`` are runs of workers that will soon hold so many of them, on the device.
        """
        runs = self._runs(hashes)
        lower = self._split(hashes, runs) if self._tiered and runs else _NONE
        return Match(longer(runs, expected) if expected else runs, self._slots, lower)

    def sweep(self, limit: int) -> int:
        """Look at up to ``limit`` entries and take out what retired bits left there; how many such entries are left.

        Call it from a background task while `left` is not 0; 2,048 entries take about half a millisecond.
        """
        seen = 0
        while self._left and seen < limit:
            if not self._keys:
                self._shard = (self._shard + 1) % SHARDS
                self._keys = list(self._held.shards[self._shard])
                seen += 1
                continue
            at = max(len(self._keys) - (limit - seen), 0)
            part = self._keys[at:]
            del self._keys[at:]
            seen += len(part)
            self._clean(part)
        if not self._left:
            self._keys = []
        for slot in [slot for slot in self._retired if not self._entries[slot]]:
            self._retired.discard(slot)
            self._dead ^= self._bit[slot]
            self._release(slot)
        return self._left

    def _runs(self, hashes: Sequence[int]) -> Runs:
        """The halving search: where all that hold the start of a stretch hold its end too, they hold all of it."""
        if not hashes:
            return []
        shards, low, runs = self._held.shards, 0, []
        key = hashes[0]
        mask = shards[key >> SHIFT & LAST].get(key, 0) & ~self._dead
        if not mask:
            return []
        key = hashes[-1]
        here = shards[key >> SHIFT & LAST].get(key, 0)
        # ends of stretches that begin at ``low``, the nearest last, each with those that hold it
        ends = [(len(hashes) - 1, here)]
        while ends:
            high, here = ends[-1]
            still = mask & here
            if still == mask:
                low = high
                ends.pop()
            elif high - low == 1:
                runs.append((mask ^ still, high))
                low, mask = high, still
                ends.pop()
                if not mask:
                    return runs
            else:
                middle = (low + high) >> 1
                key = hashes[middle]
                ends.append((middle, shards[key >> SHIFT & LAST].get(key, 0)))
        runs.append((mask, len(hashes)))
        return runs

    def _split(self, hashes: Sequence[int], runs: Runs) -> Mapping[int, tuple[int, int]]:
        """``host, disk``: what of each run's prefix lies on lower tiers, by bit, for the workers that have some."""
        here = 0
        for mask, _ in runs:
            here |= mask
        here &= self._tiered
        if not here:
            return _NONE
        below, host, on_host, on_disk = self._below, self._tiers[HOST], Tally(), Tally()
        start = 0
        for mask, length in runs:
            for key in hashes[start:length]:
                lower = below.get(key) & here
                if lower:
                    warm = host.get(key) & lower
                    on_host.add(warm)
                    on_disk.add(lower ^ warm)
            start = length
            here &= ~mask
            if not here:
                break
        hosts, disks = on_host.totals(), on_disk.totals()
        return {slot: (hosts.get(slot, 0), disks.get(slot, 0)) for slot in hosts.keys() | disks.keys()}

    def _remove_device(self, bit: int, hashes: Sequence[int]) -> int:
        """Take blocks off the device of a worker that also has lower tiers: those held there too stay held."""
        gone, kept = [], []
        host, disk = self._tiers[HOST], self._tiers[DISK]
        for key in hashes:
            if not self._held.get(key) & ~self._below.get(key) & bit:
                self.counts.not_held += 1
            elif (host.get(key) | disk.get(key)) & bit:
                kept.append(key)
            else:
                gone.append(key)
        self._below.mark(kept, bit)
        return self._held.unmark(gone, bit)

    def _remove_lower(self, slot: int, bit: int, hashes: Sequence[int], tier: int) -> int:
        """Take blocks off a lower tier: those that were nowhere else are gone."""
        place, other = self._tier(tier), self._tiers[DISK if tier == HOST else HOST]
        there = [key for key in hashes if place.get(key) & bit]
        self.counts.not_held += len(hashes) - len(there)
        gone = [key for key in there if self._below.get(key) & ~other.get(key) & bit]
        self._lower[slot] -= place.unmark(there, bit)
        self._below.unmark(gone, bit)
        self._note_tiers(slot)
        return self._held.unmark(gone, bit)

    def _tier(self, tier: int) -> Masks:
        if tier not in self._tiers:
            raise ValueError(
                f"tier {tier}: there are {DEVICE} (device), {HOST} (host memory) and {DISK} (disk)"
            )
        return self._tiers[tier]

    def _note_tiers(self, slot: int) -> None:
        bit = self._bit[slot]
        self._tiered = self._tiered | bit if self._lower[slot] else self._tiered & ~bit

    def _take(self) -> int:
        self.seating += 1
        if self._free:
            return heappop(self._free)
        self._entries.append(0)
        self._lower.append(0)
        return self._bit.append()

    def _retire(self, slot: int) -> None:
        entries = self._entries[slot]
        if not entries:
            self._release(slot)
            return
        self._retired.add(slot)
        self._dead |= self._bit[slot]
        self._left += entries
        self._live -= entries
        self.counts.retired += 1
        if len(self._retired) > _MOST_RETIRED:
            self.counts.forced_sweeps += 1
            while self.sweep(1 << 20):
                pass

    def _release(self, slot: int) -> None:
        self._lower[slot] = 0
        self._note_tiers(slot)
        heappush(self._free, slot)

    def _clean(self, keys: Iterable[int]) -> None:
        dead, held, swept = self._dead, self._held.shards[self._shard], 0
        for key in keys:
            if not held.get(key, 0) & dead:
                continue
            gone = self._held.strip(key, dead)
            for slot in bits(gone):
                self._entries[slot] -= 1
                swept += 1
            if gone & self._tiered:
                for place in (self._below, *self._tiers.values()):
                    place.strip(key, gone)
        self._left -= swept
        self.counts.swept += swept
