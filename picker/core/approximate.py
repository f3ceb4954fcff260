"""
Prefixes learned from picks, for engines that send no events: what was sent to a worker, it holds for a while.

Per worker the blocks stand in the order of their last use, a prompt's later blocks before its earlier ones, so that the
oldest is always the end of some prompt: taking it away leaves the rest prefix-closed, as the index wants it. A worker
has a bound (its cache's size as far as one knows it) and a block a life since its last use; what passes either is
forgotten. What is learned here is stored in the index itself.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

MAX_PROMPT_BLOCKS: Final = 4_096
TTL_SECONDS: Final = 120.0
WORKER_BLOCKS: Final = 65_536


class Learned(Protocol):
    """What is needed of the index: `picker.core.index.PrefixIndex`."""

    def store(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It holds these blocks."""

    def remove(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It no longer does."""


@dataclass(slots=True)
class Counts:
    """What was learned, in blocks."""

    learned: int = 0
    used_again: int = 0
    expired: int = 0
    over_bound: int = 0
    """Forgotten because a bound was reached."""
    cut: int = 0
    """Blocks of very long prompts that were left out."""


class Approximate:
    """
    What workers probably hold.

    Args:
        index: where it is stored.
        ttl: seconds that a block is believed after its last use.
        worker_blocks: most blocks of one worker.
        total_blocks: most blocks of all workers together; past it the worker that learns forgets.

    """

    def __init__(
        self,
        index: Learned,
        *,
        ttl: float = TTL_SECONDS,
        worker_blocks: int = WORKER_BLOCKS,
        total_blocks: int = sys.maxsize,
    ) -> None:
        self.counts = Counts()
        self._index = index
        self._ttl = ttl
        self._most = worker_blocks
        self._total = total_blocks
        self._size = 0
        self._workers: dict[str, OrderedDict[int, float]] = {}

    def __contains__(self, worker: str) -> bool:
        """Whether anything of that worker is learned."""
        return worker in self._workers

    def __len__(self) -> int:
        """How many blocks are learned, over all workers."""
        return self._size

    def count(self, worker: str) -> int:
        """How many blocks of that worker are learned."""
        return len(self._workers.get(worker, ()))

    def learn(self, worker: str, hashes: Sequence[int], now: float) -> None:
        """A request with this prompt (sequence hashes, from its first block on) was sent to the worker."""
        self.counts.cut += max(len(hashes) - MAX_PROMPT_BLOCKS, 0)
        prompt = hashes[: min(MAX_PROMPT_BLOCKS, self._most)]
        blocks = self._workers.setdefault(worker, OrderedDict())
        before = len(blocks)
        fresh = [key for key in prompt if key not in blocks]
        last_first = prompt[::-1]
        blocks.update(dict.fromkeys(last_first, now))
        if len(fresh) < len(prompt):
            deque(map(blocks.move_to_end, last_first), maxlen=0)  # all of them, and nothing is kept of it
        self._size += len(blocks) - before
        if fresh:
            self._index.store(worker, fresh)
        self.counts.learned += len(fresh)
        self.counts.used_again += len(prompt) - len(fresh)
        over = min(max(len(blocks) - self._most, self._size - self._total, 0), len(blocks))
        self.counts.over_bound += over
        self._take_away(worker, over)

    def expire(self, now: float, limit: int = 4_096) -> None:
        """Forget what was not used for its life, at most ``limit`` blocks. Call it every second or so."""
        for worker, blocks in list(self._workers.items()):
            old = 0
            for used in blocks.values():
                if old >= limit or now - used < self._ttl:
                    break
                old += 1
            limit -= old
            self.counts.expired += old
            self._take_away(worker, old)
            if limit <= 0:
                return

    def forget(self, worker: str) -> None:
        """The worker speaks for itself, or left; whoever says so has emptied its part of the index."""
        self._size -= len(self._workers.pop(worker, ()))

    def _take_away(self, worker: str, count: int) -> None:
        blocks = self._workers[worker]
        gone = [blocks.popitem(last=False)[0] for _ in range(count)]
        self._size -= len(gone)
        if gone:
            self._index.remove(worker, gone)
        if not blocks:
            del self._workers[worker]
