"""Real desks on a real Valkey that freezes, forgets or meets the death of one of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateplane.booking import NOTHING, Amount, Cause, State, Status
from stateplane.breaker import Health
from tests.contract.stateplane.replicas import RULES, Replica, agree, close, eventually, exact
from tests.contract.stateplane.servers import Server

ROOT = Path(__file__).resolve().parents[3]
FROZEN = 10.0
TIMEOUT = 0.5
WORKERS = [f"10.0.0.{n}:8000" for n in range(4)]


@pytest.fixture
async def server(valkey: Server) -> AsyncIterator[Server]:
    if valkey.process is None:
        valkey.start()
    with valkey.client() as client:
        client.flushall()
    yield valkey
    with contextlib.suppress(ProcessLookupError):
        valkey.signal(signal.SIGCONT)


@pytest.fixture
async def three(server: Server) -> AsyncIterator[list[Replica]]:
    replicas = [Replica(name, server.url, timeout=TIMEOUT) for name in "abc"]
    assert all([await one.start() for one in replicas])
    yield replicas
    await close(replicas)


class Load:
    """Requests that come and go through all replicas, and what the desk's calls on the pick path cost."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self.live: list[tuple[Replica, str]] = []
        self.slowest = 0.0
        self.failures: list[BaseException] = []

    async def run(self) -> None:
        turn = 0
        while True:
            replica = self.replicas[turn % len(self.replicas)]
            began = time.perf_counter()
            self.live.append((replica, replica.book(WORKERS[turn % len(WORKERS)])))
            if len(self.live) > 40:
                owner, oldest = self.live.pop(0)
                owner.desk.end(oldest, Cause.ENDED)
            self.slowest = max(self.slowest, time.perf_counter() - began)
            turn += 1
            await asyncio.sleep(0.02)

    def ids(self) -> set[str]:
        return {booking_id for _, booking_id in self.live}


async def test_the_plane_frozen_ten_seconds_under_load_reaps_nobody_holds_nothing_up_and_shows_no_zero(
    server: Server, three: list[Replica]
) -> None:
    load = Load(three)
    loading = asyncio.create_task(load.run())
    await eventually(lambda: all(len(one.picture()) >= 40 for one in three), within=10)
    foreign = {one.owner.name: _foreign(one) for one in three}
    server.signal(signal.SIGSTOP)
    until = time.monotonic() + FROZEN
    longest = 0.0
    while time.monotonic() < until:
        for one in three:
            assert all(one.desk.view.load(worker).requests > 0 for worker in WORKERS)
            assert exact(one)
            # what the others had stays, and stays whole: nothing of it may end before they say so
            assert _foreign(one) >= foreign[one.owner.name]
        began = time.perf_counter()
        with contextlib.suppress(Exception):
            await three[0].plane.beat({})
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(0.05)
    # a deadline until the call is written, behind those before it, and one for its answer
    assert longest < 2 * TIMEOUT + 0.5
    assert load.slowest < 0.1
    assert [one.desk.status().state for one in three] == [Health.AWAY] * 3
    server.signal(signal.SIGCONT)
    back = await eventually(lambda: all(not one.desk.degraded for one in three), within=5)
    assert not loading.done()
    await eventually(lambda: all(one.desk.status().state is not Health.AWAY for one in three), within=5)
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading
    await eventually(lambda: agree(three) and three[0].picture().keys() == load.ids(), within=5)
    assert back < 3
    await asyncio.sleep(RULES.lease + RULES.heartbeat)
    for one in three:
        assert {told[2] for told in one.picture().values()} == {State.ACTIVE.value}
        assert one.desk.counts.bookings.reclaimed == 0
        assert one.plane.counts.reaped == 0
        assert one.plane.counts.lapsed == 0


def _foreign(replica: Replica) -> set[str]:
    return {one.id for one in replica.desk.view.bookings().values() if one.owner != replica.owner}


async def test_restarted_empty_all_views_agree_within_two_seconds_and_never_read_zero(
    server: Server, three: list[Replica]
) -> None:
    ids = {one.book(worker) for one in three for worker in WORKERS}
    await eventually(lambda: agree(three) and three[0].picture().keys() == ids, within=5)
    epoch = three[0].desk.view.version.epoch
    server.kill()
    await asyncio.sleep(1.0)
    ids.add(three[1].book(WORKERS[0]))
    server.restart(lose=True)
    began = time.monotonic()
    lowest = min(len(one.picture()) for one in three)
    while not (agree(three) and all(one.desk.view.version.epoch > epoch for one in three)):
        lowest = min(lowest, *(len(one.picture()) for one in three))
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.01)
    await eventually(lambda: agree(three) and three[0].picture().keys() == ids, within=2)
    assert time.monotonic() - began < 2 + 1  # a second for a busy machine
    assert lowest >= 12
    await eventually(lambda: all(not one.desk.status().kept for one in three), within=5)
    for one in three:
        assert one.picture().keys() == ids


