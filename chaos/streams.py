"""A gateway whose every step is the scenario's to time: it asks one replica, sends to any worker, tells what it likes.

Envoy decides for itself when a stream breaks, which replica a retry meets and when its access log goes out. Scenarios
about retries, hedged requests and doubled, early or late ends need those moments, so they speak ext_proc themselves.
Otherwise it does what Envoy does: it asks a replica, sends the request with the booking's header to the worker that was
named, shows the response, speaks of it in the access log. `Gateway` knows addresses and bodies; `Streams` is that of a
run: there every attempt is a call in the history, under a process ``attempt-N``.

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
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp
import grpc
import orjson

from chaos.history import Type, Writer
from picker.serving.gateway import headers_set, request_body, request_headers, response_body, response_headers
from picker.serving.methods import LOGS
from picker.serving.modes import BodyMode
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER
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

    request_id: str
    body: bytes
    booking: str
    worker: str
    """Where it was sent by the replica: ``host:port``."""
    _channel: grpc.aio.Channel
    _call: Any
    _http: aiohttp.ClientSession
    responses: list[asyncio.Task[int]] = field(default_factory=list)
    """Of the engines that it was sent to, in that order; each returns the number of its pieces."""
    over: Callable[[str], None] | None = None
    """Told the outcome once, when the stream to the picker ends."""

    @property
    def holds(self) -> tuple[str, str]:
        """What an engine that carries it shows: the worker and the booking."""
        return self.worker, self.booking

    async def send(self, worker: str = "") -> None:
        """Send the request to its worker, or another one; returns once the engine answers."""
        begun = asyncio.Event()
        self.responses.append(asyncio.create_task(self._follow(worker or self.worker, begun)))
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
        await asyncio.gather(*self.responses)

    async def completed(self) -> None:
        """Wait for the end of the engine's response, and show it to the picker at once, as a gateway does."""
        await self.served_out()
        await self.finished()

    async def hang_up(self) -> None:
        """Leave the engine; it notices and stops."""
        for response in self.responses:
            response.cancel()
        await asyncio.gather(*self.responses, return_exceptions=True)

    async def break_off(self, outcome: str = "cancelled") -> None:
        """Break the stream to the picker, if it is still there; the engine goes on."""
        self._call.cancel()
        await self._channel.close()
        told, self.over = self.over, None
        if told is not None:
            told(outcome)

    async def _say(self, message: ProcessingRequest) -> None:
        await self._call.write(message)
        await asyncio.wait_for(self._call.read(), ANSWER_SECONDS)


class Gateway:
    """Opens attempts at replicas; what is left of them ends when it is left."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            connector=aiohttp.TCPConnector(limit=0),
        )
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

    async def open(
        self, address: str, body: bytes, *, request_id: str = "", only: Iterable[str] = (), held: bool = True
    ) -> Attempt:
        """Ask the replica at that address for a worker.

        ``only``: addresses of the workers that it may choose among. ``held``: the response's body goes through the
        replica too, which so sees its end; else it may let go of the stream at the response's headers. Raises
        RefusedError.
        """
        request_id = request_id or uuid.uuid4().hex
        channel = grpc.aio.insecure_channel(address)
        call = channel.stream_stream(
            PROCESS,
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )()
        try:
            told = await _picked(call, body, request_id, list(only), held=held)
        except BaseException:
            call.cancel()
            await channel.close()
            raise
        worker = told[DESTINATION_HEADER].partition(",")[0]
        attempt = Attempt(request_id, body, told[BOOKING_HEADER], worker, channel, call, self._http)
        self.attempts.append(attempt)
        return attempt

    def logs_to(self, address: str) -> Logs:
        """An access log stream to the replica at that address."""
        logs = Logs(address)
        self._logs.append(logs)
        return logs


class Streams(Gateway):
    """The gateway of a run: it knows replicas by name, and tells the history of every attempt."""

    def __init__(self, history: Writer, address_of: Callable[[str], str]) -> None:
        super().__init__()
        self._history = history
        self._address_of = address_of
        self._numbers = itertools.count(100_000)

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
        """Ask a replica for a worker, with an answer of so many tokens; ``only`` and ``held`` as in `open`.

        ``again``: the same request once more, as a gateway's retry or a hedging client sends it. Raises RefusedError.
        """
        number = next(self._numbers)
        request_id = again.request_id if again else uuid.uuid4().hex
        body = again.body if again else completion(tokens, prompt or f"{uuid.uuid4()} tell me of the harbor")
        who = f"attempt-{number}"
        self._history.write(who, "call", "invoke", number=number, replica=replica, request_id=request_id)
        try:
            attempt = await self.open(
                self._address_of(replica), body, request_id=request_id, only=only, held=held
            )
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"[:300]
            self._history.write(who, "call", "fail", outcome="unreachable", fault=fault)
            raise
        attempt.over = partial(self._over, who, attempt.booking)
        return attempt

    def _over(self, who: str, booking: str, outcome: str) -> None:
        kind: Type = "ok" if outcome == "complete" else "info"
        self._history.write(who, "call", kind, outcome=outcome, booking=booking)

    def logs(self, replica: str) -> Logs:
        """An access log stream to a replica."""
        return self.logs_to(self._address_of(replica))


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
