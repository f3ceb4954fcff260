"""
One rank of a Dynamo worker: how far its numbered events are followed, and what it announces to us. Pure.

A number that is not above the last one is old news, the next one is applied, any other shows a gap: what
follows is kept (bounded) until a recovery closes it. Numbers that begin anew are a restarted worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from picker.events.bridge.blockset import BlockSet
from picker.events.bridge.changes import Change
from picker.events.bridge.engine_events import Cleared
from picker.events.bridge.publisher import Counts as PublisherCounts
from picker.events.bridge.publisher import RankPublisher
from picker.events.dynamo.wire import Answered, RouterEvent
from picker.events.records import Epoch

MAX_EARLY: Final = 1024
PIECE_BYTES: Final = 512 * 1024
BLOCK: Final = 1
"""Blocks come hashed: how many tokens are in one is not said, and not needed."""


@dataclass(slots=True)
class Counts:
    """What Dynamo's workers sent, and how it could be used."""

    messages: int = 0
    events: int = 0
    skipped: int = 0
    """Events that could not be read."""
    unknown_worker: int = 0
    """Events of instances that `PICKER_DYNAMO_WORKERS` does not name."""
    other_ranks: int = 0
    old: int = 0
    gaps: int = 0
    early_dropped: int = 0
    restarts: int = 0
    queries: int = 0
    unanswered: int = 0
    dumps: int = 0
    given_up: int = 0
    """Times that a rank's past stayed unknown: it is partial."""


