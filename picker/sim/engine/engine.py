"""One running engine: the loop that steps the scheduler in real time, and the answers it makes up."""

from __future__ import annotations

import asyncio
import hashlib
import time
from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass

from picker.sim.engine.blocks import BlockPool
from picker.sim.engine.dialects import DIALECTS, Encoder
from picker.sim.engine.options import Options
from picker.sim.engine.publisher import Publisher, Wires
from picker.sim.engine.scheduler import Scheduler, Sequence
from picker.sim.engine.tokens import Tokenizer

NATURAL_LENGTHS = range(24, 161)
"""How long an answer is that is not cut by a limit, in tokens."""


class QueueFullError(Exception):
    """The waiting queue is at its bound."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an answer may and must be. None as `most`: until the model's own end."""

    most: int | None = None
    least: int = 0
    ignore_end: bool = False


@dataclass(slots=True)
class Counts:
    """What clients did to the engine."""

    refused: int = 0
    left: int = 0
    """Sequences whose client was gone before their end."""


class Speech:
    """Answers made of plain words, always the same for the same prompt, so that they too are found in the cache."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._words = tokenizer.words() or list(range(min(64, len(tokenizer))))

    def answer(
        self, prompt: list[int], limits: Limits, *, room: int, sample: int = 0
    ) -> tuple[list[int], str]:
        """The tokens of an answer and why it ends (`stop` or `length`). `room` is what the context leaves."""
        seed = hashlib.blake2b(
            array("I", prompt).tobytes(), digest_size=8, key=sample.to_bytes(4, "big")
        ).digest()
        state = int.from_bytes(seed, "big")
        natural = max(limits.least, NATURAL_LENGTHS[state % len(NATURAL_LENGTHS)])
        most = min(room, limits.most if limits.most is not None else room)
        length = most if limits.ignore_end and limits.most is not None else min(natural, most)
        tokens: list[int] = []
        for _ in range(max(1, length)):
            state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
            tokens.append(self._words[(state >> 33) % len(self._words)])
        return tokens, "stop" if natural <= most and not limits.ignore_end else "length"


class Engine:
    """The engine behind the API. `run()` is its life; everything else is called from the same event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.born = time.monotonic()
        self.tokenizer = Tokenizer(options.model_dir)
        self.speech = Speech(self.tokenizer)
        self.pool = BlockPool(options.blocks, options.block_size)
        self.scheduler = Scheduler(self.pool, options.pace)
        self.sleep_level = 0
        self.counts = Counts()
        self._encoder = Encoder(
            DIALECTS[options.dialect],
            block_size=options.block_size,
            rank=options.rank,
            loras=options.loras,
            raw_hashes=options.kv_raw_hashes,
        )
        self.publisher = self._open_publisher() if options.kv_events else None
        self._work = asyncio.Event()
        self._spoke: dict[Sequence, asyncio.Event] = {}

    def _open_publisher(self) -> Publisher:
        options = self.options
        wires = Wires(
            live=options.kv_events,
            replay=options.kv_replay,
            topic=options.kv_topic,
            keep_batches=options.kv_keep_batches,
            replay_high_water=2 * (options.kv_keep_batches + 1),
            replay_topic=DIALECTS[options.dialect].replay_topic,
            replay_end=options.kv_replay_end,
        )
        return Publisher(wires)

    async def run(self) -> None:
        """Step while there is work; sleep while there is none. Ends when cancelled."""
        replays = (
            asyncio.create_task(self.publisher.serve_replays(), name="replays") if self.publisher else None
        )
        try:
            due = time.monotonic()
            while True:
                step = None if self.sleep_level else self.scheduler.plan(time.monotonic())
                if step is None:
                    await self._publish()
                    self._work.clear()
                    await self._work.wait()
                    due = time.monotonic()
                    continue
                due = max(due, time.monotonic() - 0.05) + step.seconds / self.options.time_scale
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                for sequence in self.scheduler.complete(step, time.monotonic()):
                    self._wake(sequence)
                await self._publish()
        finally:
            if replays:
                replays.cancel()
            if self.publisher:
                self.publisher.close()

    async def _publish(self) -> None:
        events = self.pool.take_events()
        if events and self.publisher:
            await self.publisher.publish(self._encoder.batch(events, time.time()))

    def _wake(self, sequence: Sequence) -> None:
        event = self._spoke.get(sequence)
        if event:
            event.set()

    def room_for(self, count: int) -> None:
        """Raise QueueFullError unless the queue takes so many more sequences."""
        waiting = len(self.scheduler.waiting)
        if waiting + count > self.options.max_waiting:
            self.counts.refused += 1
            raise QueueFullError(
                f"the queue takes {self.options.max_waiting} sequences; {waiting} wait already"
            )

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; the caller has asked for room."""
        self.scheduler.add(sequence, time.monotonic())
        self._spoke[sequence] = asyncio.Event()
        self._work.set()

    async def pieces(self, sequence: Sequence) -> AsyncIterator[list[int]]:
        """The answer's tokens as they come; ends with the answer, or early when the sequence is aborted."""
        said = 0
        event = self._spoke[sequence]
        while sequence.state in ("waiting", "running") or said < sequence.produced:
            if said < sequence.produced:
                fresh = sequence.answer[said : sequence.produced]
                said = sequence.produced
                yield fresh
                continue
            event.clear()
            await event.wait()
        self._spoke.pop(sequence, None)

    def leave(self, sequence: Sequence) -> None:
        """The client of this sequence is gone: abort it, now or after the delay, or let it run to its end."""
        self._spoke.pop(sequence, None)
        if sequence.state not in ("waiting", "running"):
            return
        self.counts.left += 1
        if not self.options.abort_on_disconnect:
            return
        if self.options.abort_delay:
            asyncio.get_running_loop().call_later(self.options.abort_delay, self.abort, sequence)
        else:
            self.abort(sequence)

    def abort(self, sequence: Sequence) -> None:
        """End a sequence now."""
        self.scheduler.abort(sequence, time.monotonic())
        self._wake(sequence)
        self._work.set()

    def clear_cache(self) -> bool:
        """Drop the prefix cache; False while requests hold blocks."""
        cleared = self.pool.clear()
        if cleared and not self.options.clear_waits:
            self._work.set()
        return cleared

    def sleep(self, level: int) -> bool:
        """Go to sleep at level 1 or 2, which drops the cache; False while requests run."""
        if self.scheduler.running or not self.pool.clear():
            return False
        self.sleep_level = level
        return True

    def wake_up(self) -> None:
        """Serve again."""
        self.sleep_level = 0
        self._work.set()
