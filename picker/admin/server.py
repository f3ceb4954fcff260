"""
The admin port: health for all, metrics for all or, protected, as the rest: status, bookings, why and the log level for
loopback, a token of the operator's, or one that the API server knows.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from picker.admin.protection import Protection, Verdict
from picker.loopback import came_over_loopback
from picker.settings import AdminSettings
from picker.webport import Counts, open_runner

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOG_LEVELS = ("debug", "info", "warning", "error")


class Everywhere(Protocol):
    """Asks the other replicas too; each call has a deadline and never raises. HTTP status and page."""

    async def replicas(self) -> Mapping[str, Any]:
        """Every replica in short."""
        ...

    async def status(self, name: str) -> tuple[int, Mapping[str, Any]]:
        """The status of the replica of that name."""
        ...

    async def why(self, name: str) -> tuple[int, Mapping[str, Any]]:
        """The decisions under an id, by whichever replica remembers them."""
        ...


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
    everywhere: Everywhere | None = None
    """Answers of all replicas; None: this one's alone."""


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body + b"\n", status=status, content_type="application/json")


def _is_loopback(request: web.Request) -> bool:
    # without the header aiohttp would look the host's own name up, and wait for it
    return came_over_loopback(request.remote, request.headers.get("Host"))


class AdminServer:
    """Serves `Pages` on one port.

    Args:
        settings: Its own.
        pages: What is shown.
        protection: Judges tokens by the API server; None: nobody does, and metrics are open.
    """

    def __init__(
        self, settings: AdminSettings, pages: Pages, *, protection: Protection | None = None
    ) -> None:
        self._settings = settings
        self._pages = pages
        self._protection = protection
        self.counts = Counts()
        self._runner: web.AppRunner | None = None
        self.port = settings.metrics_port

    async def start(self) -> None:
        """Listen; ``port`` then holds the real port."""
        app = web.Application(client_max_size=4096)
        app.add_routes(
            [
                web.get(
                    "/metrics", self._metrics if self._protection is None else self._guarded(self._metrics)
                ),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/status.json", self._guarded(self._status)),
                web.get("/bookings.json", self._guarded(self._bookings)),
                web.get("/why/{id}", self._guarded(self._why)),
                web.get("/peers.json", self._guarded(self._peers)),
                web.get("/replicas/{name}/status.json", self._guarded(self._status_of)),
                web.get("/loglevel", self._guarded(self._log_level)),
                web.post("/loglevel", self._guarded(self._log_level)),
            ]
        )
        self._runner = open_runner(app, keepalive=30, counts=self.counts)
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
        wanted = f"Bearer {token}".encode("utf-8", "surrogateescape")

        async def guarded(request: web.Request) -> web.StreamResponse:
            authorization = request.headers.get("Authorization", "")
            given = authorization.encode("utf-8", "surrogateescape")
            if token and hmac.compare_digest(given, wanted):
                return await handler(request)
            if not token and _is_loopback(request):
                return await handler(request)
            if self._protection is not None:
                refusal = await self._judged(self._protection, request, authorization)
                return await handler(request) if refusal is None else refusal
            how = "a bearer token" if token else "loopback, or PICKER_ADMIN_TOKEN"
            return _json({"error": f"this page needs {how}"}, 401 if token else 403)

        return guarded

    async def _judged(
        self, protection: Protection, request: web.Request, authorization: str
    ) -> web.Response | None:
        """The refusal, or None."""
        # an id in the path is nobody's right of its own
        path, verb = request.path, request.method.lower()
        path = next((start for start in ("/why/", "/replicas/") if path.startswith(start)), path)
        verdict = await protection.judge(authorization, path=path, verb="get" if verb == "head" else verb)
        if verdict is Verdict.ALLOWED:
            return None
        text = {
            Verdict.UNKNOWN: "this page needs a bearer token that the API server knows",
            Verdict.FORBIDDEN: f"the token's bearer may not {verb} the non-resource URL {path}",
            Verdict.AWAY: f"the token cannot be checked: {protection.reason}",
            Verdict.BUSY: "too many unknown tokens are being checked",
        }[verdict]
        refusal = _json({"error": text}, verdict.value)
        if verdict is Verdict.UNKNOWN:
            refusal.headers["WWW-Authenticate"] = "Bearer"
        elif verdict in (Verdict.AWAY, Verdict.BUSY):
            refusal.headers["Retry-After"] = "1"
        return refusal

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
        if self._pages.everywhere is not None:
            status, page = await self._pages.everywhere.why(name)
            return _json(page, status)
        decisions = self._pages.why(name)
        if not decisions:
            text = "no decision under that id is remembered here; another replica may have made it"
            return _json({"error": text, "id": name[:200]}, 404)
        return _json({"id": name, "decisions": list(decisions)})

    async def _peers(self, _request: web.Request) -> web.Response:
        if self._pages.everywhere is None:
            return _json({"error": "this replica asks no others"}, 404)
        return _json(await self._pages.everywhere.replicas())

    async def _status_of(self, request: web.Request) -> web.Response:
        if self._pages.everywhere is None:
            return _json({"error": "this replica asks no others"}, 404)
        status, page = await self._pages.everywhere.status(request.match_info["name"])
        return _json(page, status)

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
