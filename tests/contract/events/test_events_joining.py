"""Recovery of whole pools: a replica that joins, all that start cold, workers that come and go meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import pytest

from picker.events.subjects import Subjects

POOL = "team.a/llama 3"
WORKERS = [f"10.0.0.{number}:8000" for number in range(1, 7)]


async def test_a_replica_that_joins_a_busy_pool_has_the_others_index_before_it_is_ready(
    path: Any, until: Any, prompts: Any
) -> None:
    engines = [path.engine() for _ in WORKERS]
    for worker, engine in zip(WORKERS, engines, strict=True):
        path.bridge(engine, bridge_worker=worker, bridge_buffer=16)
    early = path.replica(WORKERS[0])
    for worker in WORKERS[1:]:
        early.subscriber.watch(worker)
    for number in range(60):
        for engine in engines:
            await engine.store(prompts(number))
    await until(
        lambda: (
            not early.subscriber.unrecovered()
            and all(early.index.held(w) == e.truth() for w, e in zip(WORKERS, engines, strict=True))
        )
    )
    busy = asyncio.create_task(_load(engines, prompts))
    try:
        late = path.replica(WORKERS[0], recovery_parallel=2)
        for worker in WORKERS[1:]:
            late.subscriber.watch(worker)
        assert len(late.subscriber.pending()) == len(WORKERS), "not ready before the first answer"
        await until(lambda: not late.subscriber.pending())
        held = [late.index.count(worker) for worker in WORKERS]
        assert min(held) >= 60 * 4, "ready: with what the others know"
    finally:
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy
    await until(
        lambda: (
            not late.subscriber.unrecovered()
            and all(
                late.index.held(w) == early.index.held(w) == e.truth()
                for w, e in zip(WORKERS, engines, strict=True)
            )
        )
    )


async def _load(engines: Any, prompts: Any) -> None:
    number = 1000
    while True:
        for engine in engines:
            await engine.store(prompts(number))
        number += 1
        await asyncio.sleep(0.005)


async def test_a_pool_where_everything_starts_cold_does_not_wait_for_itself(
    path: Any, until: Any, prompts: Any
) -> None:
    replicas = [path.replica(WORKERS[0]) for _ in range(3)]
    for replica in replicas:
        for worker in WORKERS[1:]:
            replica.subscriber.watch(worker)
    await until(lambda: all(not replica.subscriber.pending() for replica in replicas))
    assert all(len(replica.subscriber.unrecovered()) == len(WORKERS) for replica in replicas)
    engine = path.engine()
    path.bridge(engine, bridge_worker=WORKERS[3])
    await engine.store(prompts(0))
    await until(lambda: all(replica.index.held(WORKERS[3]) == engine.truth() for replica in replicas))


async def test_a_rank_that_leaves_ends_its_own_recovery_and_no_other_and_few_run_at_one_time(
    path: Any, until: Any
) -> None:
    client = await nats.connect(path.nats.url)
    subjects, asked = Subjects(POOL), []

    async def mute(message: Any) -> None:
        asked.append(message.subject)

    names = [WORKERS[0], f"{WORKERS[0]}@1", f"{WORKERS[0]}@2", f"{WORKERS[0]}@3"]
    for name in names:
        await client.subscribe(subjects.asks(name), cb=mute)
    await client.flush()
    try:
        replica = path.replica(names[0], recovery_parallel=2, recovery_timeout_seconds=1.0)
        for name in names[1:]:
            replica.subscriber.watch(name)
        await until(lambda: len(asked) == 2)
        await asyncio.sleep(0.3)
        assert len(asked) == 2, "the others wait their turn"
        gone = [name for name in names if subjects.asks(name) in asked]
        for name in gone:
            replica.subscriber.unwatch(name)
        await until(lambda: len(asked) == 4, seconds=0.6)
        assert set(asked) == {subjects.asks(name) for name in names}, (
            "their places went to the others at once"
        )
        assert set(replica.subscriber.unrecovered()) == set(names) - set(gone)
    finally:
        await client.close()
