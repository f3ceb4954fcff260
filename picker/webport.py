"""How our own ports serve HTTP: for how long, and what of a client's words may reach the log. Beneath the parts."""

from __future__ import annotations

import logging

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = structlog.get_logger(__name__)


def open_runner(app: web.Application, *, keepalive: float) -> web.AppRunner:
    """A runner of the pages, to be set up and given sites.

    Args:
        app: The pages.
        keepalive: How long a connection may stay without a whole request, in seconds.
    """
    return web.AppRunner(
        app,
        access_log=None,
        logger=_faults(),
        handle_signals=False,
        keepalive_timeout=keepalive,
        shutdown_timeout=1,
    )


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
