"""Harnesses of the backends, and the real servers that the Redis one runs against."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from stateplane.booking import Owner, Rules
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.plane import StatePlane
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import Keys
from stateplane.testing import RULES
from tests.contract.stateplane import servers
from tests.contract.stateplane.servers import Server


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
    server = servers.valkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Debian's Redis 7.0, the oldest that is served."""
    server = servers.redis7(tmp_path_factory.mktemp("redis7"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "valkey", "redis7"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[MemoryHarness | RedisHarness]:
    """The harness of each backend."""
    if request.param == "memory":
        yield MemoryHarness()
        return
    server: Server = request.getfixturevalue(request.param)
    if server.process is None:
        server.start()
    with server.client() as client:
        client.flushall()
    found = RedisHarness(server)
    yield found
    await found.thaw()
