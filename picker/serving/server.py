"""The two ports of a replica towards its gateway: ext_proc, access log and health; and health alone for probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from picker.serving.counts import Counts
from picker.serving.exchange import Hold
from picker.serving.grpcio_ports import GrpcioTransport
from picker.serving.health import Health
from picker.serving.http2.limits import Counts as Http2Counts
from picker.serving.native.transport import NativeTransport
from picker.serving.seam import Requests
from picker.serving.tls import Certificates, open_certificates
from picker.settings import ServingSettings

log = structlog.get_logger(__name__)

MESSAGE_SLACK = 4 * 1024 * 1024
"""Bytes over the body limit that one message may have: a body a little too large shall get its 413."""
HEALTH_BYTES = 64 * 1024
"""Most bytes of a message on the health port."""
HANDSHAKE_SECONDS = 20
"""How long a new connection may take to TLS and HTTP/2 settings."""
STOP_SECONDS = 2.0


class PortError(Exception):
    """A port cannot be listened on; the text names its setting."""


class Transport(Protocol):
    """What carries streams between gateways and exchanges."""

    @property
    def open_streams(self) -> int:
        """ext_proc streams open now."""
        ...

    @property
    def open_log_streams(self) -> int:
        """Access log streams open now."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies held now."""
        ...

    @property
    def last_logged(self) -> float | None:
        """When an access log entry last named a booking, in the clock's time; None: never."""
        ...

    async def listen(self, host: str, port: int, certificates: Certificates | None) -> int:
        """Serve everything on this port; returns its number. Raises `OSError` where it is taken."""
        ...

    async def listen_health(self, host: str, port: int) -> int:
        """Serve health alone on this port, in plaintext."""
        ...

    def close_log_streams(self) -> None:
        """End access log streams, and take no new ones."""
        ...

    async def drain(self, timeout: float) -> int:
        """Wait until no ext_proc stream is open, at most ``timeout`` seconds; then close the rest with OK."""
        ...

    async def stop(self, timeout: float) -> None:
        """Close all connections; what is still open has ``timeout`` seconds."""
        ...


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
        self.http2 = Http2Counts()
        """What the native transport counts of HTTP/2; all zero on grpcio."""
        self.port = 0
        """Port of ext_proc, access log and health, once started."""
        self.health_port = 0
        """Port of health alone, once started."""
        self._settings = settings
        self._requests = requests
        self._hold = hold
        self._clock = clock
        self._health = Health()
        self._transport: Transport | None = None
        self._certificates: Certificates | None = None
        self._reload: asyncio.Task[None] | None = None

    @property
    def open_streams(self) -> int:
        """ext_proc streams open now."""
        return self._transport.open_streams if self._transport else 0

    @property
    def open_log_streams(self) -> int:
        """Access log streams open now."""
        return self._transport.open_log_streams if self._transport else 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies held now."""
        return self._transport.buffered_bytes if self._transport else 0

    @property
    def last_logged(self) -> float | None:
        """When an access log entry last named a booking, in the clock's time; None: never."""
        return self._transport.last_logged if self._transport else None

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
        certificates = self._certificates = open_certificates(settings, self.counts)
        transport = self._transport = self._made()
        host = settings.grpc_host
        try:
            self.port = await _listening(
                transport.listen(host, settings.grpc_port, certificates),
                host,
                settings.grpc_port,
                "PICKER_GRPC_PORT",
            )
            self.health_port = await _listening(
                transport.listen_health(host, settings.grpc_health_port),
                host,
                settings.grpc_health_port,
                "PICKER_GRPC_HEALTH_PORT",
            )
        except BaseException:
            await self.stop()
            raise
        if certificates and settings.tls == "files" and settings.tls_reload_seconds:
            self._reload = asyncio.create_task(certificates.run(), name="certificates")
        log.info(
            "serving the gateway",
            port=self.port,
            health_port=self.health_port,
            tls=settings.tls,
            transport=settings.transport,
        )

    def _made(self) -> Transport:
        kind = NativeTransport if self._settings.transport == "native" else GrpcioTransport
        return kind(
            self._settings,
            self._requests,
            hold=self._hold,
            health=self._health,
            counts=self.counts,
            http2=self.http2,
            clock=self._clock,
            max_message=message_bytes(self._settings),
            health_bytes=HEALTH_BYTES,
            handshake_seconds=HANDSHAKE_SECONDS,
        )

    def set_ready(self, ready: bool) -> None:
        """Say in health whether new requests are welcome."""
        self._health.set_ready(ready)

    def close_log_streams(self) -> None:
        """End access log streams, so that the gateway sends its log to another replica."""
        if self._transport:
            self._transport.close_log_streams()

    async def drain_streams(self, timeout: float) -> int:
        """Wait until no ext_proc stream is open, at most ``timeout`` seconds; then close the rest with OK.

        Returns how many had to be closed. New streams are served all the while.
        """
        return await self._transport.drain(timeout) if self._transport else 0

    async def stop(self) -> None:
        """Close what is still open with OK and stop listening."""
        if self._reload:
            self._reload.cancel()
        self.close_log_streams()
        await self.drain_streams(0)
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.stop(STOP_SECONDS)


async def _listening(port: Awaitable[int], host: str, number: int, setting: str) -> int:
    try:
        return await port
    except (OSError, RuntimeError) as error:
        address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        raise PortError(f"PICKER_GRPC_HOST, {setting}: cannot listen on {address}: {error}") from error


def message_bytes(settings: ServingSettings) -> int:
    """Most bytes of one gRPC message: as set, else what one body at its limit needs."""
    return settings.max_message_bytes or settings.max_body_bytes + MESSAGE_SLACK
