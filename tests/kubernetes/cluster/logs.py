"""What `kubectl logs` and `helm test --logs` ask a kubelet for."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.kubernetes.cluster.network import NODE
from tests.tools.certificates import Authority

PORT: Final = 10250


def log_file(pods: Path, namespace: str, pod: str, container: str) -> Path:
    """Where a container's words are, over all its lives."""
    return pods / f"{namespace}_{pod}" / "containers" / container / "log"


async def serve(pods: Path) -> None:
    """Answer the API server until cancelled. Whole logs only: no `--follow`, and `--previous` is in the same file."""

    async def answer(request: web.Request) -> web.Response:
        where = request.match_info
        file = log_file(pods, where["namespace"], where["pod"], where["container"])
        if not file.exists():
            return web.Response(status=404, text=f"no log of {where['pod']}/{where['container']}\n")
        lines = file.read_text(errors="replace").splitlines(keepends=True)
        tail = int(request.query.get("tailLines", len(lines)))
        return web.Response(text="".join(lines[max(0, len(lines) - tail) :]))

    application = web.Application()
    application.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", answer)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, NODE, PORT, ssl_context=_context(pods.parent / "kubelet")).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _context(folder: Path) -> ssl.SSLContext:
    certificate, key = Authority().pair("kubelet").write(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
