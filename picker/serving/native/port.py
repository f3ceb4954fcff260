"""One listening port: takes connections, looks after them, and lets them go."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

import structlog

from picker.serving.counts import Counts
from picker.serving.http2.connection import Connection
from picker.serving.http2.limits import Counts as Http2Counts
from picker.serving.http2.limits import Limits
from picker.serving.native.contexts import speaks_http2
from picker.serving.native.link import Link
from picker.serving.native.router import Router
from picker.settings import ServingSettings
from picker.tls import Allowed, peer_of

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.5
"""Between two looks at all connections."""


class Port:
    """One port and its connections."""

    def __init__(
        self,
        router: Router,
        settings: ServingSettings,
        *,
        counts: Counts,
        http2: Http2Counts,
        clock: Callable[[], float],
        handshake_seconds: float,
    ) -> None:
        self.counts = counts
        self.http2 = http2
        self.clock = clock
        self.handshake_seconds = handshake_seconds
        self.keepalive = settings.keepalive_seconds
        self.keepalive_timeout = settings.keepalive_timeout_seconds
        self.context: ssl.SSLContext | None = None
        """For new connections; None: plaintext."""
        self._router = router
        self._limits = Limits(streams=settings.max_connection_streams)
        self._most = settings.max_connections
        self._allowed = Allowed(settings.tls_client_names) if settings.tls_client_names else None
        self._links: set[Link] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._look: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def listen(self, host: str, port: int) -> int:
        """Take connections; returns the port's number. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        factory = (lambda: Link(self)) if self.context is None else (lambda: _Handshake(self))
        self._server = await loop.create_server(factory, host, port, backlog=1024)
        self._look = loop.call_later(LOOK_SECONDS, self._look_after)
        return cast("int", self._server.sockets[0].getsockname()[1])

    # -- connections --------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether no connection more may be taken."""
        return len(self._links) + len(self._handshakes) >= self._most

    def refuse(self) -> None:
        """A connection more than may be taken came."""
        self.http2.connections_refused += 1

    def connect(self, link: Link, transport: asyncio.Transport) -> Connection | None:
        """A connection stands; None where it is not to be served."""
        if len(self._links) >= self._most:
            self.refuse()
            return None
        if not speaks_http2(transport):
            self.http2.connections_silent += 1
            return None
        self.http2.connections += 1
        stranger, accept = self._stranger(transport), self._router.accept
        self._links.add(link)
        self._empty.clear()
        return Connection(
            accept if stranger is None else partial(accept, stranger=stranger),
            limits=self._limits,
            counts=self.http2,
            wake=link.wake,
            defect=_defect,
            now=self.clock(),
        )

    def disconnected(self, link: Link) -> None:
        """A connection is gone."""
        self._links.discard(link)
        if not self._links:
            self._empty.set()

    def _stranger(self, transport: asyncio.Transport) -> Mapping[str, list[bytes]] | None:
        """The names of a client that has shown none of the allowed ones; None: it may ask."""
        if self._allowed is None:
            return None
        peer = peer_of(transport)
        return None if self._allowed.admits(peer) else peer

    def handshake(self, transport: asyncio.Transport) -> None:
        """A connection is to begin with TLS."""
        if self.full:
            self.refuse()
            transport.abort()
            return
        self.counts.tls_handshakes += 1
        task = asyncio.ensure_future(self._start_tls(transport))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _start_tls(self, transport: asyncio.Transport) -> None:
        assert self.context is not None
        link = Link(self)
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                link,
                self.context,
                server_side=True,
                ssl_handshake_timeout=self.handshake_seconds,
                ssl_shutdown_timeout=LOOK_SECONDS,
            )
        except (OSError, asyncio.CancelledError):
            # among them ssl.SSLError and the timeout: the client's business, and counted by those that live
            transport.abort()
            return
        if secured is not None:
            link.connection_made(secured)

    def _look_after(self) -> None:
        now = self.clock()
        for link in tuple(self._links):
            link.look(now)
        self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_after)

    # -- the end ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no new connections, and tell those that stand to go elsewhere; what is open goes on."""
        if self._server is not None:
            self._server.close()
        for link in tuple(self._links):
            link.drain()

    async def stop(self, timeout: float) -> None:
        """Let connections go: at once those without streams, the rest after at most ``timeout`` seconds."""
        self.drain()
        for task in tuple(self._handshakes):
            task.cancel()
        for link in tuple(self._links):
            link.settle()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout)
        for link in tuple(self._links):
            link.abort()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout)
        if self._look is not None:
            self._look.cancel()


class _Handshake(asyncio.Protocol):
    """A connection that has not begun its TLS."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._port.handshake(cast("asyncio.Transport", transport))


def _defect(error: Exception) -> None:
    log.error("serving a stream raised", exc_info=error)
