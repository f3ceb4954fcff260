"""Something else uses our keys, or an old server does: one clear line, picks on local knowledge, no crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import redis

from stateplane import errors
from stateplane.booking import Amount, Booking, Candidate, Cause, Owner, Rules, Terms, Version
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import TYPES, Keys
from tests.contract.stateplane import servers
from tests.contract.stateplane.replicas import Replica, eventually
from tests.contract.stateplane.servers import Server

POOL = "ns/foreign"
KEYS = Keys(POOL)
OWNER = Owner("a", "1")
NAMES = [key.rpartition(":")[2] for key in KEYS.all]
GARBAGE = [b"", b"\xff\xfe", b"nonsense", b"1 2", b"99999999999999999999999 x {}", b"1 1 {\xff}", b"-1 -1 -1"]


@pytest.fixture
async def plane(valkey: Server) -> AsyncIterator[RedisPlane]:
    if valkey.process is None:
        valkey.start()
    with valkey.client() as client:
        client.flushall()
    made = RedisPlane(valkey.url, pool=POOL, owner=OWNER, rules=Rules(), timeout=1.0)
    yield made
    await made.close()


def all_calls(plane: RedisPlane, booking_id: str) -> list[Callable[[], Awaitable[object]]]:
    booking = Booking(booking_id, "key", "w", OWNER, Amount(10, 1))
    offered = [Candidate("w", 0.0, Amount(1, 1)), Candidate("v", 0.0, Amount(1, 1), 5)]
    amount = Amount(1, 1)
    return [
        lambda: plane.beat({}),
        lambda: plane.book(booking),
        lambda: plane.select(Booking(f"{booking_id}s", "key", "w", OWNER, amount), offered, Terms(1, 1, 1)),
        lambda: plane.adjust(booking_id, term=1, op=1, amount=amount),
        lambda: plane.move(booking_id, term=1, op=2, worker="v", amount=amount),
        lambda: plane.drain(booking_id, term=2, op=1, cause=Cause.BROKEN),
        lambda: plane.reclaim(booking_id),
        lambda: plane.rebooked(),
        lambda: plane.sums(),
        lambda: plane.snapshot(),
        lambda: plane.release(booking_id, Cause.EVIDENCE, term=1),
        lambda: plane.release(booking_id, Cause.ENDED),
        lambda: plane.start({}),
    ]


async def called(plane: RedisPlane, booking_id: str) -> list[errors.StatePlaneError]:
    """What all calls raise; anything that is not ours goes through."""
    raised = []
    for call in all_calls(plane, booking_id):
        try:
            await call()
        except errors.StatePlaneError as error:
            raised.append(error)
    return raised


async def followed(plane: RedisPlane, after: Version) -> None:
    """Read the feed for a moment; only errors of ours are let pass."""
    try:
        async with asyncio.timeout(0.1):
            async for _ in plane.changes(after):
                pass
    except (TimeoutError, errors.StatePlaneError):
        return


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_of_another_type_is_named_at_the_start(
    valkey: Server, plane: RedisPlane, name: str
) -> None:
    with valkey.client() as client:
        client.set(KEYS[name], "mine")
    with pytest.raises(errors.PlaneCorruptError) as told:
        await plane.start({})
    assert told.value.key == KEYS[name]
    assert "something else uses our keys" in str(told.value)
    with valkey.client() as client:
        assert client.get(KEYS[name]) == b"mine"


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_that_turns_into_another_type_is_named_by_every_call_that_meets_it(
    valkey: Server, plane: RedisPlane, name: str
) -> None:
    await plane.start({})
    version = (await plane.snapshot()).version
    await plane.book(Booking("0", "key", "w", OWNER, Amount(10, 1)))
    with valkey.client() as client:
        client.set(KEYS[name], "mine")
    raised = await called(plane, "1")
    await followed(plane, version)
    assert raised
    assert {error.key for error in raised if isinstance(error, errors.PlaneCorruptError)} == {KEYS[name]}
    assert not [error for error in raised if not isinstance(error, errors.PlaneCorruptError)]
    assert plane.counts.corrupt > 0


def spoil(client: redis.Redis, name: str, garbage: bytes) -> None:
    """Put a value of somebody else where one of ours stands, and beside it."""
    key = KEYS[name]
    match TYPES[NAMES.index(name)]:
        case "hash":
            fields: dict[bytes, object] = dict.fromkeys(client.hkeys(key), garbage)  # type: ignore[arg-type]
            client.hset(key, mapping={**fields, b"other": garbage, b"\xff": garbage})  # type: ignore[dict-item]
        case "zset":
            client.zadd(key, {garbage or b"other": 0, b"other": 1e300})
        case "stream":
            epoch = client.hget(KEYS["meta"], "epoch")
            assert isinstance(epoch, bytes)
            client.xadd(key, {garbage or b"other": garbage}, id=epoch + b"-*")


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
@pytest.mark.parametrize("name", NAMES)
async def test_values_of_somebody_else_raise_errors_of_ours_or_none(
    valkey: Server, plane: RedisPlane, name: str, garbage: bytes
) -> None:
    await plane.start({})
    version = (await plane.snapshot()).version
    await plane.book(Booking("0", "key", "w", OWNER, Amount(10, 1)))
    await plane.book(Booking("d", "", "w", OWNER, Amount(10, 1)))
    await plane.drain("d", term=1, op=1, cause=Cause.BROKEN, seconds=0)
    await plane.book(Booking("e", "", "w", OWNER, Amount(10, 1)))
    await plane.release("e", Cause.ENDED)
    with valkey.client() as client:
        spoil(client, name, garbage)
    for booking_id in ("0", "1", "d", "e"):
        await called(plane, booking_id)
    await followed(plane, version)


async def test_a_replica_picks_on_and_comes_back_once_the_foreign_key_is_gone(valkey: Server) -> None:
    if valkey.process is None:
        valkey.start()
    with valkey.client() as client:
        client.flushall()
    replicas = [Replica(name, valkey.url, pool=POOL) for name in "ab"]
    try:
        assert all([await one.start() for one in replicas])
        kept = [one.book() for one in replicas]
        await eventually(lambda: all(len(one.picture()) == 2 for one in replicas), within=5)
        with valkey.client() as client:
            client.delete(KEYS["books"])
            client.set(KEYS["books"], "mine")
        kept += [one.book() for one in replicas]
        await eventually(lambda: all(one.desk.degraded for one in replicas), within=10)
        status = replicas[0].desk.status()
        assert KEYS["books"] in status.reason
        assert all(len(one.picture()) == 3 for one in replicas)
        with valkey.client() as client:
            client.delete(*KEYS.all)
        await eventually(
            lambda: all(not one.desk.degraded and one.picture().keys() == set(kept) for one in replicas),
            within=10,
        )
    finally:
        for one in replicas:
            await one.die()


async def test_a_redis_6_is_refused_in_one_line(tmp_path: Path) -> None:
    server = servers.redis6(tmp_path)
    plane = RedisPlane(server.url, pool=POOL, owner=OWNER, rules=Rules(), timeout=1.0)
    try:
        server.start()
        with pytest.raises(errors.PlaneRefusedError) as told:
            await plane.start({})
    finally:
        await plane.close()
        server.kill()
    assert "is Redis 6.2.14; the plane needs Redis 7.0 or Valkey 7.2 or newer" in str(told.value)
    assert "\n" not in str(told.value)
