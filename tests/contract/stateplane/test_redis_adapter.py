"""What only the Redis plane has: a driver, scripts, keys that others may have used, a server that may refuse."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import exceptions as driver

from stateplane import errors
from stateplane.backends import open_plane
from stateplane.booking import Amount, Booking, Cause, Owner, Rules
from stateplane.redis.link import check_server
from stateplane.redis.plane import RedisPlane
from stateplane.redis.scripts import Keys
from stateplane.redis.translation import DRIVER_ERRORS, translated
from tests.contract.stateplane.servers import Server

OWNER = Owner("a", "1")
POOL = "ns/adapter"
SECRET = "hunter2-secret"


def booking(booking_id: str) -> Booking:
    return Booking(booking_id, "", "w", OWNER, Amount(10, 1))


@pytest.fixture
def server(valkey: Server) -> Iterator[Server]:
    if valkey.process is None:
        valkey.start()
    with valkey.client() as client:
        client.flushall()
    yield valkey
    with valkey.client() as client:
        client.execute_command("ACL", "DELUSER", "picker")


@pytest.fixture
async def plane(server: Server) -> AsyncIterator[RedisPlane]:
    made = RedisPlane(server.url, pool=POOL, owner=OWNER, rules=Rules(), timeout=1.0)
    await made.start({})
    yield made
    await made.close()


async def refusal(url: str, kind: type[errors.StatePlaneError], password_file: Path | None = None) -> str:
    made = open_plane(url, pool=POOL, owner=OWNER, rules=Rules(), timeout=1.0, password_file=password_file)
    try:
        with pytest.raises(kind) as told:
            await made.start({})
    finally:
        await made.close()
    return str(told.value)


async def test_a_wrong_password_is_told_without_the_password(server: Server) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "picker", "on", ">right", "~*", "&*", "+@all")
    text = await refusal(f"redis://picker:{SECRET}@127.0.0.1:{server.port}", errors.PlaneRefusedError)
    assert "refused our credentials" in text
    assert SECRET not in text


async def test_missing_rights_name_what_is_missing(server: Server) -> None:
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "picker", "on", f">{SECRET}", "~*", "&*", "+@all", "-evalsha"
        )
    text = await refusal(f"redis://picker:{SECRET}@127.0.0.1:{server.port}", errors.PlaneRefusedError)
    assert "rights" in text
    assert "evalsha" in text
    assert SECRET not in text


async def test_the_password_file_is_read_at_each_connection(server: Server, tmp_path: Path) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "picker", "on", f">{SECRET}", "~*", "&*", "+@all")
    file = tmp_path / "password"
    url = f"redis://picker@127.0.0.1:{server.port}"
    assert "cannot be read" in await refusal(url, errors.PlaneRefusedError, file)
    file.write_text(f"{SECRET}\n")
    made = RedisPlane(url, pool=POOL, owner=OWNER, rules=Rules(), timeout=1.0, password_file=file)
    await made.start({})
    await made.close()


@pytest.mark.parametrize("url", ["http://h:1", "redis", "postgres://u:hunter2-secret@h", ""])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(errors.BackendUnknownError) as told:
        open_plane(url, pool=POOL, owner=OWNER, rules=Rules())
    assert "redis://" in str(told.value)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("url", ["redis://u:hunter2-secret/x@h:1", "redis://h:port", "redis://[::1"])
def test_a_malformed_url_is_told_without_its_parts(url: str) -> None:
    with pytest.raises(errors.PlaneRefusedError) as told:
        open_plane(url, pool=POOL, owner=OWNER, rules=Rules())
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None


@pytest.mark.parametrize(
    ("info", "fine"),
    [
        ("redis_version:6.2.14\r\nrun_id:a", False),
        ("redis_version:7.0.0\r\nrun_id:a", True),
        ("redis_version:8.0.1\r\nrun_id:a", True),
        ("redis_version:7.2.4\r\nvalkey_version:7.2.5\r\nrun_id:a", True),
        ("redis_version:7.2.4\r\nvalkey_version:7.1.0\r\nrun_id:a", False),
        ("", False),
    ],
)
def test_a_server_that_is_too_old_is_refused_in_one_line(info: str, fine: bool) -> None:
    if fine:
        assert check_server(info, "h:1") == "a"
        return
    with pytest.raises(errors.PlaneRefusedError, match=r"needs Redis 7\.0 or Valkey 7\.2"):
        check_server(info, "h:1")


async def test_scripts_that_the_server_forgot_are_loaded_again(server: Server, plane: RedisPlane) -> None:
    with server.client() as client:
        client.script_flush()
    outcomes = await asyncio.gather(*(plane.book(booking(str(n))) for n in range(20)))
    assert {outcome.status.value for outcome in outcomes} == {"done"}
    assert (await plane.sums())["w"].requests == 20


async def test_keys_of_something_else_are_told(server: Server) -> None:
    with server.client() as client:
        client.set(Keys(POOL)["meta"], "mine")
    assert "something else uses our keys" in await refusal(server.url, errors.PlaneCorruptError)


async def test_records_of_a_newer_schema_are_refused(server: Server) -> None:
    with server.client() as client:
        client.hset(Keys(POOL)["meta"], mapping={"schema": "99", "epoch": "5", "run": "x"})
    assert "upgrade the replica" in await refusal(server.url, errors.PlaneRefusedError)


@pytest.mark.parametrize("stored", [b"\xc1 nonsense", b"\x91\x01", b""])
async def test_a_record_that_does_not_decode_names_its_key(
    server: Server, plane: RedisPlane, stored: bytes
) -> None:
    with server.client() as client:
        client.hset(Keys(POOL)["books"], "odd", stored)
    with pytest.raises(errors.PlaneCorruptError, match="odd"):
        await plane.reclaim("odd")
    with pytest.raises(errors.PlaneCorruptError, match="odd"):
        await plane.snapshot()


async def test_every_key_carries_the_pools_one_hash_tag(server: Server, plane: RedisPlane) -> None:
    await plane.book(booking("1"))
    await plane.book(booking("2"))
    await plane.release("1", Cause.ENDED)
    with server.client() as client:
        keys = client.keys("*")
        assert isinstance(keys, list)
        slots = {client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}
    assert len(keys) >= 7
    assert len(slots) == 1


async def test_a_snapshot_whose_history_ran_away_is_tried_again(server: Server, plane: RedisPlane) -> None:
    for n in range(1500):
        await plane.book(booking(str(n)))
    stop = asyncio.Event()

    async def churn() -> None:
        n = 0
        while not stop.is_set():
            await plane.book(booking(f"x{n}"))
            n += 1
            if n == 5:
                with server.client() as client:
                    client.xtrim(Keys(POOL)["stream"], maxlen=0, approximate=False)

    churning = asyncio.create_task(churn())
    snapshots = [await plane.snapshot() for _ in range(3)]
    stop.set()
    await churning
    assert all(len(snapshot.bookings) >= 1500 for snapshot in snapshots)


async def test_nothing_of_an_ended_booking_is_left_on_the_server(server: Server, plane: RedisPlane) -> None:
    for n in range(10):
        await plane.book(Booking(str(n), f"k{n}", "w", OWNER, Amount(10, 1)))
        await plane.release(str(n), Cause.ENDED)
    keys = Keys(POOL)
    with server.client() as client:
        for name in ("books", "sums", "drains", "active", "attempts"):
            assert not client.exists(keys[name]), name
        client.hincrby(keys["meta"], "skew", -1000 * 61)
    for _ in range(70):
        with server.client() as client:
            client.hincrby(keys["meta"], "skew", -1000)
        await plane.beat({})
    with server.client() as client:
        assert not client.exists(keys["tombs"])
        assert not client.exists(keys["buried"])


def test_every_error_of_the_driver_becomes_one_of_ours() -> None:
    classes = [
        one for _, one in inspect.getmembers(driver, inspect.isclass)
        if issubclass(one, Exception) and one.__module__ == driver.__name__
    ]  # fmt: skip
    assert len(classes) > 20
    for one in classes:
        assert issubclass(one, DRIVER_ERRORS), one
        error = one.__new__(one)
        error.args = ("text",)
        assert isinstance(translated(error, "h:1"), errors.StatePlaneError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (driver.AuthenticationError("invalid username-password pair"), errors.PlaneRefusedError),
        (driver.NoPermissionError("no rights"), errors.PlaneRefusedError),
        (driver.BusyLoadingError("loading"), errors.PlaneUnavailableError),
        (driver.ReadOnlyError("replica"), errors.PlaneDisconnectedError),
        (driver.TimeoutError("t"), errors.PlaneTimeoutError),
        (TimeoutError(), errors.PlaneTimeoutError),
        (ConnectionResetError(), errors.PlaneDisconnectedError),
        (driver.OutOfMemoryError("used memory"), errors.PlaneRefusedError),
        (driver.MovedError("1 h:2"), errors.PlaneRefusedError),
        (driver.MasterDownError("down"), errors.PlaneUnavailableError),
        (driver.ResponseError("EPOCH 5"), errors.PlaneEpochError),
        (driver.ResponseError("NOREPLICAS Not enough good replicas to write."), errors.PlaneUnavailableError),
        (driver.ResponseError("WRONGTYPE Operation against a key"), errors.PlaneCorruptError),
        (driver.ResponseError("anything else"), errors.PlaneRefusedError),
    ],
)
def test_the_nearest_of_our_errors_is_told(error: Exception, kind: type[errors.StatePlaneError]) -> None:
    assert type(translated(error, "h:1")) is kind
