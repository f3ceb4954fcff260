"""
The admin port: metrics and health for all; status, bookings, why and the log level for loopback or a token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from picker.settings import AdminSettings

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOG_LEVELS = ("debug", "info", "warning", "error")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the pages read what they show. Every call is cheap and never waits."""

    metrics: Callable[[], bytes]
    ready: Callable[[], tuple[bool, Mapping[str, Any]]]
    """Whether the replica is ready, and what it waits for or does without."""
    status: Callable[[], Mapping[str, Any]]
    bookings: Callable[[], Mapping[str, Any]]
    why: Callable[[str], Sequence[Mapping[str, Any]]]
    log_level: Callable[[], str]
    set_log_level: Callable[[str], None]


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body + b"\n", status=status, content_type="application/json")


def _is_loopback(request: web.Request) -> bool:
    """
    Whether the request came over loopback, and was meant to: a foreign Host is a web page's trick (DNS
    rebinding).
    """
    if request.remote is None:
        return False
    try:
        if not ipaddress.ip_address(request.remote).is_loopback:
            return False
    except ValueError:
        return False
    host = request.url.host or ""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AdminServer:
    """Serves `Pages` on one port."""

    def __init__(self, settings: AdminSettings, pages: Pages) -> None:
        self._settings = settings
        self._pages = pages
        self._runner: web.AppRunner | None = None
        self.port = settings.metrics_port

    async def start(self) -> None:
        """Listen; ``port`` then holds the real port."""
        app = web.Application(client_max_size=4096)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/status.json", self._guarded(self._status)),
                web.get("/bookings.json", self._guarded(self._bookings)),
                web.get("/why/{id}", self._guarded(self._why)),
                web.get("/loglevel", self._guarded(self._log_level)),
                web.post("/loglevel", self._guarded(self._log_level)),
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, keepalive_timeout=30, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.admin_host, self._settings.metrics_port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _guarded(self, handler: Handler) -> Handler:
        token = self._settings.admin_token.get_secret_value()

        async def guarded(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if token and hmac.compare_digest(given.encode(), token.encode()):
                return await handler(request)
            if not token and _is_loopback(request):
                return await handler(request)
            how = "a bearer token" if token else "loopback, or PICKER_ADMIN_TOKEN"
            return _json({"error": f"this page needs {how}"}, 401 if token else 403)

        return guarded

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._pages.metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _json({"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready, detail = self._pages.ready()
        return _json({"ready": ready, **detail}, 200 if ready else 503)

    async def _status(self, _request: web.Request) -> web.Response:
        return _json(self._pages.status())

    async def _bookings(self, _request: web.Request) -> web.Response:
        return _json(self._pages.bookings())

    async def _why(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        decisions = self._pages.why(name)
        if not decisions:
            text = "no decision under that id is remembered here; another replica may have made it"
            return _json({"error": text, "id": name[:200]}, 404)
        return _json({"id": name, "decisions": list(decisions)})

    async def _log_level(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return _json({"level": self._pages.log_level(), "levels": LOG_LEVELS})
        if request.content_type != "application/json":
            return _json({"error": 'send {"level": "debug"} as application/json'}, 415)
        try:
            asked = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            asked = None
        level = asked.get("level") if isinstance(asked, dict) else None
        if level not in LOG_LEVELS:
            return _json({"error": f"level is one of {', '.join(LOG_LEVELS)}"}, 400)
        self._pages.set_log_level(level)
        log.warning("log level changed", level=level)
        return _json({"level": level})
