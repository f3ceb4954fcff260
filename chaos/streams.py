"""A gateway whose every step is the scenario's to time: it asks one replica, sends to any worker, tells what it likes.

Envoy decides for itself when a stream breaks, which replica a retry meets and when its access log goes out. Scenarios
about retries, hedged requests and doubled, early or late ends need those moments, so they speak ext_proc themselves.
Every attempt is a call in the history, under a process ``attempt-N``.

```python
async with run.streams() as gateway:
    first = await gateway.ask("picker-0", tokens=200)      # picked and booked there
    await first.send()                                     # its worker begins
    second = await gateway.ask("picker-1", again=first)    # the same request at another replica: a retry
```
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
import grpc
import orjson

from chaos.history import Type, Writer
from picker.serving.methods import LOGS
from picker.serving.modes import BodyMode
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER
from picker.serving.testing import (
    headers_set,
    request_body,
    request_headers,
    response_body,
    response_headers,
)
from picker.serving.wire import accesslog_pb2 as log
from picker.serving.wire.extproc_pb2 import ProcessingRequest, ProcessingResponse
from picker.sim.model import MODEL

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
PATH = "/v1/completions"
ANSWER_SECONDS = 20.0


class RefusedError(Exception):
    """The replica named no worker. Says what it answered instead."""


@dataclass(eq=False)
class Attempt:
    """One try of a request: the stream to a replica and the response of an engine, each on its own."""

    number: int
    replica: str
    request_id: str
    body: bytes
    booking: str
    worker: str
    """Where it was sent by the replica: ``host:port``."""
    _channel: grpc.aio.Channel
    _call: Any
    _http: aiohttp.ClientSession
    _history: Writer
    _responses: list[asyncio.Task[int]] = field(default_factory=list)
    _over: bool = False

    async def send(self, worker: str = "") -> None:
        """Send the request to its worker, or another one; returns once the engine answers."""
        begun = asyncio.Event()
        self._responses.append(asyncio.create_task(self._follow(worker or self.worker, begun)))
        await asyncio.wait_for(begun.wait(), ANSWER_SECONDS)

    async def _follow(self, worker: str, begun: asyncio.Event) -> int:
        headers = {
            BOOKING_HEADER: self.booking,
            "content-type": "application/json",
            "x-request-id": self.request_id,
        }
        async with self._http.post(f"http://{worker}{PATH}", data=self.body, headers=headers) as response:
            response.raise_for_status()
            begun.set()
            return sum([1 async for line in response.content if line.startswith(b"data: {")])

    async def answered(self, *, served: str = "") -> None:
        """Show the picker the response's headers; ``served`` is the endpoint that they came from."""
        attributes: dict[str, str | float] = {"upstream.address": served or self.worker}
        if served and served != self.worker:
            attributes["upstream.request_attempt_count"] = 2
        headers = {"content-type": "text/event-stream"}
        await self._say(response_headers(headers=headers, attributes=attributes))

    async def finished(self) -> None:
        """Show the picker the end of the response, and close the stream in good order."""
        await self._say(response_body(b"data: [DONE]", end=True))
        await self._call.done_writing()
        await self.break_off("complete")

    async def served_out(self) -> None:
        """Wait for the end of the engine's response."""
        await asyncio.gather(*self._responses)

    async def completed(self) -> None:
        """Wait for the end of the engine's response, and show it to the picker at once, as a gateway does."""
        await self.served_out()
        await self.finished()

    async def hang_up(self) -> None:
        """Leave the engine; it notices and stops."""
        for response in self._responses:
            response.cancel()
        await asyncio.gather(*self._responses, return_exceptions=True)

    async def break_off(self, outcome: str = "cancelled") -> None:
        """Break the stream to the picker, if it is still there; the engine goes on."""
        self._call.cancel()
        await self._channel.close()
        if not self._over:
            self._over = True
            kind: Type = "ok" if outcome == "complete" else "info"
            self._history.write(f"attempt-{self.number}", "call", kind, outcome=outcome, booking=self.booking)

    async def _say(self, message: ProcessingRequest) -> None:
        await self._call.write(message)
        await asyncio.wait_for(self._call.read(), ANSWER_SECONDS)


