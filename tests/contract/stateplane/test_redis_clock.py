"""The server's clock is moved while bookings live: nobody is reaped for it, nothing comes back for it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from stateplane.booking import Cause, Gone, Owner, Rules, State
from stateplane.redis.plane import RedisPlane
from stateplane.testing.world import absent, exact, standing, watched
from stateplane.testing.world import booking as a_booking
from tests.contract.stateplane.replicas import Replica, agree, close, eventually
from tests.contract.stateplane.servers import Server
from tests.tools.servers import environment, libfaketime

FIVE_MINUTES = 300.0


class Clock:
    """A Valkey under libfaketime, and the file that its clock follows. (Debian's Redis does not start under it.)"""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        self.set(0)
        self.server = Server(
            folder,
            environment=environment(
                LD_PRELOAD=str(libfaketime()),
                FAKETIME_TIMESTAMP_FILE=str(self.file),
                FAKETIME_NO_CACHE="1",
                FAKETIME_DONT_FAKE_MONOTONIC="1",
            ),
        )

    def set(self, seconds: float) -> None:
        """From now on the server's clock is so much ahead of this machine's."""
        self.file.write_text(f"{seconds:+g}\n")

    def ahead(self) -> float:
        """By how much it is, as the server sees it."""
        with self.server.client() as client:
            told, micro = client.time()
        return float(told) + float(micro) / 1e6 - time.time()


@pytest.mark.parametrize("step", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_a_clock_moved_by_five_minutes_reaps_nobody_and_resurrects_nothing(
    tmp_path: Path, step: float
) -> None:
    clock = Clock(tmp_path)
    replicas = [Replica(name, clock.server.url) for name in "ab"]
    watcher = RedisPlane(clock.server.url, pool="ns/desks", owner=Owner("c", "1"), rules=Rules(), timeout=1.0)
    try:
        clock.server.start()
        assert all([await one.start() for one in replicas])
        await watcher.start({})
        live = [one.book() for one in replicas for _ in range(5)]
        ended = replicas[0].book()
        draining = replicas[0].book()
        await eventually(lambda: agree(replicas) and len(replicas[0].picture()) == 12, within=5)
        replicas[0].desk.end(ended, Cause.ENDED)
        replicas[0].desk.lose(draining, Cause.BROKEN, seconds=20)
        await eventually(lambda: agree(replicas) and len(replicas[1].picture()) == 11, within=5)
        version = (await watcher.snapshot()).version
        clock.set(step)
        assert abs(clock.ahead() - step) < 5
        for _ in range(5):
            await asyncio.sleep(0.9)
            beat = await watcher.beat({})
            assert beat.lapsed == ()
        picture = await watcher.snapshot()
        assert {one.id for one in picture.bookings if one.state is State.ACTIVE} == set(live)
        left = (await standing(watcher, draining)).drain_left
        assert left is not None
        assert 8 < left < 20
        await absent(watcher, ended)
        assert (await watcher.reclaim(ended)).status.value == "gone"
        changes = await watched(watcher, version, until=picture.version)
        assert not [one for one in changes if isinstance(one, Gone)]
        assert agree(replicas)
        await exact(watcher)
    finally:
        await close(replicas)
        await watcher.close()
        clock.server.kill()


async def test_a_draining_booking_goes_in_its_time_after_the_clock_was_moved_to_and_fro(
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path)
    plane = RedisPlane(clock.server.url, pool="p", owner=Owner("a", "1"), rules=Rules(), timeout=1.0)
    try:
        clock.server.start()
        await plane.start({})
        await plane.book(a_booking("1"))
        await plane.drain(
            "1", term=1, op=1, cause=Cause.BROKEN, seconds=7
        )  # each step forward may count as one heartbeat
        began = time.monotonic()
        for step in (FIVE_MINUTES, 0, -FIVE_MINUTES, 0):
            clock.set(step)
            await plane.beat({})
            await asyncio.sleep(0.5)
            await plane.beat({})
        await standing(plane, "1")
        while (await plane.snapshot()).bookings:
            assert time.monotonic() - began < 15
            await plane.beat({})
            await asyncio.sleep(0.5)
        assert time.monotonic() - began > 3
    finally:
        await plane.close()
        clock.server.kill()
