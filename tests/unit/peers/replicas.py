"""A peers port on loopback, and one that answers whatever a test likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from picker.peers.counts import Counts
from picker.peers.credentials import Credentials
from picker.peers.port import PeersPort, Told
from picker.peers.shapes import (
    EventsSummary,
    PlaneSummary,
    Summary,
    WorkersSummary,
)
from picker.settings import PeersSettings

SECRET = "0123456789abcdef-secret"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def summary_named(name: str, **changed: Any) -> Summary:
    """A replica in good order, but for what is changed."""
    values: dict[str, Any] = {
        "name": name,
        "incarnation": f"{name}-1",
        "pool": "llama/llama-8b",
        "version": "0.1.0",
        "state": "ready",
        "settings_digest": "d1",
        "plane": PlaneSummary(mode="eventual", state="healthy", joined=True, epoch=7, number=1),
        "events": EventsSummary(state="healthy"),
        "workers": WorkersSummary(known=1, reporting=1),
        "members": ["a", "b", "c"],
    }
    return Summary(**(values | changed))


class Served:
    """A port that listens, and what it counted."""

    def __init__(self, port: PeersPort, counts: Counts) -> None:
        self.port = port
        self.counts = counts

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port.port}"


@asynccontextmanager
async def replica(name: str, *, host: str = "127.0.0.1", **settings: Any) -> AsyncIterator[Served]:
    """The peers port of a replica that remembers the decision `known-to-NAME`."""
    counts = Counts()
    chosen = PeersSettings(peers_host=host, peers_port=0, **settings)
    told = Told(
        summary=lambda: summary_named(name),
        status=lambda: {"replica": {"name": name}, "workers": []},
        why=lambda asked: [{"replica": name, "worker": "w:1"}] if asked == f"known-to-{name}" else [],
    )
    port = PeersPort(chosen, told, credentials=Credentials(chosen, counts), counts=counts)
    await port.start()
    try:
        yield Served(port, counts)
    finally:
        await port.stop()


@asynccontextmanager
async def odd_peer(answer: Answer) -> AsyncIterator[str]:
    """The address of a peer that answers as it is told."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
