"""Open-loop load: a seed says which request goes out when, whatever became of the ones before it.

Conversations: each has a shared opening, and every turn repeats all that was said before, so that prefixes are held
somewhere and the choice of a worker matters. Some answers are long, some callers hang up in the middle.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson

from chaos.history import Writer
from picker.serving.seam import BOOKING_HEADER
from picker.sim.model import MODEL
from picker.sim.words import WORDS

Outcome = Literal["complete", "refused", "cut", "unreachable", "cancelled", "timeout"]
"""``complete``: every token came. ``refused``: an explicit status other than 200. ``cut``: the answer began and broke.
``unreachable``: no answer at all, the connection failed. ``cancelled``: the caller hung up on purpose.
``timeout``: nobody knows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, decided before the run."""

    number: int
    at: float
    """Seconds from the start of the load."""
    conversation: int
    prompt: str
    tokens: int
    """Length of the answer."""
    cancel_after: float | None = None
    """Seconds after which the caller hangs up."""

    def body(self, model: str = MODEL) -> bytes:
        """The chat completion."""
        return orjson.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": self.prompt}],
                "max_tokens": self.tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Arrivals at a mean rate, exponentially spaced. Equal values and an equal seed give equal requests."""

    rate: float = 12.0
    """Requests a second."""
    conversations: int = 24
    opening_words: int = 120
    """Words that all turns of one conversation share."""
    turn_words: int = 20
    tokens: tuple[int, int] = (8, 60)
    """Shortest and longest usual answer."""
    long_share: float = 0.05
    long_tokens: tuple[int, int] = (200, 400)
    cancel_share: float = 0.03
    timeout: float = 60.0
    """Seconds after which a caller gives up, and the call counts as unknown."""
    equal: bool = False
    """Every request is the same: a thundering herd."""
    bursts: tuple[tuple[float, int], ...] = ()
    """``(second, requests)``: so many at once, besides the rate."""
    retries: int = 0
    """How often a caller sends again what was cut, refused or not answered: the same body under the same id."""

    def arrivals(self, seed: str, seconds: float) -> list[Wanted]:
        """All requests of a load of that many seconds, by time."""
        rng = random.Random(f"load {seed}")
        clock = random.Random(
            f"arrivals {seed}"
        )  # of its own, so that a longer load begins like a shorter one
        times = sorted((*_poisson(clock, self.rate, seconds), *self._burst_times(seconds)))
        openings = [" ".join(rng.choices(WORDS, k=self.opening_words)) for _ in range(self.conversations)]
        said = list(openings)
        found = []
        for number, at in enumerate(times):
            who = 0 if self.equal else rng.randrange(self.conversations)
            if not self.equal:
                said[who] = f"{said[who]} {' '.join(rng.choices(WORDS, k=self.turn_words))}"
            found.append(self._wanted(rng, number, at, who, said[who]))
            if len(said[who]) > 12 * (self.opening_words + 12 * self.turn_words):
                said[who] = openings[who]
        return found

    def _wanted(self, rng: random.Random, number: int, at: float, who: int, prompt: str) -> Wanted:
        low, high = self.long_tokens if rng.random() < self.long_share else self.tokens
        tokens = rng.randint(low, high)
        cancel = rng.uniform(0.1, 0.8) if rng.random() < self.cancel_share else None
        return Wanted(number, round(at, 6), who, prompt, tokens, cancel)

    def _burst_times(self, seconds: float) -> Iterator[float]:
        for at, count in self.bursts:
            if at < seconds:
                yield from [at] * count

    def words(self) -> str:
        """One line for people."""
        low, high = self.tokens
        said = f"{self.rate:g} requests/s, open loop, {low}-{high} tokens, {self.long_share:.0%} long"
        said += f" ({self.long_tokens[0]}-{self.long_tokens[1]}), {self.cancel_share:.0%} hang up"
        said += "".join(f", {count} at once after {at:g} s" for at, count in self.bursts)
        said += f", {self.retries} retries of callers" if self.retries else ""
        return said + (", all equal" if self.equal else "")


WORTH_A_RETRY: frozenset[Outcome] = frozenset({"cut", "refused", "unreachable"})
RETRY_SECONDS = 0.05
"""Before a caller sends a request again."""
_PIECE, _OPENING = b'"content":"', b'"content":""'


def _poisson(rng: random.Random, rate: float, seconds: float) -> Iterator[float]:
    at = rng.expovariate(rate)
    while at < seconds:
        yield at
        at += rng.expovariate(rate)


