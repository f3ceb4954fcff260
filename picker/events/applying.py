"""From a worker's position in its stream to the index: steps, answers, snapshots, in pieces that let others work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from picker.events.counts import Counts
from picker.events.cursor import Step
from picker.events.follower import Follower
from picker.events.records import Answer, Epoch, Fault, decode_event

log = structlog.get_logger(__name__)

SWAP_HASHES: Final = 1024


class Holdings(Protocol):
    """What the event path needs of the index: `picker.core.index.PrefixIndex`."""

    def add(self, worker: str) -> None:
        """A worker is there."""

    def store(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It holds these blocks."""

    def remove(self, worker: str, hashes: Sequence[int], tier: int = 0) -> object:
        """It no longer does."""

    def clear(self, worker: str) -> object:
        """It holds nothing."""

    def drop(self, worker: str) -> object:
        """It left."""


class Applier:
    """
    Brings the index to where the cursors are.

    Args:
        index: where blocks are stored.
        on_stored: called with a worker and the blocks that it announced on its device; it must be quick.
            What it raises is counted.
        counts: where it counts.
        on_cleared: called with a worker whose part of the index was just emptied.

    """

    def __init__(
        self,
        index: Holdings,
        on_stored: Callable[[str, Sequence[int]], None],
        counts: Counts,
        on_cleared: Callable[[str], None] = lambda _worker: None,
    ) -> None:
        self.counts = counts
        self._index = index
        self._on_stored = on_stored
        self._on_cleared = on_cleared

    def step(self, follower: Follower, step: Step) -> int:
        """Bring the index to where the cursor is; how many blocks that touched."""
        if step.clear:
            self.counts.clears += 1
            self._clear(follower)
        touched = 0
        for event in step.apply:
            touched += len(event.hashes)
            if event.kind == "stored":
                self._store(follower, event.hashes, event.tier)
            elif event.kind == "removed":
                self.counts.removed_blocks += len(event.hashes)
                self._index.remove(follower.worker, event.hashes, event.tier)
        return touched

    async def answer(self, follower: Follower, pieces: list[Answer], asked: Epoch | None) -> None:
        """Use an answer, if it is not from before what is held."""
        first, cursor = pieces[0], follower.cursor
        if not cursor.accept(first, asked):
            follower.last_error = "an answer from before what is known already"
            return
        if first.kind == "snapshot":
            await self._swap(follower, pieces)
            return
        for piece in pieces:
            for data in piece.events:
                event = decode_event(data)
                if isinstance(event, Fault):
                    self.counts.malformed += 1
                    continue
                self.step(follower, cursor.take(event))
                await asyncio.sleep(0)
        self.step(follower, cursor.settle(pieces[-1]))

    async def _swap(self, follower: Follower, pieces: list[Answer]) -> None:
        """Put a snapshot in place of what is held, in small steps; a newer life of the source stops it."""
        cursor = follower.cursor
        life = cursor.begin_snapshot(pieces[0].epoch)
        self.counts.snapshots += 1
        self._clear(follower)
        for piece in pieces:
            for part in piece.blocks:
                for start in range(0, len(part.hashes), SWAP_HASHES):
                    self._store(follower, part.hashes[start : start + SWAP_HASHES], part.tier)
                    await asyncio.sleep(0)
                    if cursor.lives != life:
                        return
        self.step(follower, cursor.end_snapshot(pieces[-1], life))

    def _clear(self, follower: Follower) -> None:
        self._index.clear(follower.worker)
        self._on_cleared(follower.worker)

    def _store(self, follower: Follower, hashes: Sequence[int], tier: int) -> None:
        self.counts.stored_blocks += len(hashes)
        self._index.store(follower.worker, hashes, tier)
        if tier == 0:
            try:
                self._on_stored(follower.worker, hashes)
            except Exception:
                # A listener's fault must not stop the events of every worker.
                self.counts.listener_errors += 1
                log.exception("a listener of stored blocks failed", worker=follower.worker)
