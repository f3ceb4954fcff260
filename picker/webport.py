"""How our own ports serve HTTP: for how long, to how many, and what of a client's words may reach the log.

Beneath the parts.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = structlog.get_logger(__name__)

MOST_CONNECTIONS = 256
"""Of one port at a time: probes, scrapers, operators and peers need a handful; each costs a file descriptor, which the
gateway's streams need too."""


@dataclass(slots=True)
class Counts:
    """What became of connections."""

    turned_away: int = 0
    """Closed unheard, since `MOST_CONNECTIONS` were open."""


class Runner(web.AppRunner):
    """Serves pages to so many connections at a time; further ones are closed at once, and counted.

    A connection whose TLS handshake is under way is not one yet: those end by the handshake's own deadline.
    """

    def __init__(
        self, app: web.Application, *, keepalive: float, counts: Counts, most: int = MOST_CONNECTIONS
    ) -> None:
        super().__init__(
            app,
            access_log=None,
            logger=_faults(),
            handle_signals=False,
            keepalive_timeout=keepalive,
            shutdown_timeout=1,
        )
        self._counts = counts
        self._most = most

    @property
    def server(self) -> web.Server | None:
        """What makes a protocol for each connection: the server itself, behind the count."""
        server = super().server
        if server is None:
            return None

        def admit() -> asyncio.Protocol:
            if len(server.connections) < self._most:
                return server()
            self._counts.turned_away += 1
            return _TurnedAway()

        return cast("web.Server", admit)  # sites do nothing with it but call it


class _TurnedAway(asyncio.Protocol):
    """A connection that is closed before it is heard."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


def open_runner(app: web.Application, *, keepalive: float, counts: Counts | None = None) -> Runner:
    """A runner of the pages, to be set up and given sites.

    Args:
        app: The pages.
        keepalive: How long a connection may stay without a whole request, in seconds.
        counts: Where connections are counted; None: nowhere.
    """
    return Runner(app, keepalive=keepalive, counts=Counts() if counts is None else counts)


class _Retold(logging.Handler):
    """Tells the server's faults in our own log.

    A request that is no HTTP is the client's doing: its text, which may hold a token, is told to nobody, and a flood of
    them writes one line for each kind of fault.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
            return
        fault = type(error).__name__
        tell = log.debug if fault in self._said else log.warning
        self._said.add(fault)
        tell("a request that is no HTTP was refused; more of the kind are told at debug", fault=fault)


def _faults() -> logging.Logger:
    """A server's own logger, apart from all others, so that nothing but `_Retold` hears it."""
    faults = logging.Logger("picker.webport")
    faults.addHandler(_Retold())
    return faults
