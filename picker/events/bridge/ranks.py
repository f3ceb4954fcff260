"""All ranks of one engine: each with what it holds and what it announces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from picker.core.worker import worker_name
from picker.events.bridge.blockset import BlockSet
from picker.events.bridge.changes import Change
from picker.events.bridge.dialect import decode_batch
from picker.events.bridge.engine_events import BadBatch, Cleared
from picker.events.bridge.publisher import Counts as PublisherCounts
from picker.events.bridge.publisher import RankPublisher
from picker.events.records import MAX_NOTE, Epoch
from picker.events.subjects import Subjects

MAX_RANKS: Final = 64

LOSSES: Final = frozenset({"shape", "hash", "tokens", "block_size", "extra_keys", "group", "medium"})
"""Reasons of skipped events after which what is told may differ from what the engine holds."""

Past: TypeAlias = Literal["all", "end", "part"]
"""What a rebuilding has seen of the engine's past: all of it, all since some moment, or less."""


@dataclass(slots=True)
class Counts:
    """What came in batches."""

    batches: int = 0
    events: int = 0
    bad_batches: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Events that were skipped, by reason: a fixed set of words."""
    other_ranks: int = 0
    """Batches of more ranks than one engine may have."""
    sleeps: int = 0
    """Times that a rank fell asleep."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    subject: str
    data: bytes


class Rank:
    """One rank: what it holds, and how it is told."""

    def __init__(self, worker: str, blocks: BlockSet, publisher: RankPublisher) -> None:
        self.worker = worker
        self.blocks = blocks
        self.publisher = publisher
        self.asleep = False
        """The engine says that it sleeps: its device holds nothing, whatever its events say."""

    def mark(self) -> None:
        """Let what is said next tell the truth about what is not known."""
        self.publisher.note = self.blocks.refusal[:MAX_NOTE]
        self.publisher.partial = self.publisher.partial or self.blocks.incomplete


class Ranks:
    """
    The ranks of one engine through its lives.

    Args:
        address: ``host:port`` of the engine, the worker's name without its rank.
        first: the rank that events belong to that name none.
        count_copies: whether each store of a block is a copy of its own; see `BlockSet`.

    """

    def __init__(
        self,
        address: str,
        *,
        pool: str,
        first: int,
        block_size: int,
        count_copies: bool = True,
        keep: int,
        piece_bytes: Callable[[], int],
    ) -> None:
        self.counts = Counts()
        self.publisher_counts = PublisherCounts()
        self.epoch = Epoch(0, 0)
        self.by_rank: dict[int, Rank] = {}
        self.subjects = Subjects(pool)
        self._address = address
        self._first = first
        self._block_size = block_size
        self._count_copies = count_copies
        self._keep = keep
        self._piece_bytes = piece_bytes
        self._aside = False
        self._partial = True
        self._rank(first)

    def begin(self, epoch: Epoch, *, aside: bool) -> list[Outgoing]:
        """
        A new life of the engine: every rank is empty.

        ``aside``: it is about to be rebuilt; nothing is told, and no question answered, before ``end_aside``.
        """
        self.epoch, self._aside, self._partial = epoch, aside, True
        outgoing: list[Outgoing] = []
        for rank in self.by_rank.values():
            outgoing += self._begin(rank)
        return outgoing

    def forget(self) -> None:
        """While rebuilding aside: batches were lost for good, so what came before them is worth nothing."""
        for rank in self.by_rank.values():
            rank.blocks = self._empty()
            rank.publisher.partial = True

    def end_aside(self, past: Past) -> list[Outgoing]:
        """
        The rebuilding is over: tell all that is held. A rank that was cleared since some moment is known
        from there.
        """
        self._aside, self._partial = False, past != "all"
        outgoing: list[Outgoing] = []
        for rank in self.by_rank.values():
            rank.publisher.busy = False
            rank.publisher.partial = past == "part" or (past == "end" and rank.publisher.partial)
            rank.mark()
            outgoing += self._out(rank, rank.publisher.adopt(rank.blocks.announced))
        return outgoing

    def complete(self) -> None:
        """The stream was seen from its beginning: nothing is missing."""
        self._partial = False
        for rank in self.by_rank.values():
            rank.publisher.partial = False

    def apply(self, payload: bytes, now: float) -> list[Outgoing]:
        """One batch of the engine; what is to be sent, numbered already."""
        self.counts.batches += 1
        batch = decode_batch(payload)
        if isinstance(batch, BadBatch):
            self.counts.bad_batches += 1
            self._unsure()
            return []
        rank = self._rank(self._first if batch.rank is None else batch.rank)
        if rank is None:
            self.counts.other_ranks += 1
            return []
        for reason in batch.skipped:
            self.counts.skipped[reason] = self.counts.skipped.get(reason, 0) + 1
        changes: list[Change] = []
        if not LOSSES.isdisjoint(batch.skipped):
            rank.publisher.partial = True
        for event in batch.events:
            self.counts.events += 1
            changes += rank.blocks.apply(event, now)
            if isinstance(event, Cleared):
                rank.publisher.partial = False
        if rank.asleep:
            changes += rank.blocks.empty_device()
        rank.mark()
        return [] if self._aside else self._out(rank, rank.publisher.emit(changes))

    def sleep(self, states: Mapping[int | None, bool]) -> list[Outgoing]:
        """
        What the engine's metrics say: rank -> whether it sleeps; the rank ``None`` is all of them.

        A rank that sleeps holds nothing on its device from now on, with or without an event that says so.
        """
        outgoing: list[Outgoing] = []
        everywhere = states.get(None)
        if everywhere is None and len(states) == len(self.by_rank) == 1:
            everywhere = next(iter(states.values()))  # one engine's page: its number there is its own affair
        for number, rank in self.by_rank.items():
            asleep = states.get(number, rank.asleep) if everywhere is None else everywhere
            self.counts.sleeps += asleep and not rank.asleep
            rank.asleep = asleep
            changes = rank.blocks.empty_device() if asleep else []
            if not self._aside:
                outgoing += self._out(rank, rank.publisher.emit(changes))
        return outgoing

    def expire(self, now: float) -> None:
        """Give up blocks that waited too long for their parent."""
        for rank in self.by_rank.values():
            rank.blocks.expire(now)
            rank.mark()

    def beats(self) -> list[Outgoing]:
        """One beat of each rank."""
        return [item for rank in self.by_rank.values() for item in self._out(rank, [rank.publisher.beat()])]

    def _rank(self, number: int) -> Rank | None:
        rank = self.by_rank.get(number)
        if rank is None and len(self.by_rank) < MAX_RANKS:
            publisher = RankPublisher(
                keep=self._keep, piece_bytes=self._piece_bytes, counts=self.publisher_counts
            )
            rank = Rank(worker_name(self._address, number), self._empty(), publisher)
            self.by_rank[number] = rank
            # Its number 1, which clears, need not be sent: what follows shows that it is missing.
            self._begin(rank)
        return rank

    def _empty(self) -> BlockSet:
        return BlockSet(self._block_size, count_copies=self._count_copies)

    def _begin(self, rank: Rank) -> list[Outgoing]:
        rank.blocks = self._empty()
        rank.publisher.partial, rank.publisher.note, rank.publisher.busy = self._partial, "", self._aside
        return self._out(rank, rank.publisher.begin(self.epoch, rank.blocks.announced))

    def _out(self, rank: Rank, messages: list[bytes]) -> list[Outgoing]:
        subject = self.subjects.events(rank.worker)
        return [Outgoing(subject, message) for message in messages]

    def _unsure(self) -> None:
        for rank in self.by_rank.values():
            rank.publisher.partial = True
