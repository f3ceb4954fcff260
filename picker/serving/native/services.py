"""gRPC health and the access log service as calls."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from picker.serving.accesslog import entries_of
from picker.serving.counts import Counts
from picker.serving.health import Health
from picker.serving.http2.stream import Stream
from picker.serving.methods import MAX_LOG_STREAMS, MAX_WATCHERS
from picker.serving.native.calls import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    Call,
    RefusedCallError,
    Shared,
)
from picker.serving.seam import LogEntry
from picker.serving.wire.accesslog_pb2 import StreamAccessLogsResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse


class HealthService:
    """Health, asked once or watched."""

    def __init__(self, health: Health, shared: Shared) -> None:
        self.health = health
        self.watchers: set[WatchCall] = set()
        self._shared = shared

    def check(self, stream: Stream, _: float | None) -> Call:
        """A call of Check."""
        return CheckCall(stream, self._shared, self)

    def watch(self, stream: Stream, _: float | None) -> Call:
        """A call of Watch."""
        return WatchCall(stream, self._shared, self)

    def close(self) -> None:
        """End all watches: this replica is going away."""
        for watcher in tuple(self.watchers):
            watcher.fail(UNAVAILABLE, "this replica is shutting down")


class CheckCall(Call):
    """One question."""

    __slots__ = ("_asked", "_service")

    def __init__(self, stream: Stream, shared: Shared, service: HealthService) -> None:
        super().__init__(stream, shared)
        self._service = service
        self._asked: str | None = None

    def message(self, data: bytes) -> None:
        """The question; its end follows."""
        name = _name(data)
        if name is None:
            self.fail(INVALID_ARGUMENT, "not a health check request")
        elif self._asked is not None:
            self.fail(INTERNAL, "one message was expected")
        self._asked = name

    def half_closed(self) -> None:
        """Answer."""
        if self._asked is None:
            self.fail(INTERNAL, "one message was expected")
            return
        status = self._service.health.status(self._asked)
        if status == HealthCheckResponse.SERVICE_UNKNOWN:
            self.fail(NOT_FOUND, "no such service")
            return
        self.send((HealthCheckResponse(status=status).SerializeToString(),))
        self.finish()


class WatchCall(Call):
    """One watch: told now and at each change."""

    __slots__ = ("_end", "_name", "_service", "_told")

    def __init__(self, stream: Stream, shared: Shared, service: HealthService) -> None:
        super().__init__(stream, shared)
        self._service = service
        self._name = ""
        self._told: int | None = None
        self._end: Callable[[], None] | None = None

    def message(self, data: bytes) -> None:
        """What to watch."""
        name, service = _name(data), self._service
        if name is None:
            self.fail(INVALID_ARGUMENT, "not a health check request")
        elif self._end is not None:
            self.fail(INTERNAL, "one message was expected")
        elif len(service.watchers) >= MAX_WATCHERS:
            self.fail(RESOURCE_EXHAUSTED, "too many watchers")
        else:
            self._name = name
            service.watchers.add(self)
            self._end = service.health.listen(self._tell)
            self._tell()

    def half_closed(self) -> None:
        """The client has asked; it goes on listening."""
        if self._end is None:
            self.fail(INTERNAL, "one message was expected")

    def sent(self) -> None:
        """The client has taken what it was told; more may have happened since."""
        self._tell()

    def cancelled(self) -> None:
        """Nobody listens any more."""
        self._service.watchers.discard(self)
        if self._end is not None:
            self._end()

    broken = cancelled

    def _tell(self) -> None:
        status = self._service.health.status(self._name)
        if status != self._told and not self.stream.waits and not self.finished:
            self._told = status
            self.send((HealthCheckResponse(status=status).SerializeToString(),))


class LogService:
    """The access log service: each batch of entries goes to ``logged`` as it comes."""

    def __init__(
        self,
        logged: Callable[[list[LogEntry]], None],
        *,
        shared: Shared,
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self.last_named: float | None = None
        """When an entry last named a booking, in the clock's time."""
        self.calls: set[LogCall] = set()
        self.closed = False
        self._shared = shared
        self._counts = counts
        self._logged = logged
        self._clock = clock

    def open(self, stream: Stream, _: float | None) -> Call:
        """A new call. Raises `RefusedCallError` where no more are taken."""
        if self.closed or len(self.calls) >= MAX_LOG_STREAMS:
            raise RefusedCallError(UNAVAILABLE, "this replica takes no more access logs")
        call = LogCall(stream, self._shared, self)
        self._counts.log_streams += 1
        self.calls.add(call)
        return call

    def close(self) -> None:
        """End the open streams with OK and take no new ones: the gateway finds another replica."""
        self.closed = True
        for call in tuple(self.calls):
            call.half_closed()

    def take(self, data: bytes) -> None:
        """A message of some gateway."""
        entries = entries_of(data, self._counts)
        if entries:
            self.last_named = self._clock()
            self._logged(entries)


class LogCall(Call):
    """One gateway's log."""

    __slots__ = ("_service",)

    def __init__(self, stream: Stream, shared: Shared, service: LogService) -> None:
        super().__init__(stream, shared)
        self._service = service

    def message(self, data: bytes) -> None:
        """Entries."""
        self._service.take(data)

    def half_closed(self) -> None:
        """The end: acknowledge."""
        self.send((StreamAccessLogsResponse().SerializeToString(),))
        self.finish()
        self.cancelled()

    def cancelled(self) -> None:
        """The gateway is gone."""
        self._service.calls.discard(self)

    broken = cancelled


def _name(data: bytes) -> str | None:
    try:
        return HealthCheckRequest.FromString(data).service
    except DecodeError:
        return None
