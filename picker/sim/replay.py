"""The trace sent through a gateway: in stretches, with pauses in which something may be compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from picker.sim.load import Arrival, Client, Record
from picker.sim.model import MODEL
from picker.sim.score import Phase, quantile

OnPause = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that was sent, on the machine's own clock."""

    record: Record
    began: float
    """Monotonic seconds at the sending."""
    held: bool
    """One of the long responses that pauses hold, not a request of the trace."""

    @property
    def ended(self) -> float:
        """Monotonic seconds at its end."""
        return self.began + (self.record.ended or 0.0)


@dataclass(slots=True)
class Progress:
    """How far a replay has come, for those who watch."""

    wanted: int = 0
    ended: int = 0
    failed: int = 0
    cut: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_tokens: list[float] = field(default_factory=list)

    def note(self, record: Record) -> None:
        """One request of the trace has ended."""
        self.ended += 1
        self.failed += record.failed
        self.cut += record.cut
        self.prompt_tokens += record.prompt_tokens
        self.cached_tokens += record.cached_tokens
        if record.complete and record.first_token is not None:
            self.first_tokens.append(record.first_token * 1000)


class Replay:
    """Sends arrivals through one URL in ``stretches`` equal parts; after each part ``on_pause(number)`` is awaited.

    In a pause nothing new is sent, but what was sent goes on. ``hold`` adds long responses, so that there is
    something to compare.
    """

    def __init__(self, url: str, arrivals: Sequence[Arrival], *, stretches: int, on_pause: OnPause) -> None:
        self._client = Client(url)
        self._arrivals = sorted(arrivals, key=lambda each: each.at)
        self._stretches = stretches
        self._on_pause = on_pause
        self._tasks: list[asyncio.Task[list[Sent]]] = []
        self.progress = Progress(wanted=len(arrivals))

    async def run(self) -> list[Sent]:
        """Send everything and return when everything has ended."""
        try:
            for number, part in enumerate(_parts(self._arrivals, self._stretches), 1):
                if part:
                    self._send(part, held=False)
                    await asyncio.sleep(part[-1].at)
                await self._on_pause(number)
            return [sent for stretch in await asyncio.gather(*self._tasks) for sent in stretch]
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self, count: int, *, tokens: int, about: str) -> None:
        """Send so many requests at once whose responses run for so many tokens."""
        self._send([_long(about, number, tokens) for number in range(count)], held=True)

    def _send(self, arrivals: Sequence[Arrival], *, held: bool) -> None:
        self._tasks.append(asyncio.create_task(self._stretch(arrivals, held=held), name="load"))

    async def _stretch(self, arrivals: Sequence[Arrival], *, held: bool) -> list[Sent]:
        begun = time.monotonic()
        note = None if held else self.progress.note
        records = await self._client.run(arrivals, on_record=note)
        return [Sent(record, begun + record.sent, held) for record in records]


def _parts(arrivals: Sequence[Arrival], count: int) -> list[list[Arrival]]:
    """Equal parts in order, each with times from its own start."""
    parts: list[list[Arrival]] = []
    for number in range(count):
        part = arrivals[number * len(arrivals) // count : (number + 1) * len(arrivals) // count]
        start = part[0].at if part else 0.0
        parts.append([replace(each, at=each.at - start) for each in part])
    return parts


def _long(about: str, number: int, tokens: int) -> Arrival:
    text = f"{about}, traveller {number}: tell me everything about the harbor."
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    return Arrival(0.0, body)


def phase_of(sent: Sequence[Sent], excused: int = 0) -> Phase:
    """Count a replay. Failures and cuts are those of all requests, tokens and times those of the trace."""
    trace = [each.record for each in sent if not each.held and each.record.complete]
    first = [record.first_token * 1000 for record in trace if record.first_token is not None]
    return Phase(
        requests=len(sent),
        failures=sum(each.record.failed for each in sent) - excused,
        truncated=sum(each.record.cut for each in sent),
        prompt_tokens=sum(record.prompt_tokens for record in trace),
        reused_tokens=sum(record.cached_tokens for record in trace),
        ttft_p50_ms=quantile(first, 0.5),
        ttft_p90_ms=quantile(first, 0.9),
    )


def in_flight(sent: Sequence[Sent], since: float, until: float) -> list[Sent]:
    """Requests that were sent before ``until`` and not over at ``since``."""
    return [each for each in sent if each.began <= until and each.ended >= since]
