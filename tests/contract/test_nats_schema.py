"""Two versions of the program side by side on one log; the newer one is of schema 2."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from stateplane.booking import SCHEMA, Owner, Rules, State
from stateplane.errors import PlaneRefusedError, StatePlaneError
from stateplane.nats.address import Names
from stateplane.nats.plane import NatsPlane
from stateplane.testing.world import booking, exact, standing, watched
from tests.contract.natsserver import Server

POOL = "ns/versions"
NAMES = Names.of(POOL)
RULES = Rules(lease=0.6, heartbeat=0.2, drain=30.0, tombstone=60.0)


@asynccontextmanager
async def opened(server: Server, **versions: int) -> AsyncIterator[list[NatsPlane]]:
    """One plane for each name, of the version given."""
    async with AsyncExitStack() as stack:
        planes = []
        for name, schema in versions.items():
            plane = NatsPlane(
                server.url(), pool=POOL, owner=Owner(name, "1"), rules=RULES, timeout=1.0, schema=schema
            )
            stack.push_async_callback(plane.close)
            planes.append(plane)
        yield planes


async def schemas(server: Server, since: int = 0) -> list[int]:
    """Of the messages that the log holds after that one."""
    client = await server.client()
    try:
        jetstream = client.jetstream(timeout=5)
        state = (await jetstream.stream_info(NAMES.log)).state
        messages = [
            await jetstream.get_msg(NAMES.log, n)
            for n in range(max(state.first_seq, since + 1), state.last_seq + 1)
        ]
        return [msgspec.msgpack.decode(message.data or b"")[0] for message in messages]
    finally:
        await client.close()


async def refused(plane: NatsPlane, within: float = 5.0) -> str:
    """What it is told once it has met what it cannot read."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            await plane.start({})
        except PlaneRefusedError as error:
            return str(error)
        except StatePlaneError:
            await asyncio.sleep(0.02)
    raise AssertionError("it was not refused")


async def begun(plane: NatsPlane, within: float = 10.0) -> None:
    until = time.monotonic() + within
    while True:
        try:
            await plane.start({})
        except StatePlaneError:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        else:
            return


async def test_the_older_schema_is_written_until_every_member_is_of_the_newer(nats_server: Server) -> None:
    async with opened(nats_server, old=1, a=2, b=2) as (old, a, b):
        for plane in (old, a, b):
            await plane.start({})
        version = (await old.snapshot()).version
        for n, plane in enumerate((old, a, b)):
            await plane.book(booking(str(n), owner=plane.owner))
            await plane.beat({})
        await a._log.checkpoint()
        assert set(await schemas(nats_server)) == {1}
        assert [plane.counts.schema for plane in (old, a, b)] == [1, 1, 1]
        assert len(await watched(old, version, until=(await old.snapshot()).version)) == 3

        await old.leave()
        before = (await a._log.level()).sequence
        await a.book(booking("3", owner=a.owner))
        await b.snapshot()
        await b.adjust("2", term=1, op=1, amount=booking("2").amount)
        assert await schemas(nats_server, before) == [2, 2]
        assert (a.counts.schema, b.counts.schema) == (2, 2)
        assert len((await b.snapshot()).bookings) == 4
        assert a.counts.diverged == b.counts.diverged == 0
        await exact(b)


async def test_a_member_that_fell_silent_holds_the_newer_schema_up_no_longer_than_its_lease(
    nats_server: Server,
) -> None:
    async with opened(nats_server, old=1, new=2) as (old, new):
        await old.start({})
        await old.rebooked()
        await new.start({})
        await new.rebooked()
        await old.close()
        until = time.monotonic() + 10
        while new.counts.schema < 2:
            assert time.monotonic() < until
            await new.beat({})
            await asyncio.sleep(RULES.heartbeat / 2)
        assert {member.owner for member in (await new.snapshot()).members} == {new.owner}


@pytest.mark.parametrize("place", ["log", "checkpoint"])
async def test_once_the_newer_is_written_the_older_version_is_refused_with_both_numbers(
    nats_server: Server, place: str
) -> None:
    async with opened(nats_server, old=1, new=2, late=1) as (old, new, late):
        await old.start({})
        await new.start({})
        await old.leave()
        await new.snapshot()
        await new.book(booking("1", owner=new.owner))
        if place == "checkpoint":
            await new._log.checkpoint()
        for plane in (old, late):
            said = await refused(plane)
            assert "schema 2" in said
            assert "none newer than 1" in said
            assert "\n" not in said
        before = len(await schemas(nats_server))
        for plane in (old, late):
            with pytest.raises(StatePlaneError):
                await plane.beat({})
        assert len(await schemas(nats_server)) == before
        assert (await standing(new, "1")).state is State.ACTIVE
        await exact(new)


async def test_a_pool_begun_by_the_newer_alone_is_written_in_the_newer_once_it_has_joined(
    nats_server: Server,
) -> None:
    async with opened(nats_server, new=2) as (new,):
        await new.start({})
        await new.book(booking("1", owner=new.owner))
        assert await schemas(nats_server) == [1, 1, 2]


async def test_what_was_written_is_kept_by_a_restart_and_by_a_member_that_comes_later(
    nats_server: Server,
) -> None:
    async with opened(nats_server, new=2, next=3, far=4) as (new, following, far):
        await new.start({})
        await new.beat({})
        await new._log.checkpoint()
        before = (await new._log.level()).sequence
        nats_server.kill()
        nats_server.start()
        await begun(new)
        await begun(following)
        assert set(await schemas(nats_server, before)) == {2}
        said = await refused(far)
        assert "schema 2" in said
        assert "none older than 3" in said
        await new.beat({})
        await following.beat({})
        assert (new.counts.schema, following.counts.schema) == (2, 2)


async def test_a_log_that_was_cut_begins_anew_in_what_was_written_last(nats_server: Server) -> None:
    async with opened(nats_server, new=2, other=2) as (new, other):
        await new.start({})
        await new.book(booking("1", owner=new.owner))
        last = (await new._log.level()).sequence
        await new.close()
        client = await nats_server.client()
        await client.jetstream(timeout=5).purge_stream(NAMES.log, keep=1)
        await client.jetstream(timeout=5).purge_stream(NAMES.store)
        await client.close()
        await begun(other)
        assert other.counts.cuts == 1
        assert set(await schemas(nats_server, last)) == {2}


async def test_members_are_told_which_schema_a_replica_reads_whatever_it_says_of_itself(
    nats_server: Server,
) -> None:
    async with opened(nats_server, a=SCHEMA, b=2) as (a, b):
        await a.start({"schema": "99", "digest": "x"})
        beat = await b.start({})
        assert {member.owner.name: member.info for member in beat.members} == {
            "a": {"schema": str(SCHEMA), "digest": "x"},
            "b": {"schema": "2"},
        }
