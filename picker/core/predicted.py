"""
Prefixes a worker is about to hold: those of the requests just sent there, before its own events say so.

Two requests with one new prefix that come within the time of a prefill would go to two workers, for the index knows of
neither yet. So for a short life it is *believed* that a worker holds all blocks of a prompt that was sent to it: also
those that it held already by the index. Should it let go of these before the request's turn comes, it computes them
anew for this very request; and an engine lets go of what was used last only at the end.

The blocks that the worker did not hold are *predicted*. Its events confirm a prediction; one that is not confirmed in
time was wrong. The share that was right is kept per model: where it is low, our hashes are not the engine's (other
tokens, template, block size or adapter), and prefix routing does not work.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

from picker.core.believed import Believed, Seats
from picker.core.match import Runs

LIFE_SECONDS: Final = 5.0
VERDICT_SECONDS: Final = 60.0
MAX_BLOCKS: Final = 1_000_000
MAX_PER_PICK: Final = 8_192
MAX_MODELS: Final = 64
OTHER: Final = "other"
ENOUGH: Final = 64
"""Fewer judged blocks say nothing about a model."""
AT_ONCE: Final = 16_384
"""Most blocks that are judged in one call, which takes a millisecond or two; a burst of them waits for the next."""
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
    """Given up unjudged: the worker left, or there were too many."""
    forgotten: int = 0
    """Of prompts no longer believed before their time: there were too many."""


@dataclass(slots=True, eq=False)
class _Pick:
    """The blocks that one pick predicts; told apart by identity, for a block may be predicted again later."""

    blocks: _Blocks
    """All that is predicted of the worker."""
    model: str
    verdict: float
    """Judged from then on."""
    keys: Sequence[int]
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


_Blocks = dict[int, _Pick]
"""Sequence hash -> which pick predicts it."""


class Predicted:
    """
    The predictions of one replica.

    Args:
        life: seconds for which a prediction is believed; 0: never.
        verdict: seconds after which an unconfirmed one counts as wrong; a queue may be long, so this is more.
        max_blocks: most predictions remembered at one time, over all workers, and most blocks of prompts believed; the
            oldest picks are given up.

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
        self._believed = Believed(most=max_blocks)
        self._verdict = max(verdict, life)
        self._max_blocks = max_blocks
        self._workers: dict[str, _Blocks] = {}
        self._picks: deque[_Pick] = deque()
        self._size = 0
        self._models: dict[str, _Model] = {}
        self._turns: list[Turn] = []

    def __len__(self) -> int:
        """Predictions remembered."""
        return self._size

    def beside(self, seats: Seats) -> None:
        """What is believed is told in these bits from now on; of a worker without one nothing is."""
        self._believed.beside(seats)

    def note(self, worker: str, hashes: Sequence[int], now: float, *, held: int = 0, model: str = "") -> None:
        """
        A request with this prompt was sent to the worker, which holds the first ``held`` blocks of it already.

        ``hashes`` are the sequence hashes of its full blocks, and must not change; of very long prompts the first
        `MAX_PER_PICK` behind those held count. A prompt that is held already says nothing new.
        """
        if self._life <= 0 or held >= len(hashes):
            return
        most = held + MAX_PER_PICK
        if len(hashes) > most:
            hashes = hashes[:most]
        self.counts.forgotten += self._believed.note(worker, hashes, now + self._life)
        wanted = hashes[held:] if held else hashes
        blocks = self._workers.setdefault(worker, {})
        fresh = wanted if blocks.keys().isdisjoint(wanted) else [key for key in wanted if key not in blocks]
        if not fresh:
            return
        pick = _Pick(blocks, self._model_name(model), now + self._verdict, fresh, len(fresh))
        blocks.update(zip(fresh, repeat(pick)))
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
        found = [pick for pick in map(blocks.pop, hashes, repeat(None)) if pick is not None]
        for pick, right in Counter(found).items():
            pick.left -= right
            if not pick.left:
                self._size -= len(pick.keys)
                pick.keys = ()
            self._judge(pick.model, confirmed=right)
        self.counts.confirmed += len(found)
        return len(found)

    def left(self, worker: str) -> None:
        """The worker left: nothing is expected of it any more, and nothing held against its model."""
        blocks = self._workers.pop(worker, None)
        if blocks:
            self.counts.dropped += len(blocks)
            blocks.clear()
        self._believed.left(worker)

    def expire(self, now: float) -> None:
        """Judge what was not confirmed in time, about `AT_ONCE` blocks of it. Call it a few times a second."""
        self._believed.settle(now)
        picks, room = self._picks, AT_ONCE
        while picks and room > 0 and (not picks[0].left or picks[0].verdict <= now):
            pick = picks.popleft()
            room -= 1 + len(pick.keys)
            missed = self._end(pick)
            self.counts.unconfirmed += missed
            if missed:
                self._judge(pick.model, missed=missed)

    def runs(self, hashes: Sequence[int], now: float) -> Runs:
        """How many leading blocks of a prompt which workers are believed to hold soon, by the index's bits."""
        return self._believed.runs(hashes, now)

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
        blocks, keys = pick.blocks, pick.keys
        mine = [key for key in keys if blocks.get(key) is pick] if pick.left < len(keys) else keys
        missed = len(mine) if blocks else 0
        if missed:
            for key in mine:
                blocks.pop(key, None)
        self._size -= len(keys)
        return missed
