"""What happens to the NATS plane when its server, its log or its neighbours misbehave."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import nats.errors
import pytest

from stateplane.booking import Amount, Booked, Cause, Change, Gap, Owner, State, Status
from stateplane.errors import PlaneEpochError, PlaneUnavailableError, StatePlaneError
from stateplane.nats.address import Names
from stateplane.nats.plane import SLICE, NatsPlane
from stateplane.nats.wire import Connection
from stateplane.testing import RULES
from stateplane.testing.world import booking, exact, found, stands, watched
from tests.contract.natsserver import NatsHarness, Server

T = TypeVar("T")
POOL = "ns/pool"
NAMES = Names.of(POOL)


async def eventually(call: Callable[[], Awaitable[T]], within: float = 10.0) -> T:
    until = time.monotonic() + within
    while True:
        try:
            return await call()
        except StatePlaneError:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)


async def joined(harness: NatsHarness, name: str) -> NatsPlane:
    plane = harness.open(Owner(name, "1"), pool=POOL)
    assert isinstance(plane, NatsPlane)
    await plane.start({})
    await plane.rebooked()
    return plane


class Relay:
    """A TCP relay before the server that can cut what goes through it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def relayed(server: Server) -> AsyncIterator[tuple[Relay, NatsPlane]]:
    relay = Relay(server.port)
    port = await relay.start()
    plane = NatsPlane(
        f"nats://127.0.0.1:{port}/?storage=memory",
        pool=POOL,
        owner=Owner("cut", "1"),
        rules=RULES,
        timeout=0.5,
    )
    try:
        yield relay, plane
    finally:
        await plane.close()
        await relay.close()


@pytest.fixture
async def harness(nats_server: Server) -> AsyncIterator[NatsHarness]:
    found_harness = NatsHarness(nats_server, "file")
    yield found_harness
    await found_harness.close()


async def test_a_cut_connection_is_resumed_within_a_second_without_a_gap_or_a_change_seen_twice(
    nats_server: Server,
) -> None:
    harness = NatsHarness(nats_server, "memory")
    writer = await joined(harness, "a")
    async with relayed(nats_server) as (relay, plane):
        await plane.start({})
        before = (await plane.snapshot()).version
        epoch, seen = before.epoch, before
        numbers: list[int] = []

        async def follow() -> None:
            nonlocal seen
            while True:
                try:
                    async for change in plane.changes(seen):
                        assert not isinstance(change, Gap)
                        numbers.append(change.version.number)
                        seen = change.version
                except PlaneUnavailableError:
                    await asyncio.sleep(0.01)

        following = asyncio.create_task(follow())
        for n in range(30):
            await writer.book(booking(str(n)))
            if n % 10 == 5:
                relay.cut()
        last = stands_version(await writer.book(booking("last")))
        began = time.monotonic()
        while seen.number < last:
            assert time.monotonic() - began < 5, (seen, last)
            await asyncio.sleep(0.005)
        assert time.monotonic() - began < 2
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert numbers == list(range(before.number + 1, last + 1))
        assert (await eventually(lambda: plane.beat({}))).version.epoch == epoch
        assert plane.counts.resumes >= 1
        assert plane.counts.reloads == 1
    await harness.close()


def stands_version(outcome: object) -> int:
    version = getattr(outcome, "version", None)
    assert version is not None
    return int(version.number)


async def test_a_reply_lost_with_its_connection_is_asked_for_again_and_booked_once(
    nats_server: Server,
) -> None:
    async with relayed(nats_server) as (relay, plane):
        await plane.start({})
        asked = asyncio.create_task(plane.book(booking("1")))
        await asyncio.sleep(0)
        relay.cut()
        await asyncio.gather(asked, return_exceptions=True)
        outcome = await eventually(lambda: plane.book(booking("1")))
        assert outcome.status in (Status.DONE, Status.SAME)
        assert await plane.sums() == {"w1": Amount(100, 10, 1)}


async def test_a_pool_kept_on_file_keeps_its_ends_over_a_crash_and_one_in_memory_begins_anew(
    nats_harness: NatsHarness,
) -> None:
    a = await joined(nats_harness, "a")
    kept = stands(await a.book(booking("live")))
    ended = stands(await a.book(booking("over")))
    await a.release("over", Cause.ENDED)
    before = (await a.snapshot()).version.epoch
    for _ in range(20):
        await a.beat({})
    nats_harness.server.kill()
    for clock in nats_harness.clocks.values():
        if nats_harness.storage == "memory":
            clock.restart()
    nats_harness.server.start()
    with pytest.raises(PlaneEpochError):
        await until_refused(a)
    beat = await a.start({})
    assert beat.version.epoch > before
    assert stands(await a.book(kept)) == kept
    again = await a.book(ended)
    assert again.status is (Status.GONE if nats_harness.storage == "file" else Status.DONE)


async def until_refused(plane: NatsPlane) -> None:
    for _ in range(200):
        try:
            await plane.beat({})
        except PlaneUnavailableError:
            await asyncio.sleep(0.02)


