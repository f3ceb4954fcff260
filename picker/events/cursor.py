"""
How far a replica has followed one worker's events: what to apply, what to keep for later, when to ask. No
I/O.

A number that is not above the last one is old news; the next one is applied; any other shows a gap, and
what arrives meanwhile is kept (bounded) until an answer of the bridge closes it. A ``cleared`` needs no
past: after it the state is known. Late events of an epoch that was left are dropped, so they cannot undo
what a newer one said.

Epochs are ordered by clocks. Where a clock was set back, the newer epoch looks older; so an unknown epoch
that looks older, and a beat of one that was left, are neither followed nor forgotten: the bridge is asked,
and what it answers to a question of now decides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from picker.events.records import SCHEMA, Answer, Ask, Epoch, Event

MAX_EARLY_EVENTS = 1024
MAX_EARLY_HASHES = 262_144
MAX_LEFT_EPOCHS = 8


@dataclass(slots=True)
class Counts:
    """What arrived otherwise than in order."""

    applied: int = 0
    old: int = 0
    """Numbers that were applied before: doubled messages, or an answer that overlaps the stream."""
    left_epoch: int = 0
    """Late events of an epoch that was left."""
    gaps: int = 0
    new_epochs: int = 0
    early_dropped: int = 0
    """Events that did not fit the buffer during a recovery; they are asked for again."""
    refused_answers: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one message means: empty the worker first or not, then apply these changes in their order."""

    clear: bool = False
    apply: tuple[Event, ...] = ()


NOTHING = Step()


