"""The audit asks the server itself: it sees what a plane booked there, and what drifted from it."""

from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from chaos.audit import POOL, AuditError, audit
from picker.sim import programs
from picker.sim.cluster import Cluster
from picker.sim.programs import free_addresses
from stateplane.backends import open_plane
from stateplane.booking import Amount, Booking, Cause, Owner, Rules
from stateplane.plane import StatePlane
from stateplane.redis.scripts import Keys
from tests.contract.chaos.conftest import Stage

OWNER = Owner("picker-0", "a")
WORKER = "10.0.0.1:8000"


def cluster_at(plane: str, address: str) -> Cluster:
    url = f"redis://{address}" if plane == "redis" else f"nats://{address}/?storage=memory"
    return cast(
        "Cluster",
        SimpleNamespace(layout=SimpleNamespace(plane=plane), plane_address=address, plane_url=url),
    )


@pytest.fixture(params=["redis", "nats"])
async def pool(request: pytest.FixtureRequest, stage: Stage) -> AsyncIterator[tuple[Cluster, StatePlane]]:
    address = stage.servers.valkey if request.param == "redis" else stage.servers.nats
    folder = stage.folder
    program = programs.valkey(address, folder) if request.param == "redis" else programs.nats(address, folder)
    await stage.servers.children.start(program)
    cluster = cluster_at(request.param, address)
    plane = open_plane(cluster.plane_url, pool=POOL, owner=OWNER, rules=Rules(), timeout=2.0)
    await plane.start({})
    yield cluster, plane
    await plane.close()


async def test_what_is_booked_adds_up_and_an_end_takes_it_off(pool: tuple[Cluster, StatePlane]) -> None:
    cluster, plane = pool
    for id_ in ("a", "b"):
        await plane.book(Booking(id_, "", WORKER, OWNER, Amount(10, 3)))
    page = await audit(cluster)
    assert page == {"sums": {WORKER: [20, 6, 2]}, "booked": {WORKER: [20, 6, 2]}, "ids": ["a", "b"]}
    await plane.release("a", Cause.ENDED)
    assert (await audit(cluster))["sums"] == {WORKER: [10, 3, 1]}
    await plane.release("b", Cause.ENDED)
    assert await audit(cluster) == {"sums": {}, "booked": {}, "ids": []}


async def test_an_audit_makes_no_member(pool: tuple[Cluster, StatePlane]) -> None:
    cluster, plane = pool
    await audit(cluster)
    assert [member.owner for member in (await plane.beat({})).members] == [OWNER]


async def test_sums_that_drifted_are_seen_as_they_are(stage: Stage) -> None:
    address = stage.servers.valkey
    await stage.servers.children.start(programs.valkey(address, stage.folder))
    cluster = cluster_at("redis", address)
    plane = open_plane(cluster.plane_url, pool=POOL, owner=OWNER, rules=Rules(), timeout=2.0)
    await plane.start({})
    await plane.book(Booking("a", "", WORKER, OWNER, Amount(10, 3)))
    host, _, port = address.rpartition(":")
    async with Redis(host=host, port=int(port)) as server:
        changing = cast("Callable[..., Coroutine[Any, Any, int]]", server.hset)
        await changing(Keys(POOL)["sums"], WORKER, "10 5 1")
    page = await audit(cluster)
    assert page["sums"] == {WORKER: [10, 5, 1]}
    assert page["booked"] == {WORKER: [10, 3, 1]}
    await plane.close()


@pytest.mark.parametrize("plane", ["redis", "nats"])
async def test_a_server_that_is_away_is_told_as_such(plane: str) -> None:
    with pytest.raises(AuditError):
        await audit(cluster_at(plane, next(free_addresses(1))))