async def test_a_log_that_was_deleted_is_a_new_epoch_within_a_heartbeat(harness: NatsHarness) -> None:
    a, b = await joined(harness, "a"), await joined(harness, "b")
    await a.book(booking("1"))
    before = (await a.snapshot()).version.epoch
    await (await harness.client()).jetstream().delete_stream(NAMES.log)
    harness.clocks[POOL].restart()
    began = time.monotonic()
    for plane in (a, b):
        assert (await eventually(lambda plane=plane: plane.start({}))).version.epoch > before  # type: ignore[misc]
    assert time.monotonic() - began < 3
    assert (await b.snapshot()).bookings == ()
    stands(await a.book(booking("1")))
    await exact(b)


async def test_a_late_joiner_reads_the_checkpoint_and_equals_the_others(harness: NatsHarness) -> None:
    a = await joined(harness, "a")
    for n in range(40):
        await a.book(booking(str(n), worker=f"w{n % 3}", key=f"k{n % 7}"))
        if n % 3 == 0:
            await a.release(str(n), Cause.ENDED)
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    stored = await a._log.checkpoint()
    jetstream = (await harness.client()).jetstream()
    await jetstream.purge_stream(NAMES.log, seq=stored)  # all before it are gone
    await a.book(booking("last"))
    b = await joined(harness, "b")
    assert b.counts.cuts == 0
    mine, theirs = await a.snapshot(), await b.snapshot()
    assert {one.id for one in mine.bookings} == {one.id for one in theirs.bookings}
    assert mine.version == theirs.version
    for one in mine.bookings:
        other = found(theirs, one.id)
        assert other is not None
        assert (one.term, one.state, one.outrun, one.superseded) == (
            other.term, other.state, other.outrun, other.superseded,
        )  # fmt: skip
    assert (await b.release("0", Cause.ENDED)).status is Status.SAME
    assert (await b.book(booking("0"))).status is Status.GONE


async def test_a_log_cut_beyond_its_checkpoint_begins_anew_for_everybody(harness: NatsHarness) -> None:
    a = await joined(harness, "a")
    kept = stands(await a.book(booking("1")))
    before = (await a.snapshot()).version.epoch
    client = await harness.client()
    await client.jetstream().delete_stream(NAMES.store)
    await client.jetstream().purge_stream(NAMES.log, keep=2)
    b = harness.open(Owner("b", "1"), pool=POOL)
    assert isinstance(b, NatsPlane)
    await eventually(lambda: b.start({}))
    assert b.counts.cuts == 1
    with pytest.raises(PlaneEpochError):
        await a.beat({})
    await a.start({})
    assert (await a.snapshot()).version.epoch > before
    assert (await a.snapshot()).bookings == ()
    stands(await a.book(kept))
    assert {one.id for one in (await b.snapshot()).bookings} == {"1"}
    await exact(a)
    c = await joined(harness, "c")
    assert {one.id for one in (await c.snapshot()).bookings} == {"1"}