class Cursor:
    """The position in one worker's stream. All methods are instant; none raises."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.epoch: Epoch | None = None
        self.sequence = 0
        self.partial = False
        self.note = ""
        self.lives = 0
        """Rises whenever what is held becomes void; work begun under another number must stop."""
        self._based = False
        self._unsure = False
        self._seen = 0
        self._early: dict[int, Event] = {}
        self._early_hashes = 0
        self._left: deque[Epoch] = deque(maxlen=MAX_LEFT_EPOCHS)
        self._doubted: Epoch | None = None

    @property
    def current(self) -> bool:
        """Whether everything known of is applied; otherwise the bridge must be asked."""
        return self._based and not self._unsure and self._doubted is None and self.sequence >= self._seen

    def doubt(self) -> None:
        """
        Events may have been missed without a trace (the connection was away): ask before trusting the
        position.
        """
        self._unsure = True

    def take(self, event: Event) -> Step:
        """Judge one event of the live stream, or of an answer."""
        if event.epoch != self.epoch:
            if event.epoch in self._left:
                self.counts.left_epoch += 1
                if event.kind == "beat":
                    self._doubted = event.epoch
                return NOTHING
            if self.epoch is not None and event.epoch < self.epoch:
                self._doubted = event.epoch
                return NOTHING
            self._adopt(event.epoch)
            return Step(clear=True, apply=self._in_epoch(event).apply)
        return self._in_epoch(event)

    def ask(self) -> Ask:
        """The question that closes the gap."""
        if self.epoch is None or not self._based:
            bridge, engine = self.epoch or (0, 0)
            return Ask(SCHEMA, bridge, engine, 0)
        return Ask(SCHEMA, self.epoch.bridge, self.epoch.engine, self.sequence + 1)

    def accept(self, answer: Answer, asked: Epoch | None) -> bool:
        """
        Whether this answer may be used now: not if it is from before what is held.

        ``asked`` is the epoch that was known when the question was put. Where that is still the one, the
        answer is newer than all that was heard before, and whatever epoch it names is the living one.
        """
        epoch = answer.epoch
        newer = self.epoch is None or (epoch > self.epoch and epoch not in self._left)
        if epoch != self.epoch and not newer and self.epoch != asked:
            self.counts.refused_answers += 1
            return False
        same = epoch == self.epoch
        if answer.kind == "events" and not (same and self._based):
            self.counts.refused_answers += 1
            return False
        if same and self._based and answer.sequence < self.sequence:
            # The stream closed the gap while the answer was on its way.
            self.counts.refused_answers += answer.kind == "snapshot"
            return answer.kind == "events"
        return True

    def begin_snapshot(self, epoch: Epoch) -> int:
        """
        Empty the worker for a snapshot; events are kept until ``end_snapshot``. The life's number to give
        there.
        """
        if epoch != self.epoch:
            self._adopt(epoch)
        self._void()
        return self.lives

    def end_snapshot(self, answer: Answer, life: int) -> Step:
        """
        The snapshot stands in the index: what was kept meanwhile follows. Nothing when the life is over.
        """
        if life != self.lives:
            return NOTHING
        self._based = True
        self.sequence = answer.sequence
        return self.settle(answer)

    def settle(self, answer: Answer) -> Step:
        """The answer is applied whole: forget doubts it has answered, go on with what was kept."""
        if answer.epoch != self.epoch:
            return NOTHING
        self._unsure = False
        if self._doubted is not None:
            self._leave(self._doubted)
            self._doubted = None
        self.partial, self.note = answer.partial, answer.note
        follow = self._drain()
        # A number seen but not kept is asked for again only while it is ahead of what the bridge itself just said.
        self._seen = max([self.sequence, answer.sequence, *self._early])
        return Step(apply=follow)

    def _in_epoch(self, event: Event) -> Step:
        if event.kind == "beat":
            return self._beat(event)
        if event.sequence <= self.sequence and self._based:
            self.counts.old += 1
            return NOTHING
        self.partial, self.note = event.partial, event.note
        if event.kind == "cleared":
            self._void()
            self._based = True
            self.sequence = event.sequence
            self.counts.applied += 1
            return Step(clear=True, apply=self._drain())
        before = self._seen
        self._seen = max(self._seen, event.sequence)
        if self._based and event.sequence == self.sequence + 1:
            self.sequence = event.sequence
            self.counts.applied += 1
            return Step(apply=(event, *self._drain()))
        if self._based and before <= self.sequence:
            self.counts.gaps += 1
        self._keep(event)
        return NOTHING

    def _beat(self, event: Event) -> Step:
        if event.sequence >= self.sequence:
            self.partial, self.note = event.partial, event.note
        if self._based and event.sequence > self._seen and self._seen <= self.sequence < event.sequence:
            self.counts.gaps += 1
        self._seen = max(self._seen, event.sequence)
        return NOTHING

    def _adopt(self, epoch: Epoch) -> None:
        if self.epoch is not None:
            self._leave(self.epoch)
            self.counts.new_epochs += 1
        if self._doubted == epoch:
            self._doubted = None
        if epoch in self._left:
            self._left.remove(epoch)
        self.epoch = epoch
        self._early.clear()
        self._early_hashes = 0
        self._seen = 0
        self._unsure = False
        self._void()

    def _leave(self, epoch: Epoch) -> None:
        if epoch not in self._left:
            self._left.append(epoch)

    def _void(self) -> None:
        self._based = False
        self.sequence = 0
        self.lives += 1

    def _keep(self, event: Event) -> None:
        if event.sequence in self._early:
            self.counts.old += 1
            return
        self._early[event.sequence] = event
        self._early_hashes += len(event.hashes)
        while len(self._early) > MAX_EARLY_EVENTS or self._early_hashes > MAX_EARLY_HASHES:
            self._early_hashes -= len(self._early.pop(min(self._early)).hashes)
            self.counts.early_dropped += 1

    def _drain(self) -> tuple[Event, ...]:
        """The kept events that now follow without a gap; those that are passed are forgotten."""
        follow: list[Event] = []
        while (event := self._early.pop(self.sequence + 1, None)) is not None:
            self.sequence += 1
            self._early_hashes -= len(event.hashes)
            follow.append(event)
        self.counts.applied += len(follow)
        for passed in [number for number in self._early if number <= self.sequence]:
            self._early_hashes -= len(self._early.pop(passed).hashes)
        return tuple(follow)
