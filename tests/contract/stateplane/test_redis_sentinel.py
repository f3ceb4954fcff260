"""A primary with a replica and three sentinels: the primary dies, the plane goes on; nothing live is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from stateplane import errors
from stateplane.backends import open_plane
from stateplane.booking import Amount, Booking, Cause, Owner, Rules
from stateplane.redis.plane import RedisPlane
from tests.contract.stateplane import servers
from tests.contract.stateplane.replicas import Replica, agree, close, eventually
from tests.contract.stateplane.servers import Sentinel, Server

NAME = "picker-plane"
FACTORIES = {"valkey": servers.valkey, "redis7": servers.redis7}


class Watched:
    """A primary, its replica, and the sentinels that watch them."""

    def __init__(self, folder: Path, factory: Callable[..., Server]) -> None:
        self.primary = factory(_folder(folder, "primary"))
        self.replica = factory(_folder(folder, "replica"), "--replicaof", "127.0.0.1", str(self.primary.port))
        self.sentinels: list[Sentinel] = []
        self.folder = folder

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}"

    def start(self) -> None:
        self.primary.start()
        self.replica.start()
        _until(lambda: _replication(self.primary)["connected_slaves"] == 1)
        for n in range(3):
            sentinel = Sentinel(
                _folder(self.folder, f"sentinel{n}"), primary=self.primary, quorum=2, name=NAME
            )
            sentinel.start()
            self.sentinels.append(sentinel)
        _until(lambda: all(self._known(one) for one in self.sentinels))

    def _known(self, sentinel: Sentinel) -> bool:
        with sentinel.client() as client:
            told = client.sentinel_masters()[NAME]
            return bool(told["num-slaves"] == 1 and told["num-other-sentinels"] == 2)

    def stop(self) -> None:
        for one in (*self.sentinels, self.primary, self.replica):
            one.kill()


def _folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def _until(what: Callable[[], bool], within: float = 20) -> None:
    until = time.monotonic() + within
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture(params=["valkey", "redis7"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path, FACTORIES[request.param])
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_the_primary_is_killed_another_is_promoted_and_all_views_agree_again(watched: Watched) -> None:
    replicas = [Replica(name, watched.url) for name in "abc"]
    try:
        assert all([await one.start() for one in replicas])
        before = [one.book(f"w{n}") for n, one in enumerate(replicas * 4)]
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 12, within=5)
        epoch = replicas[0].desk.view.version.epoch
        watched.primary.kill()
        watched.sentinels[0].kill()
        during = [one.book(f"w{n}") for n, one in enumerate(replicas)]
        replicas[0].desk.end(before[0], Cause.ENDED)
        lowest = 15
        back = time.monotonic() + 25
        while not all(one.desk.view.version.epoch > epoch and one.desk.joined for one in replicas):
            lowest = min(lowest, *(len(one.picture()) for one in replicas))
            assert time.monotonic() < back, replicas[0].desk.status()
            await asyncio.sleep(0.02)
        assert lowest >= 11
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 14, within=5)
        assert replicas[1].picture().keys() == {*before[1:], *during}
        assert _replication(watched.replica)["role"] == "master"
        late = Replica("late", watched.url)
        replicas.append(late)
        assert await late.start()
        assert agree(replicas)
    finally:
        await close(replicas)


async def test_a_primary_that_froze_and_thaws_as_a_replica_is_left_behind(watched: Watched) -> None:
    replicas = [Replica(name, watched.url) for name in "ab"]
    try:
        assert all([await one.start() for one in replicas])
        kept = [one.book() for one in replicas]
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 2, within=5)
        epoch = replicas[0].desk.view.version.epoch
        watched.primary.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: all(one.desk.view.version.epoch > epoch for one in replicas), within=25)
        finally:
            watched.primary.signal(signal.SIGCONT)
        kept += [one.book() for one in replicas]
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 4, within=10)
        await asyncio.sleep(2)
        assert agree(replicas)
        assert replicas[0].picture().keys() == set(kept)
    finally:
        await close(replicas)


async def test_a_replica_named_directly_is_not_taken_for_the_primary(tmp_path: Path) -> None:
    primary = servers.valkey(_folder(tmp_path, "primary"))
    replica = servers.valkey(_folder(tmp_path, "replica"), "--replicaof", "127.0.0.1", str(primary.port))
    try:
        primary.start()
        replica.start()
        assert "is a replica" in await _told(replica.url, errors.PlaneDisconnectedError)
    finally:
        primary.kill()
        replica.kill()


async def test_sentinels_that_know_no_such_primary_say_so(tmp_path: Path) -> None:
    primary = servers.valkey(_folder(tmp_path, "primary"))
    sentinel = Sentinel(_folder(tmp_path, "sentinel"), primary=primary, quorum=1, name=NAME)
    try:
        primary.start()
        sentinel.start()
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/other"
        assert "no primary named 'other'" in await _told(url, errors.PlaneRefusedError)
    finally:
        sentinel.kill()
        primary.kill()


async def test_sentinels_that_are_away_are_an_unavailable_plane() -> None:
    url = f"redis+sentinel://127.0.0.1:{servers.free_port()},127.0.0.1:{servers.free_port()}/{NAME}"
    assert "sentinel" in await _told(url, errors.PlaneUnavailableError)


async def test_a_server_with_replicas_that_takes_writes_without_them_is_told_once(tmp_path: Path) -> None:
    primary = servers.valkey(_folder(tmp_path, "primary"))
    replica = servers.valkey(_folder(tmp_path, "replica"), "--replicaof", "127.0.0.1", str(primary.port))
    plane = RedisPlane(primary.url, pool="p", owner=Owner("a", "1"), rules=Rules(), timeout=1.0)
    try:
        primary.start()
        with structlog.testing.capture_logs() as logs:
            await plane.start({})
        assert plane.counts.unguarded == 0
        replica.start()
        await asyncio.to_thread(_until, lambda: _replication(primary)["connected_slaves"] == 1)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                await plane.start({})
        assert plane.counts.unguarded == 1
        assert sum("min-replicas-to-write" in line["event"] for line in logs) == 1
        with primary.client() as client:
            client.config_set("min-replicas-to-write", 1)
        await asyncio.to_thread(_until, lambda: _replication(primary)["min_slaves_good_slaves"] == 1)
        await plane.start({})
        assert plane.counts.unguarded == 0
    finally:
        await plane.close()
        primary.kill()
        replica.kill()


async def test_writes_that_need_a_replica_which_is_gone_are_an_unavailable_plane(tmp_path: Path) -> None:
    primary = servers.valkey(tmp_path, "--min-replicas-to-write", "1")
    plane = RedisPlane(primary.url, pool="p", owner=Owner("a", "1"), rules=Rules(), timeout=1.0)
    try:
        primary.start()
        with pytest.raises(errors.PlaneUnavailableError, match="too few replicas"):
            await plane.start({})
        with primary.client() as client:
            client.config_set("min-replicas-to-write", 0)
        await plane.start({})
        with primary.client() as client:
            client.config_set("min-replicas-to-write", 1)
        with pytest.raises(errors.PlaneUnavailableError, match="too few replicas"):
            await plane.book(Booking("1", "", "w", Owner("a", "1"), Amount(1, 1)))
    finally:
        await plane.close()
        primary.kill()


def _replication(server: Server) -> dict[str, Any]:
    with server.client() as client:
        return dict(client.info("replication"))


async def _told(url: str, kind: type[errors.StatePlaneError]) -> str:
    plane = open_plane(url, pool="p", owner=Owner("a", "1"), rules=Rules(), timeout=1.0)
    try:
        with pytest.raises(kind) as told:
            await plane.start({})
    finally:
        await plane.close()
    return str(told.value)
