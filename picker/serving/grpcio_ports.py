"""Both ports of a replica on grpcio."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from picker.serving.counts import Counts
from picker.serving.exchange import Hold
from picker.serving.grpcio_services import HealthService, LogService
from picker.serving.grpcio_transport import ExtProc
from picker.serving.guard import Guard
from picker.serving.health import Health
from picker.serving.http2.limits import Counts as Http2Counts
from picker.serving.seam import Requests
from picker.serving.tls import Certificates
from picker.settings import ServingSettings
from picker.tls import Allowed

METADATA_BYTES = 32 * 1024
"""Most bytes of the gRPC metadata of one stream; the headers of the HTTP request are a message, not metadata."""

LEAST_WAITING = 3_000
"""Streams that may wait to be begun, whatever `PICKER_MAX_STREAMS` is: beyond it grpcio refuses them by itself."""


class GrpcioTransport:
    """Serves ext_proc, the access log and health on one port, health alone on another."""

    def __init__(
        self,
        settings: ServingSettings,
        requests: Requests,
        *,
        hold: Callable[[], Hold],
        health: Health,
        counts: Counts,
        http2: Http2Counts,
        clock: Callable[[], float],
        max_message: int,
        health_bytes: int,
        handshake_seconds: float,
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._extproc = ExtProc(settings, requests, hold=hold, counts=counts, clock=clock)
        self._logs = LogService(requests.logged, counts=counts, clock=clock)
        services = HealthService(health)
        self._main = grpc.aio.server(
            handlers=(*self._guarded(self._extproc, self._logs), services),
            options=_options(settings, max_message, handshake_seconds),
        )
        self._probes = grpc.aio.server(
            handlers=(services,), options=_options(settings, health_bytes, handshake_seconds)
        )

    @property
    def open_streams(self) -> int:
        """ext_proc streams open now."""
        return len(self._extproc.streams)

    @property
    def open_log_streams(self) -> int:
        """Access log streams open now."""
        return self._logs.streams

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies held now."""
        return self._extproc.budget.held

    @property
    def last_logged(self) -> float | None:
        """When an access log entry last named a booking, in the clock's time; None: never."""
        return self._logs.last_named

    async def listen(self, host: str, port: int, certificates: Certificates | None) -> int:
        """Serve everything on this port. Raises `RuntimeError` where it is taken."""
        credentials = certificates.credentials if certificates else None
        return await _listen(self._main, host, port, credentials)

    async def listen_health(self, host: str, port: int) -> int:
        """Serve health alone on this port. Raises `RuntimeError` where it is taken."""
        return await _listen(self._probes, host, port, None)

    def close_log_streams(self) -> None:
        """End access log streams, and take no new ones."""
        self._logs.close()

    async def drain(self, timeout: float) -> int:
        """Wait until no ext_proc stream is open, at most ``timeout`` seconds; then close the rest with OK."""
        return await self._extproc.drain(timeout)

    async def stop(self, timeout: float) -> None:
        """Close all connections; log streams that are still open have ``timeout`` seconds."""
        for server in (self._main, self._probes):
            await server.stop(timeout if self.open_log_streams else None)

    def _guarded(self, *services: grpc.GenericRpcHandler) -> tuple[grpc.GenericRpcHandler, ...]:
        """The services that only clients of an allowed name may use; health is everybody's."""
        if not self._settings.tls_client_names:
            return services
        allowed = Allowed(self._settings.tls_client_names)
        return tuple(Guard(service, allowed, self._counts) for service in services)


async def _listen(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None
) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    number = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    await server.start()
    return number


def _options(settings: ServingSettings, message: int, handshake_seconds: float) -> list[tuple[str, int]]:
    waiting = max(settings.max_streams, LEAST_WAITING)
    answer = round(settings.keepalive_timeout_seconds * 1000)
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", message),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.max_connection_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        # from 1,000 waiting streams on grpcio refuses by chance, which gateways pass on as 500: a burst has as many
        ("grpc.server.max_pending_requests", waiting),
        ("grpc.server.max_pending_requests_hard_limit", waiting),
        ("grpc.server_handshake_timeout_ms", round(handshake_seconds * 1000)),
        # between the two grpcio refuses by chance
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.keepalive_time_ms", round(settings.keepalive_seconds * 1000)),
        # with the keepalive timeout alone grpcio 1.85 waits 60 s for the answer
        ("grpc.keepalive_timeout_ms", answer),
        ("grpc.http2.ping_timeout_ms", answer),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # gateways ping too
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
