"""The two ports of a replica towards its gateway: ext_proc, access log and health; and health alone for probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import structlog

from picker.serving.counts import Counts
from picker.serving.exchange import Hold
from picker.serving.grpcio_services import HealthService, LogService
from picker.serving.grpcio_transport import ExtProc
from picker.serving.guard import Guard
from picker.serving.health import Health
from picker.serving.seam import Requests
from picker.serving.tls import Allowed, Certificates, open_certificates
from picker.settings import ServingSettings

log = structlog.get_logger(__name__)

MESSAGE_SLACK = 4 * 1024 * 1024
"""Bytes over the body limit that one message may have: a body a little too large shall get its 413."""
HEALTH_BYTES = 64 * 1024
"""Most bytes of a message on the health port."""
METADATA_BYTES = 32 * 1024
"""Most bytes of the gRPC metadata of one stream; the headers of the HTTP request are a message, not metadata."""
HANDSHAKE_SECONDS = 20
"""How long a new connection may take to TLS and HTTP/2 settings."""
STOP_SECONDS = 2.0


class PortError(Exception):
    """A port cannot be listened on; the text names its setting."""


class Server:
    """Serves one gateway side. ``hold`` is asked at each response's headers until when its stream is held."""

    def __init__(
        self,
        settings: ServingSettings,
        requests: Requests,
        *,
        hold: Callable[[], Hold],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        self.port = 0
        """Port of ext_proc, access log and health, once started."""
        self.health_port = 0
        """Port of health alone, once started."""
        self._settings = settings
        self._requests = requests
        self._hold = hold
        self._clock = clock
        self._health = Health()
        self._extproc: ExtProc | None = None
        self._logs: LogService | None = None
        self._certificates: Certificates | None = None
        self._reload: asyncio.Task[None] | None = None
        self._servers: list[grpc.aio.Server] = []

    @property
    def open_streams(self) -> int:
        """ext_proc streams open now."""
        return len(self._extproc.streams) if self._extproc else 0

    @property
    def open_log_streams(self) -> int:
        """Access log streams open now."""
        return self._logs.streams if self._logs else 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies held now."""
        return self._extproc.budget.held if self._extproc else 0

    @property
    def last_logged(self) -> float | None:
        """When an access log entry last named a booking, in the clock's time; None: never."""
        return self._logs.last_named if self._logs else None

    @property
    def certificate_expires(self) -> float | None:
        """When the certificate in force ends, in seconds since 1970; None: no TLS."""
        return self._certificates.expires.timestamp() if self._certificates else None

    async def start(self) -> None:
        """Listen. Streams are served from here on; health says not ready until `set_ready`.

        Raises:
            PortError: where a port is taken.
            TlsError: where the certificate cannot be used.
        """
        settings = self._settings
        self._certificates = open_certificates(settings, self.counts)
        self._extproc = ExtProc(
            settings, self._requests, hold=self._hold, counts=self.counts, clock=self._clock
        )
        self._logs = LogService(self._requests.logged, counts=self.counts, clock=self._clock)
        health = HealthService(self._health)
        main = grpc.aio.server(
            handlers=(*self._guarded(self._extproc, self._logs), health),
            options=_options(settings, message_bytes(settings)),
        )
        probes = grpc.aio.server(handlers=(health,), options=_options(settings, HEALTH_BYTES))
        self._servers = [main, probes]
        credentials = self._certificates.credentials if self._certificates else None
        try:
            self.port = _listen(main, settings.grpc_host, settings.grpc_port, "PICKER_GRPC_PORT", credentials)
            self.health_port = _listen(
                probes, settings.grpc_host, settings.grpc_health_port, "PICKER_GRPC_HEALTH_PORT", None
            )
            await main.start()
            await probes.start()
        except BaseException:
            await self.stop()
            raise
        if self._certificates and settings.tls == "files" and settings.tls_reload_seconds:
            self._reload = asyncio.create_task(self._certificates.run(), name="certificates")
        log.info("serving the gateway", port=self.port, health_port=self.health_port, tls=settings.tls)

    def _guarded(self, *services: grpc.GenericRpcHandler) -> tuple[grpc.GenericRpcHandler, ...]:
        """The services that only clients of an allowed name may use; health is everybody's."""
        if not self._settings.tls_client_names:
            return services
        allowed = Allowed(self._settings.tls_client_names)
        return tuple(Guard(service, allowed, self.counts) for service in services)

    def set_ready(self, ready: bool) -> None:
        """Say in health whether new requests are welcome."""
        self._health.set_ready(ready)

    def close_log_streams(self) -> None:
        """End access log streams, so that the gateway sends its log to another replica."""
        if self._logs:
            self._logs.close()

    async def drain_streams(self, timeout: float) -> int:
        """Wait until no ext_proc stream is open, at most ``timeout`` seconds; then close the rest with OK.

        Returns how many had to be closed. New streams are served all the while.
        """
        return await self._extproc.drain(timeout) if self._extproc else 0

    async def stop(self) -> None:
        """Close what is still open with OK and stop listening."""
        if self._reload:
            self._reload.cancel()
        self.close_log_streams()
        await self.drain_streams(0)
        for server in self._servers:
            await server.stop(STOP_SECONDS if self.open_log_streams else None)
        self._servers = []


def _listen(
    server: grpc.aio.Server,
    host: str,
    port: int,
    setting: str,
    credentials: grpc.ServerCredentials | None,
) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise PortError(f"PICKER_GRPC_HOST, {setting}: cannot listen on {address}: {error}") from error


def message_bytes(settings: ServingSettings) -> int:
    """Most bytes of one gRPC message: as set, else what one body at its limit needs."""
    return settings.max_message_bytes or settings.max_body_bytes + MESSAGE_SLACK


def _options(settings: ServingSettings, message: int) -> list[tuple[str, int]]:
    answer = round(settings.keepalive_timeout_seconds * 1000)
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", message),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.max_connection_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
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
