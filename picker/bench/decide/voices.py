"""KV events of many workers, published from a process of their own, as bridges publish them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, time_ns

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from picker.bench.fleet import Stage
from picker.events.records import SCHEMA, Answer, Blocks, Event, decode_ask, encode
from picker.events.subjects import Subjects

EVENT_BLOCKS = 8
"""Blocks of one event at a steady rate: some dozen tokens of one request's answer, or a short prompt's."""
FILL_BLOCKS = 512
"""Blocks of one event while an index is filled."""
HELD_EVENTS = 64
"""Events of one worker at a steady rate after which the oldest blocks are removed again."""
TICK_SECONDS = 0.01
"""Between two bursts: engines tell of a step at a time."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What is to be published in one round."""

    nats_url: str
    pool: str
    workers: Sequence[str]
    rate: float = 0.0
    """Events each second for ``seconds``; 0: none."""
    seconds: float = 0.0
    fill: int = 0
    """Blocks that are announced first, over all workers, in no hurry."""
    prompts: Sequence[Sequence[int]] = ()
    """Sequence hashes of prompts, each announced by one worker in turn."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was published."""

    events: int
    seconds: float
    """How long the steady part took."""
    late_ms: float
    """How late the latest burst was."""


class _Voice:
    """One worker's stream of events."""

    def __init__(self, worker: str, subjects: Subjects, born: int) -> None:
        self.subject = subjects.events(worker)
        self.asked_at = subjects.asks(worker)
        self._born = born
        self._sequence = 0
        self._told: deque[list[int]] = deque()
        self.kept: list[int] = []
        """Blocks that are never removed."""

    def cleared(self) -> bytes:
        """The first word of a new life."""
        return self._event("cleared", [])

    def stored(self, hashes: list[int], *, kept: bool = False) -> bytes:
        """Blocks are there."""
        if kept:
            self.kept += hashes
        else:
            self._told.append(hashes)
        return self._event("stored", hashes)

    def next(self, rng: random.Random) -> bytes:
        """The next event of a steady stream: as much goes as comes."""
        if len(self._told) >= HELD_EVENTS:
            return self._event("removed", self._told.popleft())
        return self.stored([rng.getrandbits(63) for _ in range(EVENT_BLOCKS)])

    def snapshot(self) -> bytes:
        """What a bridge answers to one who knows nothing."""
        hashes = [*self.kept, *(each for told in self._told for each in told)]
        blocks = [Blocks(0, hashes)] if hashes else []
        return encode(Answer(SCHEMA, self._born, self._born, "snapshot", self._sequence, blocks=blocks))

    def _event(self, kind: str, hashes: list[int]) -> bytes:
        self._sequence += 1
        return encode(Event(SCHEMA, self._born, self._born, self._sequence, kind, hashes))  # type: ignore[arg-type]


async def speak(stage: Stage, speech: Speech) -> Spoken:
    """The round in its process: every worker begins a new life, tells what it holds, then goes on at the rate."""
    subjects, born = Subjects(speech.pool), time_ns()
    voices = [_Voice(worker, subjects, born) for worker in speech.workers]
    client = await nats.connect(speech.nats_url)
    try:
        await _answer_questions(client, voices)
        await stage.ready()
        rng = random.Random(speech.seed)
        events = await _begin(client, voices, speech, rng)
        begun = monotonic()
        more, late = await _go_on(client, voices, speech, rng)
        return Spoken(events + more, monotonic() - begun, round(1e3 * late, 2))
    finally:
        await client.close()


async def _answer_questions(client: Client, voices: Sequence[_Voice]) -> None:
    for voice in voices:

        async def answer(message: Msg, voice: _Voice = voice) -> None:
            if decode_ask(message.data) is not None and message.reply:
                await message.respond(voice.snapshot())

        await client.subscribe(voice.asked_at, cb=answer)


async def _begin(client: Client, voices: Sequence[_Voice], speech: Speech, rng: random.Random) -> int:
    events = 0
    for voice in voices:
        await client.publish(voice.subject, voice.cleared())
        events += 1
    for number, hashes in enumerate(speech.prompts):
        voice = voices[number % len(voices)]
        for at in range(0, len(hashes), FILL_BLOCKS):
            await client.publish(voice.subject, voice.stored(list(hashes[at : at + FILL_BLOCKS]), kept=True))
            events += 1
    for number in range(speech.fill // FILL_BLOCKS):
        voice = voices[number % len(voices)]
        blocks = [rng.getrandbits(63) for _ in range(FILL_BLOCKS)]
        await client.publish(voice.subject, voice.stored(blocks, kept=True))
        events += 1
        if number % 20 == 19:
            await client.flush()
            await asyncio.sleep(0.01)
    await client.flush()
    return events


async def _go_on(
    client: Client, voices: Sequence[_Voice], speech: Speech, rng: random.Random
) -> tuple[int, float]:
    """Events at the rate until the time is over; how many, and how late the latest burst was."""
    begun, events, late = monotonic(), 0, 0.0
    total = int(speech.rate * speech.seconds)
    while events < total:
        due = min(total, int((monotonic() - begun) * speech.rate) + 1)
        late = max(late, monotonic() - begun - events / speech.rate)
        for number in range(events, due):
            voice = voices[number % len(voices)]
            await client.publish(voice.subject, voice.next(rng))
        events = due
        await client.flush()
        await asyncio.sleep(TICK_SECONDS)
    return events, late
