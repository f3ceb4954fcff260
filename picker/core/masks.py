"""A large dictionary from block hash to a bit mask, made so that no single step on it is slow or wasteful.

It is split in shards by the top bits of the hash: growing copies one shard. Masks of one bit, by far the most, are
shared objects; so are the masks of neighbouring blocks with the same holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

SHARDS = 256
"""With five million entries a shard holds some 20,000: copied in well under a millisecond when it grows."""

SHIFT = 56
"""Shards go by the top bits of a 64-bit hash: the low ones must stay free for each dictionary's own use."""

LAST = SHARDS - 1


class Bits:
    """The one-bit masks, each value one object."""

    __slots__ = ("_masks", "_shared")

    def __init__(self) -> None:
        self._masks: list[int] = []
        self._shared: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._masks)

    def __getitem__(self, number: int) -> int:
        return self._masks[number]

    def append(self) -> int:
        """One more bit; its number."""
        number = len(self._masks)
        mask = 1 << number
        self._masks.append(mask)
        self._shared[mask] = mask
        return number

    def shared(self, mask: int) -> int:
        """The shared object of that value if it has one bit, else the mask itself."""
        return self._shared.get(mask, mask)


class Masks:
    """Block hash -> mask. Hashes are u64; a mask that becomes 0 is taken out."""

    __slots__ = ("_bits", "shards")

    def __init__(self, bits: Bits) -> None:
        self._bits = bits
        self.shards: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        """By ``hash >> SHIFT & LAST``; for reading only."""

    def get(self, key: int) -> int:
        """The mask of a block, 0 for one that is not here."""
        return self.shards[key >> SHIFT & LAST].get(key, 0)

    def with_bit(self, bit: int) -> Iterator[int]:
        """All blocks whose mask has the bit. Walks everything."""
        return (key for shard in self.shards for key, mask in shard.items() if mask & bit)

    def mark(self, hashes: Iterable[int], bit: int) -> int:
        """Set the bit on these blocks; how many did not have it."""
        fresh, shards = 0, self.shards
        old = new = 0
        for key in hashes:
            shard = shards[key >> SHIFT & LAST]
            mask = shard.get(key)
            if mask is None:
                shard[key] = bit
                fresh += 1
            elif not mask & bit:
                if mask is not old:
                    old, new = mask, mask | bit
                shard[key] = new
                fresh += 1
        return fresh

    def unmark(self, hashes: Iterable[int], bit: int) -> int:
        """Take the bit off these blocks; how many had it."""
        gone, shards, shared = 0, self.shards, self._bits.shared
        old = new = 0
        for key in hashes:
            shard = shards[key >> SHIFT & LAST]
            mask = shard.get(key, 0)
            if not mask & bit:
                continue
            gone += 1
            if mask is bit or mask == bit:
                del shard[key]
                continue
            if mask is not old:
                old, new = mask, shared(mask ^ bit)
            shard[key] = new
        return gone

    def strip(self, key: int, bits: int) -> int:
        """Take several bits off one block; those it had."""
        shard = self.shards[key >> SHIFT & LAST]
        mask = shard.get(key, 0)
        had = mask & bits
        if had:
            rest = mask ^ had
            if rest:
                shard[key] = self._bits.shared(rest)
            else:
                del shard[key]
        return had
