"""
Open-loop load: requests go out when their time comes, whatever became of the ones before.

Each is a streaming chat completion with its own `x-request-id`; each ends in one record that says what the client saw.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

_FAULT_LETTERS = 300
_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to send `at` seconds from the start; `body` is the chat completion, `stream` is set by the client."""

    at: float
    body: Mapping[str, Any]


@dataclass(slots=True)
class Record:
    """What became of one request. Times in seconds; None where it never came to it."""

    request_id: str
    at: float
    """When it should have been sent, from the start of the run."""
    sent: float = 0.0
    """When it was sent; later than `at` where the bound on concurrency held it back."""
    status: int | None = None
    worker: str = ""
    """The engine that answered, by the response header `x-sim-worker`."""
    first_token: float | None = None
    """From sending to the first piece of text."""
    ended: float | None = None
    """From sending to the end of the response."""
    wanted_tokens: int | None = None
    """Tokens that a complete answer has, where the request fixes them (`ignore_eos`)."""
    pieces: int = 0
    """Pieces of text seen; a simulated engine sends one a token."""
    done: bool = False
    """The stream closed with `[DONE]`."""
    finish_reason: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    fault: str = ""
    """Why it failed, in words; empty if it did not."""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Every token that was asked for came, and the stream said that it was over."""
        whole = self.wanted_tokens is None or self.pieces == self.wanted_tokens == self.output_tokens
        return self.status == 200 and self.done and bool(self.finish_reason) and whole

    @property
    def cut(self) -> bool:
        """The response began well and did not come to its end."""
        return self.status == 200 and not self.complete

    @property
    def failed(self) -> bool:
        """No answer at all: refused, no connection, timeout before the response."""
        return self.status != 200


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers; milliseconds to the first token over complete answers."""

    requests: int
    complete: int
    failed: int
    cut: int
    prompt_tokens: int
    cached_tokens: int
    ttft_p50_ms: float
    ttft_p90_ms: float


OnRecord = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Client:
    """How requests are sent. One run holds at most `concurrency` requests open; the rest wait for their turn."""

    url: str
    """Base address, for example `http://127.0.0.1:8080`."""
    concurrency: int = 256
    timeout: float = 60.0
    """Seconds for one whole request."""
    headers: Mapping[str, str] = field(default_factory=dict)

    async def run(self, arrivals: Iterable[Arrival], *, on_record: OnRecord | None = None) -> list[Record]:
        """Send all and return one record each, in order of arrival. `on_record` is called as each one ends."""
        gate = asyncio.Semaphore(self.concurrency)
        limit = aiohttp.ClientTimeout(total=self.timeout)
        connector = aiohttp.TCPConnector(limit=self.concurrency)
        start = time.monotonic()
        tasks: list[asyncio.Task[Record]] = []
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limit, read_bufsize=_LINE_BYTES) as session,
            asyncio.TaskGroup() as group,
        ):
            for arrival in sorted(arrivals, key=lambda each: each.at):
                await asyncio.sleep(max(0.0, start + arrival.at - time.monotonic()))
                await gate.acquire()
                task = group.create_task(self._one(session, arrival, start, on_record))
                task.add_done_callback(lambda _: gate.release())
                tasks.append(task)
        return [task.result() for task in tasks]

    async def _one(
        self, session: aiohttp.ClientSession, arrival: Arrival, start: float, on_record: OnRecord | None
    ) -> Record:
        fixed = arrival.body.get("max_tokens") if arrival.body.get("ignore_eos") else None
        record = Record(uuid.uuid4().hex, arrival.at, wanted_tokens=fixed)
        sent = time.monotonic()
        record.sent = sent - start
        try:
            await self._exchange(session, arrival, record, sent)
        except TimeoutError:
            record.fault = f"no end within {self.timeout:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            record.fault = f"{type(fault).__name__}: {fault}"
        record.ended = time.monotonic() - sent
        if record.cut and not record.fault:
            record.fault = f"cut after {record.pieces} of {record.wanted_tokens} tokens"
        if on_record:
            on_record(record)
        return record

    async def _exchange(
        self, session: aiohttp.ClientSession, arrival: Arrival, record: Record, sent: float
    ) -> None:
        body = {**arrival.body, "stream": True, "stream_options": {"include_usage": True}}
        headers = {**self.headers, "content-type": "application/json", "x-request-id": record.request_id}
        url = f"{self.url.rstrip('/')}/v1/chat/completions"
        async with session.post(url, data=orjson.dumps(body), headers=headers) as response:
            record.status = response.status
            record.worker = response.headers.get("x-sim-worker", "")
            record.headers = {name.lower(): value for name, value in response.headers.items()}
            if response.status != 200:
                text = await response.content.read(_FAULT_LETTERS)
                record.fault = f"{response.status}: {text.decode('utf-8', 'replace')}"
                return
            async for line in response.content:
                _note(record, line, time.monotonic() - sent)


def _note(record: Record, line: bytes, now: float) -> None:
    """One line of the event stream into the record."""
    if not line.startswith(b"data: "):
        return
    data = line[6:].strip()
    if data == b"[DONE]":
        record.done = True
        return
    event = orjson.loads(data)
    for choice in event.get("choices", ()):
        if choice.get("delta", {}).get("content"):
            record.pieces += 1
            if record.first_token is None:
                record.first_token = now
        record.finish_reason = choice.get("finish_reason") or record.finish_reason
    usage = event.get("usage")
    if usage:
        record.prompt_tokens = usage["prompt_tokens"]
        record.output_tokens = usage["completion_tokens"]
        record.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def summary(records: Sequence[Record]) -> Summary:
    """Count a run's records."""
    complete = [each for each in records if each.complete]
    first = [each.first_token * 1000 for each in complete if each.first_token is not None]
    return Summary(
        requests=len(records),
        complete=len(complete),
        failed=sum(each.failed for each in records),
        cut=sum(each.cut for each in records),
        prompt_tokens=sum(each.prompt_tokens for each in complete),
        cached_tokens=sum(each.cached_tokens for each in complete),
        ttft_p50_ms=percentile(first, 0.5),
        ttft_p90_ms=percentile(first, 0.9),
    )
