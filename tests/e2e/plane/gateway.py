"""A gateway whose every step is the test's to time: real picker processes over ext_proc, real engines behind them.

Envoy decides for itself when a stream breaks, which replica a retry meets and when its access log goes out. This one
does what it is told, and otherwise what Envoy does: it asks a replica, sends the request with the booking's header to
the worker that was named, shows the response, and speaks of it in the access log.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
import grpc
import orjson

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
from picker.sim.programs import Replica

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
ANSWER_SECONDS = 20.0
PATH = "/v1/completions"
DECODE_SECONDS = 0.05
"""A token of an engine here."""


def completion(seconds: float) -> bytes:
    """The body of a request whose answer takes so long on an engine that has nothing else to do."""
    body = {
        "model": MODEL,
        "prompt": f"{uuid.uuid4()} what does the harbor look like",
        "max_tokens": max(1, round(seconds / DECODE_SECONDS)),
        "ignore_eos": True,
        "stream": True,
    }
    return orjson.dumps(body)


@dataclass(eq=False)
class Attempt:
    """One try of a request: the stream to the picker and the response of the engine, each on its own."""

    replica: Replica
    booking: str
    worker: str
    channel: grpc.aio.Channel
    call: Any
    body: bytes
    http: aiohttp.ClientSession
    responses: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def holds(self) -> tuple[str, str]:
        """What an engine that carries it shows: the worker and the booking."""
        return self.worker, self.booking

    async def send(self, worker: str = "") -> None:
        """Send the request to its worker (or another one); returns once the engine answers."""
        begun = asyncio.Event()
        self.responses.append(asyncio.create_task(self._follow(worker or self.worker, begun)))
        await asyncio.wait_for(begun.wait(), ANSWER_SECONDS)

    async def _follow(self, worker: str, begun: asyncio.Event) -> None:
        headers = {BOOKING_HEADER: self.booking, "content-type": "application/json"}
        url = f"http://{worker}{PATH}"
        async with self.http.post(url, data=self.body, headers=headers) as response:
            assert response.status == 200, await response.text()
            begun.set()
            async for _ in response.content:
                pass

    async def answered(self, *, served: str = "") -> None:
        """Show the picker the response's headers; ``served`` is the endpoint that they came from."""
        attributes: dict[str, str | float] = {"upstream.address": served or self.worker}
        if served and served != self.worker:
            attributes["upstream.request_attempt_count"] = 2
        headers = {"content-type": "text/event-stream"}
        await self._say(response_headers(headers=headers, attributes=attributes))

    async def finished(self) -> None:
        """Show the picker the end of the response."""
        await self._say(response_body(b"data: [DONE]", end=True))
        await self.call.done_writing()
        await self.close()

    async def _say(self, message: ProcessingRequest) -> None:
        await self.call.write(message)
        await asyncio.wait_for(self.call.read(), ANSWER_SECONDS)

    async def served_out(self) -> None:
        """Wait for the end of the engine's response."""
        await asyncio.gather(*self.responses)

    async def hang_up(self) -> None:
        """Leave the engine; it notices and stops."""
        for response in self.responses:
            response.cancel()
        await asyncio.gather(*self.responses, return_exceptions=True)

    async def close(self) -> None:
        """Break the stream to the picker, if it is still there."""
        self.call.cancel()
        await self.channel.close()


class Gateway:
    """Opens attempts at replicas; ends what is left of them when it is left."""

    def __init__(self) -> None:
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            connector=aiohttp.TCPConnector(limit=0),
        )
        self.attempts: list[Attempt] = []
        self._logs: list[Logs] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for attempt in self.attempts:
            await attempt.hang_up()
            await attempt.close()
        for logs in self._logs:
            await logs.close()
        await self.http.close()

    async def attempt(
        self,
        replica: Replica,
        body: bytes,
        *,
        request_id: str = "",
        only: Iterable[str] = (),
        held: bool = True,
    ) -> Attempt:
        """Ask a replica for a worker. ``only``: the workers that it may choose among.

        ``held``: the response's body goes through the picker too, which so sees its end; else the picker may let go
        of the stream once it has seen the response's headers.
        """
        channel = grpc.aio.insecure_channel(replica.extproc)
        call = channel.stream_stream(
            PROCESS,
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )()
        request_id = request_id or str(uuid.uuid4())
        first = request_headers(
            {":method": "POST", ":path": PATH, "x-request-id": request_id},
            mode=BodyMode.BUFFERED,
            response_mode=BodyMode.BUFFERED if held else BodyMode.NONE,
        )
        allowed = list(only)
        if allowed:
            hint = first.metadata_context.filter_metadata[SUBSET_NAMESPACE]
            hint.update({SUBSET_KEY: ",".join(allowed)})
        try:
            await call.write(first)
            await asyncio.wait_for(call.read(), ANSWER_SECONDS)
            await call.write(request_body(body))
            answer: Any = await asyncio.wait_for(call.read(), ANSWER_SECONDS)
            told = headers_set(answer)
        except BaseException:
            call.cancel()
            await channel.close()
            raise
        assert DESTINATION_HEADER in told, f"{replica.name} named no worker: {answer}"
        worker = told[DESTINATION_HEADER].partition(",")[0]
        attempt = Attempt(replica, told[BOOKING_HEADER], worker, channel, call, body, self.http)
        self.attempts.append(attempt)
        return attempt

    def logs(self, replica: Replica) -> Logs:
        """An access log stream to a replica."""
        logs = Logs(replica)
        self._logs.append(logs)
        return logs


class Logs:
    """An access log stream."""

    def __init__(self, replica: Replica) -> None:
        self._channel = grpc.aio.insecure_channel(replica.extproc)
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
            kind = log.DownstreamEnd if end else log.DownstreamPeriodic
            entry.common_properties.access_log_type = kind
            entry.response.response_code.value = 200
        await self._call.write(message)

    async def close(self) -> None:
        self._call.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.RpcError):
            await self._call
        await self._channel.close()
