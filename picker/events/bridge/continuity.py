"""
Whether an engine's numbered batches follow each other, and whether they are of one life of the engine. Pure.

Within one life the numbers of the live stream rise; one that does not shows a restart. A number alone does
not prove that a replay is of the same life: so a replay is asked for from the *last applied* batch on, and
that one must come back byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from xxhash import xxh3_64_intdigest

from picker.events.bridge.engine_events import Frames
from picker.events.bridge.sources import Replay

Verdict: TypeAlias = Literal["next", "first", "old", "gap", "restart"]


@dataclass(frozen=True, slots=True)
class Joined:
    """What a replay from the last applied batch on says."""

    life: Literal["same", "other", "unknown"]
    batches: list[Frames]
    """What follows the last applied batch without a hole."""
    whole: bool
    """Nothing is missing up to what the engine has."""


class Position:
    """How far one engine's stream is applied."""

    def __init__(self) -> None:
        self.applied: int | None = None
        """Number of the last applied batch."""
        self._print = 0
        self._live: int | None = None

    def reset(self) -> None:
        """A new life of the engine, or of our knowledge of it."""
        self.applied = None
        self._live = None

    def advance(self, batch: Frames) -> None:
        """This batch is applied."""
        self.applied = batch.sequence
        self._print = xxh3_64_intdigest(batch.payload)

    def judge(self, message: Frames) -> Verdict:
        """What a message of the live stream is to what is applied."""
        if self._live is not None and message.sequence <= self._live:
            return "restart"
        self._live = message.sequence
        if self.applied is None:
            return "first"
        if message.sequence <= self.applied:
            return "old"
        return "next" if message.sequence == self.applied + 1 else "gap"

    def again(self, message: Frames) -> Verdict:
        """The same once more, after a replay was applied."""
        self._live = None
        return self.judge(message)

    def disown(self) -> None:
        """The last message judged is not of this life: its number says nothing about those to come."""
        self._live = None

    def join(self, replay: Replay) -> Joined:
        """Judge a replay that was asked for from the last applied batch on."""
        if not replay.batches:
            # The engine always keeps its last batch: nothing, and the mark of the end, is another life's empty buffer.
            return Joined("other" if replay.ended else "unknown", [], whole=False)
        first, *rest = replay.batches
        if first.sequence != self.applied or xxh3_64_intdigest(first.payload) != self._print:
            return Joined("other", [], whole=False)
        follow = contiguous(rest, first.sequence + 1)
        return Joined("same", follow, whole=replay.ended and len(follow) == len(rest))


def contiguous(batches: list[Frames], start: int) -> list[Frames]:
    """The leading batches that number on from ``start`` without a hole."""
    for count, batch in enumerate(batches):
        if batch.sequence != start + count:
            return batches[:count]
    return batches