class Sender:
    """Sends one load and writes down every call. ``start`` begins, ``stop`` ends arrivals and waits for answers.

    ``tag`` begins every `x-request-id`, so that one run's ids are never another's. ``model``: what requests name;
    empty: the simulated engines', whose answers come token by token and are counted.
    """

    def __init__(
        self,
        url: str,
        history: Writer,
        http: aiohttp.ClientSession,
        *,
        tag: str,
        timeout: float,
        retries: int = 0,
        model: str = "",
    ) -> None:
        self._model, self._counts = model or MODEL, not model
        self._tag = tag
        self._retries = retries
        self._url = f"{url.rstrip('/')}/v1/chat/completions"
        self._history = history
        self._http = http
        self._timeout = timeout
        self._calls: set[asyncio.Task[None]] = set()
        self._arriving: asyncio.Task[None] | None = None
        self.sent = 0

    def start(self, wanted: Sequence[Wanted]) -> None:
        """Begin; the first request's clock starts now."""
        self._arriving = asyncio.create_task(self._arrive(wanted, time.monotonic()), name="arrivals")

    async def stop(self) -> None:
        """No further arrivals; returns when every call has its end."""
        if self._arriving is not None:
            self._arriving.cancel()
            await asyncio.gather(self._arriving, return_exceptions=True)
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def over(self) -> None:
        """Return when the last planned request was sent."""
        if self._arriving is not None:
            await asyncio.gather(self._arriving, return_exceptions=True)

    async def abandon(self) -> None:
        """End everything at once."""
        tasks = [*self._calls, *([self._arriving] if self._arriving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _arrive(self, wanted: Sequence[Wanted], start: float) -> None:
        for one in wanted:
            await asyncio.sleep(max(0.0, start + one.at - time.monotonic()))
            task = asyncio.create_task(self.call(one), name=f"client-{one.number}")
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def call(self, one: Wanted, *, headers: dict[str, str] | None = None, url: str = "") -> None:
        """One request from its beginning to its end, every try of it written down as a call of its own."""
        for again in range(self._retries + 1):
            if again:
                await asyncio.sleep(RETRY_SECONDS)
            if await self._try(one, again, headers or {}, url or self._url) not in WORTH_A_RETRY:
                return

    async def _try(self, one: Wanted, again: int, headers: dict[str, str], url: str) -> Outcome:
        who = f"client-{one.number}" + (f".{again}" if again else "")
        self.sent += 1
        self._history.write(
            who, "call", "invoke", number=one.number, conversation=one.conversation, tokens=one.tokens,
            due=one.at, cancel_after=one.cancel_after, again=again,
        )  # fmt: skip
        seen: dict[str, Any] = {"pieces": 0, "wanted": one.tokens}
        outcome: Outcome = "unreachable"
        try:
            limit = self._timeout if one.cancel_after is None else min(self._timeout, one.cancel_after)
            async with asyncio.timeout(limit):
                outcome = await self._exchange(one, seen, headers, url)
        except TimeoutError:
            outcome = "timeout" if one.cancel_after is None else "cancelled"
        except asyncio.CancelledError:
            seen["fault"] = "the suite ended first"
            self._history.write(who, "call", "info", outcome="timeout", **seen)
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            seen["fault"] = f"{type(error).__name__}: {error}"[:300]
            outcome = "cut" if seen.get("status") == 200 else "unreachable"
        kind = {"complete": "ok", "timeout": "info", "cancelled": "info"}.get(outcome, "fail")
        self._history.write(who, "call", kind, outcome=outcome, **seen)  # type: ignore[arg-type]
        return outcome

    async def _exchange(
        self, one: Wanted, seen: dict[str, Any], headers: dict[str, str], url: str
    ) -> Outcome:
        begun = time.monotonic()
        headers = {"content-type": "application/json", "x-request-id": f"{self._tag}-{one.number}", **headers}
        async with self._http.post(url, data=one.body(self._model), headers=headers) as response:
            seen["status"] = response.status
            seen["worker"] = response.headers.get("x-sim-worker", "")
            seen["booking"] = response.headers.get(BOOKING_HEADER, "")
            seen["answered"] = round(time.monotonic() - begun, 6)
            if response.status != 200:
                text = await response.content.read(300)
                seen["fault"] = text.decode("utf-8", "replace")
                return "refused"
            done = False
            async for line in response.content:
                if line.startswith(b"data: [DONE]"):
                    done = True
                elif _PIECE in line and _OPENING not in line:
                    if not seen["pieces"]:
                        seen["first"] = round(time.monotonic() - begun, 6)
                    seen["pieces"] += 1
        whole = seen["pieces"] >= one.tokens or not self._counts
        return "complete" if done and whole else "cut"
