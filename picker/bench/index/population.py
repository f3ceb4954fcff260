"""A large index as a pool fills it: who stores what, in events of one size."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from picker.bench.timing import cpu_us
from picker.core.index import DEVICE, HOST, PrefixIndex

EVENT_BLOCKS = 64
"""Blocks in one event."""

SHARED_EVENTS = 0.008
"""Share of a worker's events that all workers store too: system prompts."""

GROUP_EVENTS = 0.028
"""Share that the workers of its group store too: documents in use in several places."""

GROUP_SIZE = 8
HOST_EVENTS = 0.105
"""Share of the events which nobody shares that lies in the second tier alone, its device copy evicted."""


@dataclass(frozen=True, slots=True)
class Event:
    """One decoded event."""

    worker: str
    tier: int
    hashes: list[int]


def names(workers: int) -> list[str]:
    """So many workers; every fifth is the second rank of the one before."""
    return [
        f"10.{n >> 16}.{n >> 8 & 255}.{(n - 1 if n % 5 == 4 else n) & 255}:8000{'@1' if n % 5 == 4 else ''}"
        for n in range(workers)
    ]


def events(workers: list[str], entries: int, rng: random.Random, *, tiered: bool = True) -> Iterator[Event]:
    """What makes an index of so many entries, one event of each worker by turns.

    Of an event's number depends who shares it; blocks have random hashes, as real ones look. ``tiered``: some lie in
    the second tier.
    """
    rounds = max(entries // (len(workers) * EVENT_BLOCKS), 1)
    shared = max(round(rounds * SHARED_EVENTS), 1)
    grouped = max(round(rounds * GROUP_EVENTS), 1)
    for number in range(rounds):
        common: list[int] = []
        for place, worker in enumerate(workers):
            alone = number >= shared + grouped
            fresh = alone or place == 0 or (number >= shared and place % GROUP_SIZE == 0)
            hashes = fresh_hashes(rng) if fresh else common
            common = hashes
            tier = HOST if tiered and alone and rng.random() < HOST_EVENTS else DEVICE
            yield Event(worker, tier, hashes)


def fresh_hashes(rng: random.Random, blocks: int = EVENT_BLOCKS) -> list[int]:
    """Hashes that nobody holds."""
    return [rng.getrandbits(64) for _ in range(blocks)]


@dataclass(frozen=True, slots=True)
class Grown:
    """How an index grew."""

    entries: int
    distinct: int
    lower: int
    """Entries in the second tier."""
    max_us: float
    over_5_ms: int
    """Events whose store took longer than 5 ms of CPU time."""
    us: array[float]
    """CPU time of each event's store."""


def grow(
    index: PrefixIndex, workers: list[str], entries: int, rng: random.Random, *, tiered: bool = True
) -> Grown:
    """Fill an empty index, timing every event."""
    for worker in workers:
        index.add(worker)
    took: array[float] = array("d")
    distinct, lower, last = 0, 0, None
    for event in events(workers, entries, rng, tiered=tiered):
        took.append(cpu_us(lambda e=event: index.store(e.worker, e.hashes, e.tier)))  # type: ignore[misc]
        distinct += 0 if event.hashes is last else len(event.hashes)
        lower += len(event.hashes) if event.tier else 0
        last = event.hashes
    return Grown(len(index), distinct, lower, max(took), sum(us > 5_000 for us in took), took)
