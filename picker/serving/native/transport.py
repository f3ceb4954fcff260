"""Both ports of a replica on the transport of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from picker.serving.counts import Counts
from picker.serving.exchange import Hold
from picker.serving.health import Health
from picker.serving.http2.limits import Counts as Http2Counts
from picker.serving.methods import CHECK, LOGS, PROCESS, WATCH
from picker.serving.native.calls import Shared
from picker.serving.native.contexts import context_of
from picker.serving.native.deadlines import Deadlines
from picker.serving.native.extproc import ExtProc
from picker.serving.native.port import Port
from picker.serving.native.router import Route, Router
from picker.serving.native.services import HealthService, LogService
from picker.serving.seam import Requests
from picker.serving.streams import CLOSE_SECONDS, Streams
from picker.serving.tls import Certificates
from picker.settings import ServingSettings

log = structlog.get_logger(__name__)


class NativeTransport:
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
        self._streams = Streams(settings, requests, hold=hold, counts=counts, clock=clock)
        self._deadlines = Deadlines(clock, lambda error: log.error("a deadline raised", exc_info=error))
        shared = Shared(budget=self._streams.budget, counts=http2, max_message=max_message)
        self._extproc = ExtProc(self._streams, shared, self._deadlines)
        self._logs = LogService(requests.logged, shared=shared, counts=counts, clock=clock)
        small = Shared(budget=self._streams.budget, counts=http2, max_message=health_bytes)
        self._health = HealthService(health, small)
        health_routes = {CHECK: Route(self._health.check), WATCH: Route(self._health.watch)}
        routes = {
            PROCESS: Route(self._extproc.open, guarded=True),
            LOGS: Route(self._logs.open, guarded=True),
        }

        def port(served: dict[str, Route]) -> Port:
            router = Router(served, deadlines=self._deadlines, counts=counts, http2=http2, clock=clock)
            return Port(
                router,
                settings,
                counts=counts,
                http2=http2,
                clock=clock,
                handshake_seconds=handshake_seconds,
            )

        self._main, self._probes = port({**routes, **health_routes}), port(health_routes)

    @property
    def open_streams(self) -> int:
        """ext_proc streams open now."""
        return len(self._extproc.calls)

    @property
    def open_log_streams(self) -> int:
        """Access log streams open now."""
        return len(self._logs.calls)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of bodies and of unfinished messages held now."""
        return self._streams.budget.held

    @property
    def last_logged(self) -> float | None:
        """When an access log entry last named a booking, in the clock's time; None: never."""
        return self._logs.last_named

    async def listen(self, host: str, port: int, certificates: Certificates | None) -> int:
        """Serve everything on this port. Raises `OSError` where it is taken, `TlsError`."""
        if certificates is not None:
            self._main.context = context_of(certificates.material)
            certificates.renewed = lambda material: setattr(self._main, "context", context_of(material))
        return await self._main.listen(host, port)

    async def listen_health(self, host: str, port: int) -> int:
        """Serve health alone on this port. Raises `OSError`."""
        return await self._probes.listen(host, port)

    def close_log_streams(self) -> None:
        """End access log streams, and take no new ones."""
        self._logs.close()

    async def drain(self, timeout: float) -> int:
        """Wait until no ext_proc stream is open, at most ``timeout`` seconds; then close the rest with OK."""
        await self._extproc.idle(timeout)
        rest = self._extproc.drain()
        await self._extproc.idle(CLOSE_SECONDS)
        return rest

    async def stop(self, timeout: float) -> None:
        """Close all connections: streams that are still open have ``timeout`` seconds."""
        self._health.close()
        await asyncio.gather(self._main.stop(timeout), self._probes.stop(timeout))
        self._deadlines.close()
