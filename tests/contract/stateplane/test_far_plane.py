"""A plane that is far away, 100 ms each way, over real servers: joined, lost and reached again at that distance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.injectors.lane import WAYS
from chaos.injectors.wire import TcpWire
from stateplane.booking import Cause
from stateplane.breaker import Health
from tests.contract.natsserver import Server as NatsServer
from tests.contract.stateplane.replicas import Replica, agree, close, eventually
from tests.contract.stateplane.servers import Server as RedisServer

EACH_WAY = 0.1
DEADLINE = 0.25
"""The product's own: a round trip fits into it, the making of a connection does not."""


@pytest.fixture(params=["redis", "nats"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, TcpWire]]:
    """URL of a plane, and the wire on the way to it."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("valkey")
        if redis.process is None:
            redis.start()
        with redis.client() as client:
            client.flushall()
        port = redis.port
    else:
        nats: NatsServer = request.getfixturevalue("nats_server")
        port = nats.port
    made = await TcpWire.open(listen="127.0.0.1:0", upstream=f"127.0.0.1:{port}", name="plane")
    yield f"{request.param}://{made.listen}", made
    await made.close()


def _far(wire: TcpWire, seconds: float = EACH_WAY) -> None:
    for way in WAYS:
        wire.set(way, latency=seconds)


def _in_touch(replicas: list[Replica]) -> bool:
    return all(one.desk.joined and one.desk.status().state is not Health.AWAY for one in replicas)


async def test_replicas_that_lose_a_far_plane_reach_it_again_at_that_distance(
    wire: tuple[str, TcpWire],
) -> None:
    url, way = wire
    replicas = [Replica(name, url, timeout=DEADLINE) for name in "abc"]
    try:
        assert all([await one.start() for one in replicas])
        first = [one.book(f"w{number}") for number, one in enumerate(replicas)]
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 3, within=5)
        _far(way)
        before = way.counts.connections
        way.reset()
        during = [one.book(f"w{number}") for number, one in enumerate(replicas)]
        replicas[0].desk.end(first[0], Cause.ENDED)
        wanted = {*first[1:], *during}
        await eventually(
            lambda: _in_touch(replicas) and agree(replicas) and replicas[0].picture().keys() == wanted,
            within=12,
        )
        assert way.counts.connections > before
        assert all(lane.counts.delayed for lane in (way.there, way.back))
    finally:
        await close(replicas)


async def test_a_replica_joins_a_plane_that_is_far_from_the_start(wire: tuple[str, TcpWire]) -> None:
    url, way = wire
    _far(way)
    replicas = [Replica(name, url, timeout=DEADLINE) for name in "ab"]
    try:
        assert all(await asyncio.gather(*(one.start(15) for one in replicas)))
        replicas[1].book()
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 1, within=8)
    finally:
        await close(replicas)


async def test_leases_hold_and_calls_go_side_by_side_on_a_far_plane(wire: tuple[str, TcpWire]) -> None:
    """Where round trips fit the deadline, neither a heartbeat among many calls nor an idle feed is taken for a loss.

    All times are the longer, so that a busy machine is not taken for a far plane: two round trips do not fit.
    """
    url, way = wire
    replicas = [Replica(name, url, timeout=1.0) for name in "abc"]
    try:
        assert all([await one.start() for one in replicas])
        _far(way, 0.28)
        kept = [one.book(f"w{number}") for number, one in enumerate(replicas)]
        for round_ in range(40):
            for one in replicas:
                one.desk.end(one.book(f"w{round_ % 3}"), Cause.ENDED)
            await asyncio.sleep(0.1)
        await asyncio.sleep(3)  # nothing is told: the feed waits
        await eventually(lambda: agree(replicas) and replicas[0].picture().keys() == set(kept), within=5)
        assert all(told[2] == "active" for told in replicas[0].picture().values())
        lines = [one.desk.counts.calls for one in replicas]
        assert [line.away for line in lines] == [0, 0, 0]
        assert sum(line.feeds_broken for line in lines) == 0
    finally:
        await close(replicas)
