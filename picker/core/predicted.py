"""
Prefixes a worker is about to hold: those of the requests just sent there, before its own events say so.

Two requests with one new prefix that come within the time of a prefill would go to two workers, for the index knows of
neither yet. So the blocks of a pick that the worker does not hold are *predicted* for a short life, beside the index:
`extend` lengthens what the index says by what is predicted right behind it, never more. The worker's events confirm a
prediction; one that is not confirmed in time was wrong. The share that was right is kept per model: where it is low,
our hashes are not the engine's (other tokens, template, block size or adapter), and prefix routing does not work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from picker.core.match import NO_OVERLAP, Overlap

LIFE_SECONDS: Final = 5.0
VERDICT_SECONDS: Final = 60.0
MAX_BLOCKS: Final = 1_000_000
MAX_PER_PICK: Final = 8_192
MAX_MODELS: Final = 64
OTHER: Final = "other"
ENOUGH: Final = 64
"""Fewer judged blocks say nothing about a model."""
WINDOW: Final = 4_096
"""Judged blocks after which the older half weighs half as much."""
LOW, GOOD = 0.5, 0.6
"""The alarm goes on below the one and off above the other."""


class Turn(NamedTuple):
    """A model's predictions have begun to fail, or to hold again."""

    model: str
    ratio: float
    low: bool


@dataclass(slots=True)
class Counts:
    """What became of predictions, in blocks."""

    predicted: int = 0
    confirmed: int = 0
    unconfirmed: int = 0
    """No event came in time."""
    dropped: int = 0
    """Given up unjudged: the worker left or was cleared, or there were too many."""


@dataclass(slots=True, eq=False)
class _Pick:
    """The blocks that one pick predicts; told apart by identity, for a block may be predicted again later."""

    worker: str
    model: str
    verdict: float
    """Judged from then on."""
    keys: list[int]
    left: int
    """Blocks not confirmed yet; at 0 nothing is kept."""


@dataclass(slots=True)
class _Model:
    confirmed: float = 0.0
    missed: float = 0.0
    low: bool = False

    @property
    def judged(self) -> float:
        return self.confirmed + self.missed

    @property
    def ratio(self) -> float:
        return self.confirmed / self.judged if self.judged else 1.0

    def judge(self, confirmed: int, missed: int) -> None:
        self.confirmed += confirmed
        self.missed += missed
        while self.judged > WINDOW:
            self.confirmed /= 2
            self.missed /= 2


_Blocks = dict[int, tuple[float, _Pick]]
"""Sequence hash -> until when it is believed, and which pick predicts it."""


