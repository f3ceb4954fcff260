"""The peers port: what a replica tells others of itself. Read-only; it never asks anybody further."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from aiohttp import web

from picker.loopback import came_over_loopback, is_loopback_host
from picker.peers.counts import Counts, Refusal
from picker.peers.credentials import Credentials
from picker.peers.shapes import Summary, shown
from picker.settings import PeersSettings
from picker.tls import names_shown, peer_of
from picker.webport import Counts as Connections
from picker.webport import open_runner

log = structlog.get_logger(__name__)

BACKLOG = 128
OFF = (
    "neither PICKER_PEERS_SECRET_FILE nor PICKER_PEERS_TLS_CA_FILE is set, so that anybody could ask; "
    "set one of them, or bind to loopback by PICKER_PEERS_HOST"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Told:
    """Where the port reads what it tells. Every call is cheap and never waits."""

    summary: Callable[[], Summary]
    status: Callable[[], Mapping[str, Any]]
    why: Callable[[str], Sequence[Mapping[str, Any]]]


class PeersPort:
    """Serves `Told` to whoever proves to be a replica; stays closed where nobody could."""

    def __init__(
        self, settings: PeersSettings, told: Told, *, credentials: Credentials, counts: Counts
    ) -> None:
        self._settings = settings
        self._told = told
        self._credentials = credentials
        self._counts = counts
        self.connections = Connections()
        self._runner: web.AppRunner | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._said: set[str] = set()
        self.port = settings.peers_port
        """The real port, once it listens."""

    async def start(self) -> None:
        """Listen, unless nothing guards the port and it is not bound to loopback.

        Raises:
            OSError: the port is taken.
        """
        if not self._credentials.guard and not is_loopback_host(self._settings.peers_host):
            log.info("the peers port is closed", reason=OFF)
            return
        app = web.Application(client_max_size=1024)
        app.add_routes(
            [
                web.get("/summary.json", self._guarded(self._summary)),
                web.get("/status.json", self._guarded(self._status)),
                web.get("/why/{id}", self._guarded(self._why)),
            ]
        )
        self._runner = open_runner(app, keepalive=5, counts=self.connections)
        await self._runner.setup()
        await self._listen(self._runner)
        self.port = self._runner.addresses[0][1]
        certificates = self._credentials.certificates
        if certificates is not None:
            self._renewal = asyncio.create_task(certificates.run(), name="peers' certificates")
        log.info("answering peers", port=self.port, guard=self._credentials.guard or "loopback only")

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self._settings.peers_host, self._settings.peers_port
        certificates = self._credentials.certificates
        context = None if certificates is None else certificates.listening
        if host:
            await web.TCPSite(runner, host, port, ssl_context=context, backlog=BACKLOG).start()
        else:
            await web.SockSite(runner, _everywhere(port), ssl_context=context, backlog=BACKLOG).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def shown(self) -> Mapping[str, Any]:
        """For the status page."""
        listening = self._runner is not None
        return {
            "listening": listening,
            "port": self.port if listening else None,
            "guard": (self._credentials.guard or "loopback only") if listening else None,
            "closed_because": None if listening else OFF,
            "fault": self._credentials.fault or None,
        }

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            refusal = self._refusal(request)
            if refusal is not None:
                self._counts.refusals[refusal] += 1
                self._say(refusal, request)
                return _json(
                    {"error": _WORDS[refusal]}, 403 if refusal in ("certificate", "loopback") else 401
                )
            self._counts.served += 1
            return await handler(request)

        return guarded

    def _refusal(self, request: web.Request) -> Refusal | None:
        credentials = self._credentials
        if not credentials.guard:
            # without the header aiohttp would look the host's own name up, and wait for it
            meant_for_us = came_over_loopback(request.remote, request.headers.get("Host"))
            return None if meant_for_us else "loopback"
        if credentials.certificates is not None and not credentials.certificates.admits(_peer(request)):
            return "certificate"
        if credentials.locked:
            return "locked"
        return None if credentials.accepts(request.headers.get("Authorization", "")) else "secret"

    def _say(self, refusal: Refusal, request: web.Request) -> None:
        """Once a kind; the rest is counted."""
        if refusal not in self._said:
            self._said.add(refusal)
            names = names_shown(_peer(request)) if refusal == "certificate" else []
            log.warning("a peer was refused", reason=_WORDS[refusal], remote=request.remote, names=names)

    async def _summary(self, _request: web.Request) -> web.Response:
        return _json(shown(self._told.summary()))

    async def _status(self, _request: web.Request) -> web.Response:
        return _json(self._told.status())

    async def _why(self, request: web.Request) -> web.Response:
        decisions = self._told.why(request.match_info["id"])
        if not decisions:
            return _json({"error": "no decision under that id is remembered here"}, 404)
        return _json({"decisions": list(decisions)})


_WORDS: Mapping[Refusal, str] = {
    "secret": "the bearer token is missing or none of the secrets in PICKER_PEERS_SECRET_FILE",
    "certificate": "the certificate carries none of the names in PICKER_PEERS_TLS_NAMES",
    "loopback": "without a secret this port answers to loopback only",
    "locked": "no secret can be read from PICKER_PEERS_SECRET_FILE, so nobody is answered",
}


def _peer(request: web.Request) -> Mapping[str, list[bytes]]:
    return peer_of(request.transport) if request.transport is not None else {}


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, content_type="application/json")


def _everywhere(port: int) -> socket.socket:
    """A socket on every address of both families, or of the one that there is."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError:
            log.debug("no IPv6 here, the peers port is IPv4 only")
    return socket.create_server(("0.0.0.0", port))  # noqa: S104 - guarded by secret or certificate, else never reached
