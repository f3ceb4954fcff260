"""Log lines: one event a line, as JSON or text, at a level that can be changed while running."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Level:
    """The level in force; loggers ask it at each line, so that a change takes effect at once."""

    name = "info"
    number = logging.INFO


def set_level(name: str) -> None:
    """Take another level from now on. Raises KeyError for a name that is not one."""
    _Level.number = LEVELS[name]
    _Level.name = name
    logging.getLogger().setLevel(_Level.number)


def level() -> str:
    """The level in force."""
    return _Level.name


def _drop_below(
    _logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if LEVELS.get("error" if method in ("critical", "exception") else method, logging.INFO) < _Level.number:
        raise structlog.DropEvent
    return event


def configure(level_name: str, form: str) -> None:
    """Send log lines to standard error, as ``json`` or ``text``."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            _drop_below,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=LEVELS[level_name], stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    set_level(level_name)