async def test_two_pools_with_equal_workers_owners_and_ids_never_meet(server: Server) -> None:
    left = [Replica(name, server.url, pool="ns/left") for name in "ab"]
    right = [Replica(name, server.url, pool="ns/right") for name in "ab"]
    try:
        assert all([await one.start() for one in (*left, *right)])
        for n in range(5):
            left[0].desk.book(f"id-{n}", key="k", worker="w1", amount=Amount(10, 1), now=time.monotonic())
        for n in range(3):
            right[0].desk.book(f"id-{n}", key="k", worker="w1", amount=Amount(99, 9), now=time.monotonic())
        await eventually(lambda: agree(left) and len(left[1].picture()) == 5, within=5)
        await eventually(lambda: agree(right) and len(right[1].picture()) == 3, within=5)
        right[0].desk.end("id-0", Cause.ENDED)
        right[1].desk.end_foreign("id-1", Cause.LOGGED)
        await eventually(lambda: agree(right) and len(right[1].picture()) == 1, within=5)
        await right[0].leave()
        await asyncio.sleep(1.5)
        assert left[1].desk.view.load("w1") == Amount(50, 5, 5)
        assert {told[2] for told in left[1].picture().values()} == {"active"}
        assert {one.attempt for one in left[1].desk.view.bookings().values()} == {1, 2, 3, 4, 5}
        assert right[1].desk.view.load("w1") == Amount(99, 9, 1)
        assert {str(one.owner) for one in left[0].desk.members} == {"a/1", "b/1"}
        assert (await right[1].plane.reclaim("id-4")).status is Status.UNKNOWN
    finally:
        await close((*left, *right))


async def test_a_late_joiner_equals_the_plane_before_it_is_ready(
    server: Server, three: list[Replica]
) -> None:
    load = Load(three)
    loading = asyncio.create_task(load.run())
    try:
        await eventually(lambda: len(three[0].picture()) >= 40, within=10)
        for n in range(3):
            late = Replica(f"late{n}", server.url)
            try:
                settled = _settled(three)
                assert await late.desk.start(5.0)
                assert late.desk.joined
                truth = await three[0].plane.snapshot()
                known = late.desk.view.bookings().keys()
                assert late.desk.view.version <= truth.version
                assert not (settled & {one.id for one in truth.bookings}) - known
                assert len(known) > 30
            finally:
                await late.die()
    finally:
        loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading


def _settled(replicas: list[Replica]) -> set[str]:
    """Ids that every replica's view shows by now: the plane holds them."""
    return set.intersection(*(set(one.picture()) for one in replicas))


@pytest.fixture
async def owner(server: Server) -> AsyncIterator[tuple[asyncio.subprocess.Process, set[str]]]:
    """A replica in a process of its own, and the ids of what it booked."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.stateplane.owner",
        server.url,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    ids = set(json.loads(await asyncio.wait_for(process.stdout.readline(), 20)))
    yield process, ids
    if process.returncode is None:
        process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


async def test_a_killed_owners_bookings_drain_within_four_seconds_and_are_gone_by_their_deadline(
    server: Server, owner: tuple[asyncio.subprocess.Process, set[str]]
) -> None:
    process, ids = owner
    rules = replace(RULES, drain=3.0)
    others = [Replica(name, server.url, rules=rules) for name in "ab"]
    try:
        assert all([await one.start() for one in others])
        own = others[0].book("w0")
        await eventually(lambda: all(one.picture().keys() == ids | {own} for one in others), within=5)
        process.kill()
        began = time.monotonic()

        def draining(one: Replica) -> bool:
            return {id_ for id_, told in one.picture().items() if told[2] == "draining"} == ids

        await eventually(lambda: all(draining(one) for one in others), within=6)
        assert time.monotonic() - began < RULES.lease + RULES.heartbeat + 0.5
        assert others[1].desk.view.load("w0").requests == 4
        await eventually(lambda: all(one.picture().keys() == {own} for one in others), within=8)
        assert time.monotonic() - began < RULES.lease + RULES.heartbeat + 3.0 + RULES.heartbeat + 0.5
        assert others[1].desk.view.load("w1") == NOTHING
        assert others[0].picture()[own][2] == "active"
        await eventually(lambda: {m.owner.name for m in others[0].desk.members} == {"a", "b"}, within=3)
    finally:
        await close(others)


async def test_an_owner_frozen_past_its_lease_takes_its_live_bookings_back_none_counted_twice(
    server: Server, owner: tuple[asyncio.subprocess.Process, set[str]]
) -> None:
    process, ids = owner
    other = Replica("b", server.url)
    try:
        assert await other.start()
        await eventually(lambda: other.picture().keys() == ids, within=5)
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: {told[2] for told in other.picture().values()} == {"draining"}, within=8)
        assert other.picture().keys() == ids
        await asyncio.sleep(1.0)
        process.send_signal(signal.SIGCONT)
        await eventually(lambda: {told[2] for told in other.picture().values()} == {"active"}, within=5)
        assert other.picture().keys() == ids
        assert other.desk.view.load("w0").requests + other.desk.view.load("w1").requests == len(ids)
        assert sum(amount.requests for amount in (await other.plane.sums()).values()) == len(ids)
    finally:
        await other.die()
