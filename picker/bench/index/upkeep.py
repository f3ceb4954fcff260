"""What it costs to keep an index up: events applied to a full one, a large worker cleared, growth to full size."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from picker.bench.index.population import EVENT_BLOCKS, Grown, fresh_hashes, grow
from picker.bench.timing import cpu_us, resident_bytes
from picker.core.index import PrefixIndex

SWEEP_ENTRIES = 2000
"""Entries that one step of the sweep looks at, as a running replica asks for."""


@dataclass(frozen=True, slots=True)
class Full:
    """An index of full size, and what it took."""

    index: PrefixIndex
    workers: list[str]
    grown: Grown
    bytes_per_entry: float


def fill(workers: list[str], entries: int, rng: random.Random) -> Full:
    """Grow an index from nothing; memory is the growth of the process's resident memory."""
    before = resident_bytes()
    index = PrefixIndex()
    grown = grow(index, workers, entries, rng)
    return Full(index, workers, grown, (resident_bytes() - before) / len(index))


def apply_blocks_per_s(full: Full, events: int, rng: random.Random) -> float:
    """Blocks stored and removed one to one, in decoded events, per second of CPU time; the index keeps its size."""
    fresh = [(rng.choice(full.workers), fresh_hashes(rng)) for _ in range(events)]
    index = full.index
    for worker, hashes in fresh[: events // 2]:
        index.store(worker, hashes)
    old, new = fresh[: events // 2], fresh[events // 2 :]
    begun = time.thread_time_ns()
    for (worker, hashes), (other, gone) in zip(new, old, strict=True):
        index.store(worker, hashes)
        index.remove(other, gone)
    took = (time.thread_time_ns() - begun) / 1e9
    for worker, hashes in new:
        index.remove(worker, hashes)
    return (len(old) + len(new)) * EVENT_BLOCKS / took


@dataclass(frozen=True, slots=True)
class Cleared:
    """How a large worker went."""

    blocks: int
    clear_us: float
    max_step_us: float
    """The longest step: the clear itself or one step of the sweep."""
    over_5_ms: int
    steps: int
    exact: bool
    """From the clear on, and after every 64th step, no prompt of the worker's was found and everybody else's was."""


def clear(full: Full, blocks: int, rng: random.Random) -> Cleared:
    """Let one more worker hold so many blocks, clear it, and sweep to the end."""
    index, worker, witness = full.index, "10.255.0.1:8000", "10.255.0.2:8000"
    prompt, other = fresh_hashes(rng), fresh_hashes(rng)
    for name, hashes in ((worker, prompt), (witness, other)):
        index.add(name)
        index.store(name, hashes)
    while index.count(worker) < blocks:
        index.store(worker, fresh_hashes(rng))
    held = index.count(worker)
    clear_us = cpu_us(lambda: index.clear(worker))

    def exact() -> bool:
        gone, there = index.match(prompt), index.match(other)
        return gone.best == 0 and there.overlap(witness).total == len(other)

    right, steps = exact(), []
    while index.left:
        steps.append(cpu_us(lambda: index.sweep(SWEEP_ENTRIES)))
        if len(steps) % 64 == 0:
            right = right and exact()
    right = right and exact()
    index.drop(worker)
    index.drop(witness)
    while index.left:
        index.sweep(SWEEP_ENTRIES)
    every = [clear_us, *steps]
    return Cleared(held, clear_us, max(every), sum(us > 5_000 for us in every), len(steps), right)