class DynamoRank:
    """
    One rank.

    Args:
        worker: the picker's name of it.
        worker_id: Dynamo's name of the instance.
        number: its data-parallel rank.
        epoch: a fresh epoch, each call a later one.
        keep: how many of our events are kept for asking.

    """

    def __init__(
        self,
        worker: str,
        worker_id: int,
        number: int,
        *,
        epoch: Callable[[], Epoch],
        keep: int,
        counts: Counts,
        published: PublisherCounts,
    ) -> None:
        self.worker = worker
        self.worker_id = worker_id
        self.number = number
        self.last: int | None = None
        """Number of the last applied event; ``None``: the past is not known yet."""
        self.publisher = RankPublisher(keep=keep, piece_bytes=lambda: PIECE_BYTES, counts=published)
        self._epoch = epoch
        self._counts = counts
        self._early: dict[int, RouterEvent] = {}
        self._since: list[RouterEvent] | None = None
        self._blind = False
        """Nothing is known and nothing can be had: the next event is the first."""
        self._blocks = self._empty()
        self.publisher.begin(epoch(), self._blocks.announced)
        self.publisher.busy = True

    @property
    def waiting(self) -> bool:
        """Whether something is missing: the worker must be asked."""
        return self.last is None or bool(self._early)

    @property
    def partial(self) -> bool:
        """Whether the worker may hold more than is announced."""
        return self.publisher.partial

    @property
    def blocks(self) -> int:
        """How many blocks are announced."""
        return len(self._blocks.announced)

    def take(self, event: RouterEvent, now: float) -> list[bytes]:
        """One live event; what is announced because of it."""
        if self._blind:
            self._blind = False
            return self._apply(event, now)
        if self.last is None:
            self._keep(event)
            return []
        if event.number <= self.last:
            if event.number <= 1 < self.last:
                self._counts.restarts += 1
                self._forget()
                self._keep(event)
            else:
                self._counts.old += 1
            return []
        if event.number > self.last + 1:
            self._counts.gaps += not self._early
            self._keep(event)
            return []
        return self._apply(event, now) + self._drain(now)

    def ask(self) -> None:
        """A question goes out: what is applied until its answer must not be lost to it."""
        self._since = []

    def answered(self, answer: Answered, now: float) -> tuple[list[bytes], bool]:
        """
        The question is answered: what is announced because of it, and whether everything is known now.

        A dump replaces what is held; events that were applied since the question are applied on top.
        """
        since, self._since = self._since, None
        if answer.kind == "none":
            return [], self._is_level(answer)
        if answer.kind == "dump" or (self.last is None and _from_the_start(answer)):
            if since is None:
                return [], False
            self._early.update({event.number: event for event in since})
            return self._dump(answer, now), not self.waiting
        if self.last is None:
            return [], False
        messages: list[bytes] = []
        for event in answer.told.events:
            if event.number == self.last + 1:
                messages += self._apply(event, now)
        messages += self._drain(now)
        return messages, not self.waiting

    def give_up(self, now: float) -> list[bytes]:
        """The past cannot be had: begin from what was kept, and say that it is not all."""
        self._counts.given_up += 1
        messages = self._renew()
        for number in sorted(self._early):
            event = self._early.pop(number)
            if self.last is not None and number > self.last + 1 and self.blocks:
                messages += self._renew()  # another hole: what came before it may be gone meanwhile
            messages += self._apply(event, now)
        self._blind = self.last is None
        return messages

    def _is_level(self, answer: Answered) -> bool:
        """A worker asked for more than it has: it is level with us, or counts from a lower number, a new life."""
        if answer.why != "TooNew" or self.last is None or answer.last is None:
            return False
        if answer.last < self.last:
            self._counts.restarts += 1
            self._forget()
        return answer.last == self.last and not self.waiting

    def _dump(self, answer: Answered, now: float) -> list[bytes]:
        self._counts.dumps += answer.kind == "dump"
        self._blocks = self._empty()
        for event in answer.told.events:
            if event.event is not None:
                self._blocks.apply(event.event, now)
        if answer.last is not None:
            self.last = answer.last
        elif answer.kind == "events":
            self.last = max(event.number for event in answer.told.events)
        else:
            # Older workers do not say how far a dump goes: all since the question is applied on top of it.
            self.last = min(self._early) - 1 if self._early else 0
        partial = bool(answer.told.skipped) or self._blocks.parked > 0
        messages = self._announce_anew(partial=partial)
        return messages + self._drain(now)

    def _announce_anew(self, *, partial: bool) -> list[bytes]:
        blocks, self.publisher.busy, self.publisher.partial = self._blocks, False, partial
        messages = self.publisher.begin(self._epoch(), blocks.announced)
        return messages + self.publisher.adopt(blocks.announced)

    def _renew(self) -> list[bytes]:
        self._blocks = self._empty()
        return self._announce_anew(partial=True)

    def _forget(self) -> None:
        self.last = None
        self.publisher.busy = True
        self._early.clear()

    def _apply(self, event: RouterEvent, now: float) -> list[bytes]:
        self.last = event.number
        if self._since is not None:
            self._since.append(event)
            if len(self._since) > MAX_EARLY:
                self._since = None
        if event.event is None:
            return []
        changes: list[Change] = self._blocks.apply(event.event, now)
        if isinstance(event.event, Cleared):
            self.publisher.partial = False
        elif self._blocks.incomplete:
            self.publisher.partial = True
        return self.publisher.emit(changes)

    def _drain(self, now: float) -> list[bytes]:
        """The kept events that now follow without a gap; those that are passed are forgotten."""
        messages: list[bytes] = []
        while self.last is not None and (event := self._early.pop(self.last + 1, None)) is not None:
            messages += self._apply(event, now)
        for number in [each for each in self._early if self.last is not None and each <= self.last]:
            del self._early[number]
        return messages

    def _keep(self, event: RouterEvent) -> None:
        self._early[event.number] = event
        while len(self._early) > MAX_EARLY:
            del self._early[min(self._early)]
            self._counts.early_dropped += 1

    def _empty(self) -> BlockSet:
        # Publishers of Dynamo count copies themselves: they announce each block once.
        blocks = BlockSet(BLOCK, count_copies=False)
        blocks.engine_block_size = BLOCK
        return blocks


def _from_the_start(answer: Answered) -> bool:
    """Whether these events are all that there ever were."""
    return not answer.told.skipped and min((event.number for event in answer.told.events), default=2) <= 1
