"""gRPC health and the access log service over grpcio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from picker.serving.accesslog import entries_of
from picker.serving.counts import Counts
from picker.serving.health import Health
from picker.serving.methods import CHECK, LOGS, MAX_LOG_STREAMS, MAX_WATCHERS, WATCH
from picker.serving.seam import LogEntry
from picker.serving.wire.accesslog_pb2 import StreamAccessLogsResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse

Context = grpc.aio.ServicerContext[bytes, bytes]


class HealthService(grpc.GenericRpcHandler):
    """Health, asked once or watched."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._watchers = 0
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            CHECK: grpc.unary_unary_rpc_method_handler(cast("Any", self._check)),
            WATCH: grpc.unary_stream_rpc_method_handler(cast("Any", self._watch)),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of one of our methods."""
        return self._handlers.get(details.method)

    async def _check(self, data: bytes, context: Context) -> bytes:
        status = self._health.status(await _service(data, context))
        if status == HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return HealthCheckResponse(status=status).SerializeToString()

    async def _watch(self, data: bytes, context: Context) -> None:
        name = await _service(data, context)
        if self._watchers >= MAX_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers")
        changed = asyncio.Event()
        end = self._health.listen(changed.set)
        self._watchers += 1
        try:
            while True:
                changed.clear()
                status = self._health.status(name)
                await context.write(HealthCheckResponse(status=status).SerializeToString())
                await changed.wait()
        finally:
            self._watchers -= 1
            end()


class LogService(grpc.GenericRpcHandler):
    """The access log service: each batch of entries goes to ``logged`` as it comes."""

    def __init__(
        self, logged: Callable[[list[LogEntry]], None], *, counts: Counts, clock: Callable[[], float]
    ) -> None:
        self.last_named: float | None = None
        """When an entry last named a booking, in the clock's time."""
        self.streams = 0
        self._logged = logged
        self._counts = counts
        self._clock = clock
        self._closed = asyncio.Event()
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(
            cast("Any", self._receive)
        )

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of our one method."""
        return self._handler if details.method == LOGS else None

    def close(self) -> None:
        """End the open streams with OK and take no new ones: the gateway finds another replica."""
        self._closed.set()

    async def _receive(self, _: Any, context: Context) -> bytes:
        if self._closed.is_set() or self.streams >= MAX_LOG_STREAMS:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this replica takes no more access logs")
        self._counts.log_streams += 1
        self.streams += 1
        closed = asyncio.ensure_future(self._closed.wait())
        read: asyncio.Future[Any] = asyncio.ensure_future(context.read())
        try:
            while True:
                await asyncio.wait({read, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not read.done():
                    break
                data = read.result()
                if data is grpc.aio.EOF:
                    break
                self._take(data)
                read = asyncio.ensure_future(context.read())
        finally:
            self.streams -= 1
            read.cancel()
            closed.cancel()
        return StreamAccessLogsResponse().SerializeToString()

    def _take(self, data: bytes) -> None:
        entries = entries_of(data, self._counts)
        if entries:
            self.last_named = self._clock()
            self._logged(entries)


async def _service(data: bytes, context: Context) -> str:
    try:
        return HealthCheckRequest.FromString(data).service
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a health check request")
    return ""