class Predicted:
    """
    The predictions of one replica.

    Args:
        life: seconds for which a prediction is believed; 0: never.
        verdict: seconds after which an unconfirmed one counts as wrong; a queue may be long, so this is more.
        max_blocks: most predictions remembered at one time, over all workers; the oldest picks are given up.

    """

    def __init__(
        self,
        *,
        life: float = LIFE_SECONDS,
        verdict: float = VERDICT_SECONDS,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self.counts = Counts()
        self._life = life
        self._verdict = max(verdict, life)
        self._max_blocks = max_blocks
        self._workers: dict[str, _Blocks] = {}
        self._begins: dict[int, dict[str, None]] = {}
        """First block of a prompt -> the workers of which it is predicted."""
        self._picks: deque[_Pick] = deque()
        self._size = 0
        self._models: dict[str, _Model] = {}
        self._turns: list[Turn] = []

    def __len__(self) -> int:
        """Predictions remembered."""
        return self._size

    def note(self, worker: str, hashes: Sequence[int], now: float, *, held: int = 0, model: str = "") -> None:
        """
        A request with this prompt was sent to the worker, which holds the first ``held`` blocks of it already.

        ``hashes`` are the sequence hashes of its full blocks; of very long prompts the first `MAX_PER_PICK` count.
        """
        wanted = hashes[held : held + MAX_PER_PICK]
        if self._life <= 0 or not wanted:
            return
        blocks = self._workers.setdefault(worker, {})
        if not held:
            self._begins.setdefault(hashes[0], {})[worker] = None
        until, fresh = now + self._life, []
        for key in wanted:
            known = blocks.get(key)
            if known is None:
                fresh.append(key)
            else:
                blocks[key] = (until, known[1])
        if not fresh:
            return
        pick = _Pick(worker, self._model_name(model), now + self._verdict, fresh, len(fresh))
        blocks.update(dict.fromkeys(fresh, (until, pick)))
        self._picks.append(pick)
        self._size += len(fresh)
        self.counts.predicted += len(fresh)
        while self._size > self._max_blocks:
            self.counts.dropped += self._end(self._picks.popleft())

    def confirmed(self, worker: str, hashes: Sequence[int]) -> int:
        """The worker announced these blocks; how many of them were predicted. The index has them from now on."""
        blocks = self._workers.get(worker)
        if not blocks:
            return 0
        right = 0
        for key in hashes:
            known = blocks.pop(key, None)
            if known is None:
                continue
            right += 1
            if key in self._begins:
                self._begins_no_more(worker, key)
            pick = known[1]
            pick.left -= 1
            if not pick.left:
                self._size -= len(pick.keys)
                pick.keys = []
            self._judge(pick.model, confirmed=1)
        self.counts.confirmed += right
        return right

    def left(self, worker: str) -> None:
        """The worker left: nothing is expected of it any more, and nothing held against its model."""
        self.counts.dropped += len(self._workers.pop(worker, ()))

    def expire(self, now: float) -> None:
        """Judge what was not confirmed in time. Call it a few times a second."""
        while self._picks and (not self._picks[0].left or self._picks[0].verdict <= now):
            pick = self._picks.popleft()
            missed = self._end(pick)
            self.counts.unconfirmed += missed
            if missed:
                self._judge(pick.model, missed=missed)

    def match(self, worker: str, hashes: Sequence[int], held: int, now: float) -> int:
        """
        How many leading blocks the worker holds or is about to hold: ``held`` by the index, then the predicted
        ones right behind them.
        """
        blocks = self._workers.get(worker)
        if not blocks:
            return held
        for place in range(held, len(hashes)):
            known = blocks.get(hashes[place])
            if known is None or known[0] <= now:
                return place
        return max(held, len(hashes))

    def extend(self, worker: str, hashes: Sequence[int], overlap: Overlap, now: float) -> Overlap:
        """The same as an overlap: what is predicted will lie on the device."""
        more = self.match(worker, hashes, overlap.total, now) - overlap.total
        return Overlap(overlap.device + more, overlap.host, overlap.disk) if more else overlap

    def extended(
        self, hashes: Sequence[int], held: Mapping[str, Overlap], now: float
    ) -> Mapping[str, Overlap]:
        """`extend` for every worker at once: ``held`` names those that hold something, and so does the answer."""
        if not hashes or not self._size:
            return held
        # a sequence hash stands for its place too: what begins this prompt is in no other place of another
        expecting = self._begins.get(hashes[0], ())
        if not expecting and not held:
            return held
        found = dict(held)
        for worker in {*expecting, *held}:
            before = held.get(worker, NO_OVERLAP)
            after = self.extend(worker, hashes, before, now)
            if after is not before:
                found[worker] = after
        return found

    def ratios(self) -> Mapping[str, float]:
        """Per model, the share of the lately judged predictions that was right; models with enough of them only."""
        return {name: model.ratio for name, model in self._models.items() if model.judged >= ENOUGH}

    def failing(self) -> list[str]:
        """The models whose alarm is on."""
        return [name for name, model in self._models.items() if model.low]

    def turns(self) -> list[Turn]:
        """Alarms that went on or off since the last call."""
        turns, self._turns = self._turns, []
        return turns

    def _model_name(self, model: str) -> str:
        if model not in self._models:
            if len(self._models) >= MAX_MODELS:
                model = OTHER
            self._models.setdefault(model, _Model())
        return model

    def _judge(self, name: str, *, confirmed: int = 0, missed: int = 0) -> None:
        model = self._models[name]
        model.judge(confirmed, missed)
        if model.judged < ENOUGH:
            return
        low = model.ratio < (GOOD if model.low else LOW)
        if low != model.low:
            model.low = low
            self._turns.append(Turn(name, model.ratio, low))

    def _end(self, pick: _Pick) -> int:
        """Take out what the pick still predicts; how many blocks that were."""
        blocks = self._workers.get(pick.worker, {})
        missed = 0
        for key in pick.keys:
            known = blocks.get(key)
            if known is not None and known[1] is pick:
                del blocks[key]
                missed += 1
        if pick.keys and pick.keys[0] not in blocks:
            self._begins_no_more(pick.worker, pick.keys[0])
        self._size -= len(pick.keys)
        return missed

    def _begins_no_more(self, worker: str, key: int) -> None:
        workers = self._begins.get(key, {})
        workers.pop(worker, None)
        if not workers:
            self._begins.pop(key, None)