class Streams:
    """Opens attempts at replicas; what is left of them ends when it is left."""

    def __init__(self, history: Writer, address_of: Callable[[str], str]) -> None:
        self._history = history
        self._address_of = address_of
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._numbers = itertools.count(100_000)
        self._logs: list[Logs] = []
        self.attempts: list[Attempt] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for attempt in self.attempts:
            await attempt.hang_up()
            await attempt.break_off()
        for logs in self._logs:
            await logs.close()
        await self._http.close()

    async def ask(
        self,
        replica: str,
        *,
        tokens: int = 100,
        again: Attempt | None = None,
        only: Iterable[str] = (),
        held: bool = True,
        prompt: str = "",
    ) -> Attempt:
        """Ask a replica for a worker, with an answer of so many tokens.

        ``again``: the same request once more, as a gateway's retry or a hedging client sends it. ``only``: addresses
        of the workers that it may choose among. ``held``: the response's body goes through the replica too, which so
        sees its end; else it may let go of the stream at the response's headers. Raises RefusedError.
        """
        number = next(self._numbers)
        request_id = again.request_id if again else uuid.uuid4().hex
        body = again.body if again else completion(tokens, prompt or f"{uuid.uuid4()} tell me of the harbor")
        who = f"attempt-{number}"
        self._history.write(who, "call", "invoke", number=number, replica=replica, request_id=request_id)
        channel = grpc.aio.insecure_channel(self._address_of(replica))
        call = channel.stream_stream(
            PROCESS,
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )()
        try:
            told = await _picked(call, body, request_id, list(only), held=held)
        except BaseException as error:
            call.cancel()
            await channel.close()
            fault = f"{type(error).__name__}: {error}"[:300]
            self._history.write(who, "call", "fail", outcome="unreachable", fault=fault)
            raise
        worker = told[DESTINATION_HEADER].partition(",")[0]
        attempt = Attempt(
            number, replica, request_id, body, told[BOOKING_HEADER], worker, channel, call, self._http, self._history
        )  # fmt: skip
        self.attempts.append(attempt)
        return attempt

    def logs(self, replica: str) -> Logs:
        """An access log stream to a replica."""
        logs = Logs(self._address_of(replica))
        self._logs.append(logs)
        return logs


async def _picked(
    call: Any, body: bytes, request_id: str, only: list[str], *, held: bool
) -> Mapping[str, str]:
    first = request_headers(
        {":method": "POST", ":path": PATH, "x-request-id": request_id},
        mode=BodyMode.BUFFERED,
        response_mode=BodyMode.BUFFERED if held else BodyMode.NONE,
    )
    if only:
        hint = first.metadata_context.filter_metadata[SUBSET_NAMESPACE]
        hint.update({SUBSET_KEY: ",".join(only)})
    await call.write(first)
    await asyncio.wait_for(call.read(), ANSWER_SECONDS)
    await call.write(request_body(body))
    answer: Any = await asyncio.wait_for(call.read(), ANSWER_SECONDS)
    told: Mapping[str, str] = headers_set(answer)
    if DESTINATION_HEADER not in told:
        raise RefusedError(f"no worker was named: {str(answer)[:200]}")
    return told


def completion(tokens: int, prompt: str) -> bytes:
    """The body of a streaming completion with an answer of so many tokens."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    return orjson.dumps(body)


class Logs:
    """An access log stream to one replica."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._call = self._channel.stream_unary(
            LOGS,
            request_serializer=log.StreamAccessLogsMessage.SerializeToString,
            response_deserializer=log.StreamAccessLogsResponse.FromString,
        )()

    async def tell(self, *attempts: Attempt, end: bool) -> None:
        """One entry each: that the request has ended, or that it runs."""
        message = log.StreamAccessLogsMessage()
        for attempt in attempts:
            entry = message.http_logs.log_entry.add()
            entry.request.request_headers[BOOKING_HEADER] = attempt.booking
            host, _, port = attempt.worker.rpartition(":")
            address = entry.common_properties.upstream_remote_address.socket_address
            address.address, address.port_value = host, int(port)
            entry.common_properties.access_log_type = log.DownstreamEnd if end else log.DownstreamPeriodic
            entry.response.response_code.value = 200
        await self._call.write(message)

    async def close(self) -> None:
        """End the stream."""
        self._call.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.RpcError):
            await self._call
        await self._channel.close()
