"""Every schema that was ever released is read as it was; a newer one is refused; two versions run side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stateplane.booking import (
    NOTHING,
    SCHEMA,
    Amount,
    Booked,
    Booking,
    Cause,
    Gone,
    Owner,
    OwnerLapsed,
    Rebooked,
    Rules,
    State,
    Status,
    Version,
)
from stateplane.errors import PlaneRefusedError, StatePlaneError
from stateplane.ledger import Ledger
from stateplane.nats import codec as nats
from stateplane.redis import codec
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import Keys
from stateplane.schema import oldest_of
from stateplane.testing.world import exact, fold, found, standing, timeless, watched
from tests.contract.stateplane.replicas import Replica, eventually
from tests.contract.stateplane.servers import Server

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
READ = range(oldest_of(), SCHEMA + 1)
POOL = "ns/fixture"
KEYS = Keys(POOL)
RULES = Rules(superseded_drain=20.0)
CHANGES = {one.__name__: one for one in (Booked, Gone, OwnerLapsed, Rebooked)}


def fixture(schema: int, name: str) -> dict[str, Any]:
    """What was kept; versions, which stand there as objects, as the tuples that they are."""
    text = (FIXTURES / f"schema-{schema}" / f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text, object_hook=_tuple)
    return found


def _tuple(kept: dict[str, Any]) -> Any:
    return list(Version(**kept)) if kept.keys() == set(Version._fields) else kept


def same(given: object, expected: object) -> bool:
    return bool(json.loads(msgspec.json.encode(given)) == expected)


def server_of(request: pytest.FixtureRequest, name: str) -> Server:
    server: Server = request.getfixturevalue(name)
    if server.process is None:
        server.start()
    with server.client() as client:
        client.flushall()
    return server


def restore(server: Server, kept: dict[str, Any]) -> None:
    """Put a pool in place as if this server had always held it."""
    with server.client() as client:
        for name, value in kept.items():
            if name == "stream":
                for entry, fields in value:
                    client.execute_command("XADD", KEYS[name], entry, *map(bytes.fromhex, fields))
            elif name in ("drains", "active", "buried", "leases"):
                client.zadd(KEYS[name], {bytes.fromhex(one): score for one, score in value.items()})
            else:
                client.hset(
                    KEYS[name], mapping={bytes.fromhex(f): bytes.fromhex(v) for f, v in value.items()}
                )
        run: str = client.info("server")["run_id"]
        client.hset(KEYS["meta"], "run", run)


def plane_on(server: Server, name: str = "b", *, schema: int = SCHEMA, incarnation: str = "1") -> RedisPlane:
    owner = Owner(name, incarnation)
    return RedisPlane(server.url, pool=POOL, owner=owner, rules=RULES, timeout=2.0, schema=schema)


# --- fixtures


@pytest.mark.parametrize("schema", READ)
@pytest.mark.parametrize("name", ["valkey", "redis7"])
async def test_a_pool_of_each_schema_on_redis_is_read_and_worked_on(
    request: pytest.FixtureRequest, name: str, schema: int
) -> None:
    kept = fixture(schema, "redis")
    server = server_of(request, name)
    restore(server, kept["keys"])
    b, c = plane_on(server), plane_on(server, "c")
    try:
        for plane in (b, c):
            await plane.start({})
        picture = await b.snapshot()
        bookings = {one.id: one for one in picture.bookings}
        expected = {one["id"]: msgspec.convert(one, Booking) for one in kept["bookings"]}
        assert timeless(bookings) == timeless(expected)
        counted: dict[str, Amount] = {}
        for one in expected.values():
            counted[one.worker] = counted.get(one.worker, NOTHING) + one.amount
        assert dict(await b.sums()) == counted

        assert (await b.book(expected["active"])).status is Status.SAME
        assert (await c.reclaim("lapsed")).status is Status.DONE
        assert (await c.reclaim("assumed")).status is Status.DONE
        assert (await b.reclaim("ended")).status is Status.GONE
        assert (await b.release("never booked", Cause.LOGGED)).status is Status.SAME
        assert (await b.adjust("latest", term=1, op=1, amount=Amount(0, 11))).status is Status.DONE
        assert (await b.release("active", Cause.ENDED)).status is Status.DONE
        assert (await b.drain("outrun ü|~", term=1, op=1, cause=Cause.BROKEN)).status is Status.DONE
        assert (await standing(b, "outrun ü|~")).superseded
        assert found(await c.snapshot(), "active") is None
        await exact(b)
    finally:
        for plane in (b, c):
            await plane.close()


@pytest.mark.parametrize("schema", READ)
async def test_the_changes_of_each_schema_on_redis_decode_to_what_they_were(
    request: pytest.FixtureRequest, schema: int
) -> None:
    kept = fixture(schema, "redis")
    server = server_of(request, "valkey")
    restore(server, kept["keys"])
    expected: list[Any] = [msgspec.convert(change, CHANGES[kind]) for kind, change in kept["changes"]]
    plane = plane_on(server, "late")
    try:
        await plane.start({})
        first, last = expected[0].version, expected[-1].version
        given = await watched(plane, Version(first.epoch, first.number - 1), until=last)
    finally:
        await plane.close()
    assert given == expected
    folded = fold({}, given)
    assert timeless(folded) == timeless(
        {one["id"]: msgspec.convert(one, Booking) for one in kept["bookings"]}
    )


@pytest.mark.parametrize("schema", READ)
def test_the_records_of_each_schema_on_redis_are_written_as_they_were(schema: int) -> None:
    kept = fixture(schema, "redis")
    for raw in kept["keys"]["books"].values():
        record = codec.record_of(bytes.fromhex(raw), "kept")
        assert record.schema == schema
        if schema == SCHEMA:
            assert codec.record_of(msgspec.msgpack.encode(record), "again") == record


@pytest.mark.parametrize("schema", READ)
def test_the_log_of_each_schema_on_nats_decodes_to_what_it_was(schema: int) -> None:
    kept = fixture(schema, "nats")
    for raw, expected in kept["commands"]:
        command = nats.command_of(bytes.fromhex(raw))
        assert same(command, expected)
        assert schema != SCHEMA or nats.pack(command).hex() == raw
    raw, expected = kept["head"]
    assert same(nats.head_of(bytes.fromhex(raw)), expected)
    raw, expected = kept["state"]
    state = nats.state_of(bytes.fromhex(raw))
    assert same(state, expected)
    ledger = Ledger.of(state)
    assert same(ledger.snapshot(now=1_400).bookings, kept["bookings"])


def test_every_schema_that_is_read_has_its_fixtures() -> None:
    for schema in READ:
        assert fixture(schema, "redis")["schema"] == fixture(schema, "nats")["schema"] == schema


# --- two versions side by side; the newer one is of schema 2


@pytest.fixture(params=["valkey", "redis7"])
def pool(request: pytest.FixtureRequest) -> Server:
    return server_of(request, request.param)


def schemas(server: Server) -> tuple[int, set[int]]:
    """What is written, and of what the records that stand are."""
    with server.client() as client:
        records: list[bytes] = client.hvals(KEYS["books"])
        written = client.hget(KEYS["meta"], "schema")
        assert isinstance(written, bytes)
        return int(written), {msgspec.msgpack.decode(record)[0] for record in records}


async def test_the_older_schema_is_written_until_every_member_is_of_the_newer(pool: Server) -> None:
    old, a, b = plane_on(pool, "old", schema=1), plane_on(pool, "a", schema=2), plane_on(pool, "b", schema=2)
    try:
        for plane in (old, a, b):
            await plane.start({})
        version = (await old.snapshot()).version
        for n, plane in enumerate((old, a, b)):
            await plane.book(Booking(str(n), "", "w", plane.owner, Amount(1, 1)))
            await plane.beat({})
        assert schemas(pool) == (1, {1})
        assert [plane.counts.schema for plane in (old, a, b)] == [1, 1, 1]
        last = (await old.snapshot()).version
        assert len(await watched(old, version, until=last)) == 3

        await old.leave()
        await a.beat({})
        assert schemas(pool) == (2, {1})
        await b.adjust("2", term=1, op=1, amount=Amount(2, 2))
        await a.book(Booking("3", "", "w", a.owner, Amount(1, 1)))
        assert schemas(pool) == (2, {1, 2})
        await b.beat({})
        assert b.counts.schema == 2
        assert len((await b.snapshot()).bookings) == 4
        await exact(b)
    finally:
        for plane in (old, a, b):
            await plane.close()


async def test_once_the_newer_is_written_the_older_version_is_refused_with_both_numbers(pool: Server) -> None:
    old, new = plane_on(pool, "old", schema=1), plane_on(pool, "new", schema=2)
    late = plane_on(pool, "late", schema=1)
    try:
        await old.start({})
        await new.start({})
        version = (await old.snapshot()).version
        await old.leave()
        await new.beat({})
        outcome = await new.book(Booking("1", "", "w", new.owner, Amount(1, 1)))
        calls = [late.start({}), old.beat({}), old.snapshot(), old.reclaim("1"), old.start({})]
        calls.append(watched(old, version, until=outcome.version or version))
        for call in calls:
            with pytest.raises(PlaneRefusedError) as told:
                await call
            assert "schema 2" in str(told.value)
            assert "none newer than 1" in str(told.value)
            assert "\n" not in str(told.value)
        assert (await standing(new, "1")).state is State.ACTIVE
        await exact(new)
    finally:
        for plane in (old, new, late):
            await plane.close()


async def test_a_pool_begun_by_the_newer_alone_is_written_in_the_newer_at_once(pool: Server) -> None:
    new = plane_on(pool, "new", schema=2)
    try:
        await new.start({})
        await new.book(Booking("1", "", "w", new.owner, Amount(1, 1)))
        assert schemas(pool) == (2, {2})
    finally:
        await new.close()


async def test_a_restart_keeps_the_schema_that_was_written(pool: Server) -> None:
    new, newest = plane_on(pool, "new", schema=2), plane_on(pool, "newest", schema=4)
    try:
        await new.start({})
        pool.restart(lose=False)
        await new.start({})
        assert schemas(pool) == (2, set())
        with pytest.raises(PlaneRefusedError, match="none older than 3"):
            await newest.start({})
    finally:
        await new.close()
        await newest.close()


async def test_a_replica_that_is_too_old_picks_on_local_knowledge_and_says_why(pool: Server) -> None:
    new = plane_on(pool, "new", schema=2)
    replica = Replica("old", pool.url, pool=POOL)
    try:
        await new.start({})
        assert not await replica.start(within=0.5)
        replica.book()
        await eventually(lambda: "schema 2" in replica.desk.status().reason, within=5)
        assert replica.desk.degraded
        assert replica.desk.view.load("w1").requests == 1
        with pool.client() as client:
            client.delete(*KEYS.all)
        await new.close()
        await eventually(lambda: not replica.desk.degraded, within=5)
    except StatePlaneError as error:  # a desk raises nothing
        raise AssertionError from error
    finally:
        await replica.die()
        await new.close()
