"""
One rank's events on NATS: numbered, kept for a while, and the answers to replicas that missed some.

Numbers are given, and what is held is changed, in one go without a pause; so an answer made at any moment
is exact for the number it carries. Sending comes after and may fail: then replicas see the gap and ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from picker.events.bridge.changes import Announced, Change
from picker.events.records import SCHEMA, TIERS, Answer, Ask, Blocks, Epoch, Event, encode

EVENT_HASHES: Final = 1024
RING_BYTES: Final = 32 * 1024 * 1024
_HASH_BYTES: Final = 9
_HEAD_BYTES: Final = 512
"""Room for everything of a message but its hashes and events, the note included."""


@dataclass(slots=True)
class Counts:
    """What was said."""

    events: int = 0
    blocks: int = 0
    beats: int = 0
    asks: int = 0
    replayed: int = 0
    """Asks answered with the missing events."""
    snapshots: int = 0
    busy: int = 0


class RankPublisher:
    """
    What one rank announces.

    Args:
        keep: how many events are kept for replicas that missed some.
        piece_bytes: the largest message, in bytes, asked anew each time: it depends on the server.

    """

    def __init__(self, *, keep: int, piece_bytes: Callable[[], int], counts: Counts) -> None:
        self.counts = counts
        self.epoch = Epoch(0, 0)
        self.sequence = 0
        self.partial = True
        self.note = ""
        self.busy = False
        """What is held is being rebuilt: no answer of now would be of use."""
        self._keep = keep
        self._piece_bytes = piece_bytes
        self._announced = Announced()
        self._ring: deque[tuple[int, bytes]] = deque()
        self._ring_bytes = 0

    def begin(self, epoch: Epoch, announced: Announced) -> list[bytes]:
        """
        A new life of the source: numbers start anew, with a ``cleared``. The messages to send, in order.
        """
        self.epoch, self.sequence = epoch, 0
        self._announced = announced
        self._ring.clear()
        self._ring_bytes = 0
        return self.emit([Change("cleared")])

    def adopt(self, announced: Announced) -> list[bytes]:
        """What was rebuilt aside is held from now on: announce all of it. Only right after a ``begin``."""
        self._announced = announced
        announced.collect()
        return self.emit(Change("stored", tier, tuple(announced.tier(tier))) for tier in range(TIERS))

    def emit(self, changes: Iterable[Change]) -> list[bytes]:
        """Number these changes, which what is held shows already. The messages to send, in order."""
        messages: list[bytes] = []
        for change in changes:
            for hashes in self._slices(change):
                self.sequence += 1
                messages.append(self._event(change.kind, hashes, change.tier))
                self.counts.events += 1
                self.counts.blocks += len(hashes)
                self._remember(messages[-1])
        return messages

    def beat(self) -> bytes:
        """A message that says how far we are."""
        self.counts.beats += 1
        return self._event("beat", [], 0)

    def answers(self, ask: Ask) -> Iterator[bytes]:
        """
        The pieces of the answer: the missing events if they are kept, else all that is held.

        The first piece fixes the moment that all of them speak of; the others may be taken later.
        """
        self.counts.asks += 1
        if self.busy:
            self.counts.busy += 1
            yield encode(self._answer("busy", self.sequence, 0, last=True))
            return
        same = ask.epoch == self.epoch
        if same and self._oldest <= ask.next <= self.sequence + 1:
            self.counts.replayed += 1
            pieces = self._replay(ask.next)
        else:
            self.counts.snapshots += 1
            pieces = self._snapshot()
        for piece in pieces:
            yield encode(piece)

    @property
    def _oldest(self) -> int:
        """The number of the oldest event that is kept."""
        return self._ring[0][0] if self._ring else self.sequence + 1

    def _slices(self, change: Change) -> Iterator[list[int]]:
        if change.kind == "cleared":
            yield []
            return
        most = min(EVENT_HASHES, self._room() // _HASH_BYTES)
        for start in range(0, len(change.hashes), most):
            yield list(change.hashes[start : start + most])

    def _room(self) -> int:
        return max(self._piece_bytes() - _HEAD_BYTES, 16 * _HASH_BYTES)

    def _event(
        self, kind: Literal["stored", "removed", "cleared", "beat"], hashes: list[int], tier: int
    ) -> bytes:
        return encode(
            Event(
                SCHEMA, self.epoch.bridge, self.epoch.engine, self.sequence, kind,
                hashes, tier, self.partial, self.note,
            )
        )  # fmt: skip

    def _remember(self, message: bytes) -> None:
        self._ring.append((self.sequence, message))
        self._ring_bytes += len(message)
        while len(self._ring) > self._keep or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft()[1])

    def _answer(
        self, kind: Literal["events", "snapshot", "busy"], sequence: int, piece: int, *, last: bool
    ) -> Answer:
        return Answer(
            SCHEMA, self.epoch.bridge, self.epoch.engine, kind, sequence, piece, last, self.partial, self.note
        )

    def _replay(self, first: int) -> Iterator[Answer]:
        messages = [message for number, message in self._ring if number >= first]
        room = self._room()
        groups: list[list[bytes]] = [[]]
        size = 0
        for message in messages:
            if groups[-1] and size + len(message) > room:
                groups.append([])
                size = 0
            groups[-1].append(message)
            size += len(message) + 5
        head = self._answer("events", self.sequence, 0, last=False)
        for number, events in enumerate(groups):
            yield _piece(head, number, last=number == len(groups) - 1, events=events)

    def _snapshot(self) -> Iterator[Answer]:
        """All that is held, as of now: what is read here is a copy, however long the sending takes."""
        head = self._answer("snapshot", self.sequence, 0, last=False)
        most = self._room() // _HASH_BYTES
        parts = [
            (tier, hashes[start : start + most])
            for tier in range(TIERS)
            for hashes in [self._announced.tier(tier)]
            for start in range(0, len(hashes), most)
        ]
        for number, (tier, hashes) in enumerate(parts):
            yield _piece(head, number, last=number == len(parts) - 1, blocks=[Blocks(tier, hashes)])
        if not parts:
            yield _piece(head, 0, last=True)


def _piece(
    head: Answer,
    number: int,
    *,
    last: bool,
    events: list[bytes] | None = None,
    blocks: list[Blocks] | None = None,
) -> Answer:
    return Answer(
        head.schema, head.bridge, head.engine, head.kind, head.sequence, number, last, head.partial, head.note,
        events or [], blocks or [],
    )  # fmt: skip
