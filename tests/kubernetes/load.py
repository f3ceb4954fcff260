"""Open-loop load through a gateway while something else happens to the cluster."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from picker.sim.load import Arrival, Client, Record
from picker.sim.model import MODEL
from picker.sim.words import WORDS

RATE = 50.0
DECODE_SECONDS = 0.05
"""A token of the trial's engines."""
_SHORT_TOKENS = 6
_SLICE_SECONDS = 0.5


@dataclass(slots=True)
class Load:
    """Requests at a steady rate, until it is told to end; and a few that take long."""

    gateway: str
    long_seconds: float = 0.0
    """How long the long ones take; 0: there are none."""
    long_count: int = 12
    """One goes out each second, from the first second on."""
    records: list[Record] = field(default_factory=list)
    begun: float = 0.0

    async def during(
        self, work: Callable[[], Awaitable[None]], *, before: float = 2.0, after: float = 2.0
    ) -> None:
        """Load from ``before`` seconds before the work to ``after`` seconds after it; returns when all is answered."""
        over, self.begun = asyncio.Event(), time.monotonic()
        client = Client(self.gateway, concurrency=4096, timeout=60 + self.long_seconds)
        short = asyncio.create_task(self._send(client, over))
        long = asyncio.create_task(self._send_long(client))
        try:
            await asyncio.sleep(before)
            await work()
            await asyncio.sleep(after)
        finally:
            over.set()
            self.records += [record for each in await asyncio.gather(short, long) for record in each]

    async def _send(self, client: Client, over: asyncio.Event) -> list[Record]:
        """Slices of half a second, each on its own, so that a slow answer holds back nothing."""
        rng = random.Random(7)
        slices: list[asyncio.Task[list[Record]]] = []
        while not over.is_set():
            slices.append(asyncio.create_task(self._slice(client, rng)))
            await asyncio.sleep(_SLICE_SECONDS)
        return [record for each in await asyncio.gather(*slices) for record in each]

    async def _slice(self, client: Client, rng: random.Random) -> list[Record]:
        begun = time.monotonic() - self.begun
        records = await client.run(_arrivals(rng))
        for record in records:
            record.at += begun
        return records

    async def _send_long(self, client: Client) -> list[Record]:
        if not self.long_seconds:
            return []
        tokens = round(self.long_seconds / DECODE_SECONDS)
        rng = random.Random(8)
        return await client.run(Arrival(number, _body(rng, tokens)) for number in range(self.long_count))

    def lost(self) -> list[str]:
        """What became of the requests that were not answered in full."""
        bad = [each for each in self.records if not each.complete]
        return [f"at {each.at:.1f} s, {each.status}: {each.fault}" for each in bad]


def _arrivals(rng: random.Random) -> Iterator[Arrival]:
    for number in range(round(RATE * _SLICE_SECONDS)):
        yield Arrival(number / RATE, _body(rng, _SHORT_TOKENS))


def _body(rng: random.Random, tokens: int) -> dict[str, object]:
    prompt = " ".join(rng.choices(WORDS, k=40))
    return {
        "model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "ignore_eos": True,
    }  # fmt: skip
