"""
Continuous batching over the paged cache: which tokens are computed in which step. Pure: `now` is an argument.

A step serves running sequences first (one token each, or a piece of an unfinished prompt), then admits waiting ones in
order of arrival while sequences, tokens and blocks allow. A sequence is admitted only if the blocks of its whole life
fit, so that none is ever thrown out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from picker.sim.engine.blocks import Block, BlockPool


@dataclass(frozen=True, slots=True)
class Pace:
    """How much fits into a step and how long it takes."""

    max_sequences: int = 64
    max_batched_tokens: int = 2048
    prefill_seconds_per_token: float = 0.0002
    decode_seconds: float = 0.010
    crowding: float = 0.01
    """Each further decoding sequence makes a step longer by this share."""

    def seconds(self, prefill_tokens: int, decoding: int) -> float:
        """Length of a step that computes so many prompt tokens and so many decoding sequences."""
        decode = self.decode_seconds * (1 + self.crowding * max(0, decoding - 1))
        return decode + prefill_tokens * self.prefill_seconds_per_token


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the answer that it will get, with how far it has come."""

    name: str
    prompt: list[int]
    answer: list[int]
    """The whole answer, known from the start; `produced` of it has been said."""
    ends_by: str
    lora: str = ""
    salt: str = ""
    booking: str = ""
    arrived: float = 0.0
    admitted: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0
    state: str = "waiting"
    """waiting, running, finished or aborted."""
    produced: int = 0
    computed: int = 0
    cached: int = 0
    blocks: list[Block] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens known so far."""
        return len(self.prompt) + self.produced

    @property
    def prefill_left(self) -> int:
        """Prompt tokens not computed yet."""
        return max(0, len(self.prompt) - self.computed)

    def tokens(self, begin: int, end: int) -> list[int]:
        """Tokens of positions `begin` to `end`, prompt and answer in one row."""
        size = len(self.prompt)
        return self.prompt[begin:end] + self.answer[max(0, begin - size) : max(0, end - size)]


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: how many tokens of which sequence, and how long it takes."""

    work: tuple[tuple[Sequence, int], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Life:
    """One sequence that has ended; times are on this machine's monotonic clock."""

    number: int
    """Counts the ends of this engine, from 1."""
    name: str
    booking: str
    arrived: float
    ended: float
    state: str
    """finished or aborted."""


LIVES_KEPT = 20_000


@dataclass(slots=True)
class Counts:
    """What the scheduler has done since it started."""

    steps: int = 0
    finished: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    time_to_first_token_seconds: float = 0.0
    first_tokens: int = 0
    queue_seconds: float = 0.0


class Scheduler:
    """The engine's queue and batch."""

    def __init__(self, pool: BlockPool, pace: Pace) -> None:
        self.pool = pool
        self.pace = pace
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.counts = Counts()
        self.lives: deque[Life] = deque(maxlen=LIVES_KEPT)
        """The last sequences that ended, in the order of their ends."""
        self._promised = 0

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of that many tokens could ever be admitted."""
        return self._blocks_for(tokens) <= self.pool.total

    def add(self, sequence: Sequence, now: float) -> None:
        """A new sequence arrives at the end of the queue."""
        sequence.arrived = now
        sequence.hashes = self.pool.chain(None, sequence.prompt, lora=sequence.lora, salt=sequence.salt)
        self.waiting.append(sequence)

    def hits(self, sequence: Sequence) -> list[Block]:
        """Cached blocks that a waiting sequence would reuse; its last token is always computed."""
        most = (len(sequence.prompt) - 1) // self.pool.block_size
        return self.pool.find(sequence.hashes[:most])

    def plan(self, now: float) -> Step | None:
        """The next step, its blocks allocated; None when nothing can run."""
        budget = self.pace.max_batched_tokens
        work: list[tuple[Sequence, int]] = []
        for sequence in self.running:
            count = min(sequence.length - sequence.computed, budget)
            if count:
                self._allocate(sequence, count)
                work.append((sequence, count))
                budget -= count
        while self.waiting and budget and len(self.running) < self.pace.max_sequences:
            sequence = self.waiting[0]
            if not self._admit(sequence, now):
                break
            count = min(sequence.length - sequence.computed, budget)
            self._allocate(sequence, count)
            work.append((sequence, count))
            budget -= count
        if not work:
            return None
        prefill = sum(count for sequence, count in work if sequence.prefill_left)
        decoding = sum(1 for sequence, _ in work if not sequence.prefill_left)
        return Step(tuple(work), self.pace.seconds(prefill, decoding))

    def complete(self, step: Step, now: float) -> list[Sequence]:
        """The step is over: tokens are there. Returns the sequences that said something."""
        spoke: list[Sequence] = []
        self.counts.steps += 1
        for sequence, count in step.work:
            if sequence.state != "running":
                continue
            sequence.computed += count
            if sequence.computed < sequence.length:
                continue
            sequence.produced += 1
            self.counts.output_tokens += 1
            spoke.append(sequence)
            if sequence.produced == 1:
                sequence.first_token = now
                self.counts.first_tokens += 1
                self.counts.time_to_first_token_seconds += now - sequence.arrived
            if sequence.produced == len(sequence.answer):
                self._end(sequence, "finished", now)
                self.counts.finished += 1
        return spoke

    def abort(self, sequence: Sequence, now: float) -> None:
        """Nobody wants the answer any more; what it holds is free at once. Does nothing to one that has ended."""
        if sequence.state == "waiting":
            self.waiting.remove(sequence)
            self._over(sequence, "aborted", now)
        elif sequence.state == "running":
            self._end(sequence, "aborted", now)
        else:
            return
        self.counts.aborted += 1

    def _end(self, sequence: Sequence, state: str, now: float) -> None:
        self.running.remove(sequence)
        self._promised -= self._needs(sequence) - len(sequence.blocks)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        self._over(sequence, state, now)

    def _over(self, sequence: Sequence, state: str, now: float) -> None:
        sequence.state, sequence.ended = state, now
        number = self.lives[-1].number + 1 if self.lives else 1
        self.lives.append(Life(number, sequence.name, sequence.booking, sequence.arrived, now, state))

    def _admit(self, sequence: Sequence, now: float) -> bool:
        hits = self.hits(sequence)
        needs = self._needs(sequence)
        revived = sum(1 for block in hits if not block.references)
        if needs - len(hits) + revived > self.pool.free - self._promised:
            return False
        self.waiting.popleft()
        self.pool.hold(hits)
        self._promised += needs - len(hits)
        sequence.blocks = list(hits)
        sequence.cached = sequence.computed = len(hits) * self.pool.block_size
        sequence.state, sequence.admitted = "running", now
        self.running.append(sequence)
        self.counts.prompt_tokens += len(sequence.prompt)
        self.counts.cached_tokens += sequence.cached
        self.counts.queue_seconds += now - sequence.arrived
        return True

    def _allocate(self, sequence: Sequence, count: int) -> None:
        """Room for `count` more tokens, and the blocks that they fill enter the cache."""
        size = self.pool.block_size
        reached = sequence.computed + count
        more = self._blocks_for(reached) - len(sequence.blocks)
        sequence.blocks += self.pool.take(more)
        self._promised -= more
        first, full = sequence.computed // size, reached // size
        if full == first:
            return
        if full > len(sequence.hashes):
            known = len(sequence.hashes)
            sequence.hashes += self.pool.chain(
                sequence.hashes[-1] if known else None,
                sequence.tokens(known * size, full * size),
                lora=sequence.lora,
                salt=sequence.salt,
            )
        self.pool.keep(
            sequence.blocks[first:full],
            sequence.hashes[first:full],
            sequence.tokens(first * size, full * size),
            parent=sequence.hashes[first - 1] if first else None,
            lora=sequence.lora,
            salt=sequence.salt,
        )

    def _needs(self, sequence: Sequence) -> int:
        """Blocks of a sequence's whole life; its last token is never computed."""
        return self._blocks_for(len(sequence.prompt) + len(sequence.answer) - 1)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.pool.block_size)