async def test_a_tail_of_the_log_that_was_lost_is_found_out_by_who_had_folded_it(
    harness: NatsHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # as in a cluster, where a restart of a server alone says nothing
    monkeypatch.setattr(Connection, "life", lambda _self, info: f"log:{info.created.timestamp():.6f}")
    a, b = await joined(harness, "a"), await joined(harness, "b")
    await a.book(booking("kept"))
    before = (await a.snapshot()).version.epoch
    harness.server.kill()
    shutil.copytree(harness.server.folder / "store", tmp_path / "copy")
    harness.server.start()
    beat = await eventually(lambda: a.beat({}))
    assert beat.version.epoch == before  # nothing was lost, so nothing is void
    assert (await a.snapshot()).bookings[0].id == "kept"
    await a.book(booking("lost"))
    await eventually(lambda: b.beat({}))
    harness.server.kill()
    harness.server.wipe()
    shutil.copytree(tmp_path / "copy", harness.server.folder / "store")
    harness.server.start()
    for plane in (a, b):
        beat = await eventually(lambda plane=plane: plane.start({}))  # type: ignore[misc]
        assert beat.version.epoch > before
    assert {one.epoch for one in ((await a.snapshot()).version, (await b.snapshot()).version)} == {
        beat.version.epoch
    }
    assert (await a.snapshot()).bookings == ()
    stands(await a.book(booking("lost")))
    await exact(b)


async def test_two_replicas_that_book_one_key_at_once_are_two_attempts_in_one_order(
    harness: NatsHarness,
) -> None:
    a, b = await joined(harness, "a"), await joined(harness, "b")
    for n in range(20):
        pair = await asyncio.gather(
            a.book(booking(f"a{n}", key=f"k{n}")), b.book(booking(f"b{n}", key=f"k{n}", worker="w2"))
        )
        assert sorted(stands(one).attempt for one in pair) == [1, 2]
        snapshot = await a.snapshot()
        outrun = [one for one in snapshot.bookings if one.key == f"k{n}" and one.outrun]
        assert [one.attempt for one in outrun] == [1]
        assert {one.id: one for one in snapshot.bookings} == {
            one.id: one for one in (await b.snapshot()).bookings
        }


async def test_one_lapse_is_one_change_however_many_survivors_beat_at_once(harness: NatsHarness) -> None:
    a, *others = [await joined(harness, name) for name in "abcd"]
    for n in range(10):
        await a.book(booking(str(n)))
    before = (await others[0].snapshot()).version
    for _ in range(5):
        await harness.move_clock(RULES.heartbeat)
        await asyncio.gather(*(plane.beat({}) for plane in others))
    last = await others[1].snapshot()
    assert {one.state for one in last.bookings} == {State.DRAINING}
    changes: list[Change] = await watched(others[2], before, until=last.version)
    assert [type(change).__name__ for change in changes] == ["OwnerLapsed"]


async def test_gone_at_deadlines_goes_in_slices_that_others_pass_between(harness: NatsHarness) -> None:
    a, b = await joined(harness, "a"), await joined(harness, "b")
    await asyncio.gather(*(a.book(booking(str(n))) for n in range(300)))
    before, reaped = (await b.snapshot()).version, 0
    for _ in range(36):
        await harness.move_clock(RULES.heartbeat)
        last = await harness.last(POOL)
        done = (await b.beat({})).reaped
        assert await harness.last(POOL) - last == 1 + done // SLICE
        reaped += done
    assert reaped == 300
    last_version = (await b.snapshot()).version
    changes = await watched(b, before, until=last_version)
    assert [type(change).__name__ for change in changes] == ["OwnerLapsed"] + 300 * ["Gone"]
    assert await b.sums() == {}


async def test_the_newest_checkpoint_wins_whoever_stores_at_once_and_old_ones_are_removed(
    harness: NatsHarness,
) -> None:
    planes = [await joined(harness, name) for name in "abc"]
    for n in range(10):
        await planes[0].book(booking(str(n)))
        await asyncio.gather(*(plane._log.checkpoint() for plane in planes))
    stored = await planes[0]._log.newest_checkpoint()
    assert stored >= await harness.last(POOL) - 1
    await planes[0].book(booking("x"))
    await planes[1]._log.checkpoint()
    info = await (await harness.client()).jetstream().stream_info(NAMES.store, subjects_filter=">")
    assert info.state.subjects is not None
    assert len(info.state.subjects) <= 3, info.state.subjects
    await exact(planes[2])


async def test_a_watcher_of_a_frozen_server_goes_on_where_it_was(harness: NatsHarness) -> None:
    a, b = await joined(harness, "a"), await joined(harness, "b")
    before = (await b.snapshot()).version
    waiting = asyncio.create_task(collect(b, before, 1))
    await harness.freeze()
    await asyncio.sleep(0.3)
    await harness.thaw()
    await eventually(lambda: a.book(booking("1")))
    (change,) = await waiting
    assert isinstance(change, Booked)


async def collect(plane: NatsPlane, after: object, many: int) -> list[Change]:
    changes: list[Change] = []
    async for change in plane.changes(after):  # type: ignore[arg-type]
        changes.append(change)
        if len(changes) == many:
            break
    return changes


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[list[Server]]:
    """Three servers that form one."""
    servers, routes = [], [free_port() for _ in range(3)]
    for n, port in enumerate(routes):
        (folder / str(n)).mkdir()
        peers = ",".join(f"nats://127.0.0.1:{other}" for other in routes)
        servers.append(
            Server(
                folder / str(n), "--server_name", f"n{n}", "--cluster_name", "c",
                "--cluster", f"nats://127.0.0.1:{port}", "--routes", peers,
            )
        )  # fmt: skip
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_in_a_cluster_the_death_of_the_leader_neither_begins_an_epoch_nor_loses_a_booking(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as servers:
        hosts = ",".join(server.where for server in servers)
        plane = NatsPlane(
            f"nats://{hosts}/?storage=file&replicas=3",
            pool=POOL,
            owner=Owner("a", "1"),
            rules=RULES,
            timeout=2,
        )
        try:
            await eventually(lambda: plane.start({}), 40)
            await eventually(lambda: plane.book(booking("1")))
            before = (await plane.snapshot()).version
            servers[await leader_once_level(servers)].kill()
            outcome = await eventually(lambda: plane.book(booking("2")), 40)
            assert outcome.status in (Status.DONE, Status.SAME)
            snapshot = await eventually(plane.snapshot, 40)
            assert snapshot.version.epoch == before.epoch
            assert {one.id for one in snapshot.bookings} == {"1", "2"}
            await exact(plane)
            assert plane.counts.reloads == 1
        finally:
            await plane.close()


async def leader_once_level(servers: list[Server]) -> int:
    """Which server leads the log, once each of them holds all of it."""
    until = time.monotonic() + 40
    while True:
        client = await servers[0].client()
        try:
            for stream in (NAMES.store, NAMES.log):
                info = await client.jetstream(timeout=2).stream_info(stream)
                assert info.cluster is not None
                replicas = info.cluster.replicas or []
                assert len(replicas) == 2
                assert all(one.current and not one.offline for one in replicas)
            assert info.cluster is not None
            return int(str(info.cluster.leader)[1:])
        except (AssertionError, nats.errors.Error):
            assert time.monotonic() < until
            await asyncio.sleep(0.1)
        finally:
            await client.close()
