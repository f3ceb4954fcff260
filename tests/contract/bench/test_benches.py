"""The benches of the plane on real servers, as small as they get: that they measure, not what."""

from __future__ import annotations

import pytest

from picker.bench.fleet import Fleet, FleetError, Stage
from picker.bench.plane.calls import Size
from picker.bench.plane.run import Extent, run
from picker.bench.race.real import race
from picker.bench.race.world import Setting
from picker.bench.servers import BACKENDS, running
from picker.bench.staleness.window import measure

TINY = Extent(calls=Size(rounds=1, calls=10, standing=10, cpu_calls=10), many=40, beats=3, whole=False)


async def test_every_backend_is_measured_and_only_redis_selects() -> None:
    found = (await run(TINY, backends=BACKENDS, seed=1)).as_json()
    assert {"set_p50_us", "book_p50_us", "release_p50_us", "select8_p50_us", "select64_p50_us"} <= set(
        found["valkey"]
    )
    assert found["valkey"]["reaper"]["slices"] >= 2
    for backend in ("nats-memory", "nats-file"):
        assert {"request_p50_us", "book_p50_us", "release_p50_us"} <= set(found[backend])
        assert "select8_p50_us" not in found[backend]
    assert all(found[backend]["book_p50_us"] > 0 for backend in BACKENDS)


@pytest.mark.parametrize("backend", ["valkey", "nats-memory"])
async def test_every_booking_reaches_the_other_replicas_view(backend: str) -> None:
    with Fleet(2) as fleet:
        async with running(backend) as server:
            for hop in (False, True):
                found = await measure(fleet, server, replicas=2, rate=100, seconds=0.5, seed=1, hop=hop)
                assert found.missing == 0
                assert len(found.seconds) == found.said > 10
                assert min(found.seconds) > 0
            if backend == "valkey":
                found = await measure(fleet, server, replicas=2, rate=50, seconds=0.5, seed=2, poll=0.1)
                assert sorted(found.seconds)[len(found.seconds) // 2] > 0.02


async def test_replicas_in_processes_of_their_own_race_on_a_real_plane() -> None:
    with Fleet(2) as fleet:
        async with running("valkey") as server:
            atomic = await race(fleet, server, Setting("atomic", 2, 60.0, 3), count=210, seed=1, turn=1)
            view = await race(fleet, server, Setting("isolated", 2, 60.0, 3), count=210, seed=1, turn=2)
    assert atomic.degraded_pct < 100  # some were made by the plane itself
    assert view.degraded_pct == 0
    assert view.wrong_pick_pct > atomic.wrong_pick_pct


async def failing(stage: Stage, text: str) -> None:
    await stage.ready()
    raise ValueError(text)


async def test_a_process_that_fails_ends_the_bench_with_its_traceback() -> None:
    with Fleet(1) as fleet, pytest.raises(FleetError, match="what went wrong"):
        await fleet.together(failing, ["what went wrong"])
