"""
From the engine's sockets over a real bridge and a real NATS server into two replicas' indexes: after quiet
both hold what the engine holds, block by block, or the worker is declared partial and they hold a part of
it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest


async def settled(until: Any, engine: Any, *replicas: Any) -> None:
    """Every replica's index equals the engine's prefix-closed set, and says that it is whole."""
    await until(
        lambda: all(each.recovered and each.held == engine.truth() and not each.partial for each in replicas),
        say=lambda: [(each.recovered, each.partial, len(each.held), len(engine.truth()),
                      each.subscriber.status()) for each in replicas],
    )  # fmt: skip


async def test_two_replicas_hold_what_the_engine_holds(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine)
    first, second = path.replica(), path.replica()
    await settled(until, engine, first, second)
    for number in range(20):
        await engine.store(prompts(number))
    await settled(until, engine, first, second)
    assert len(first.held) == 2 + 20 * 4
    middle = engine.chain(prompts(3))[2]
    await engine.evict(middle)
    await settled(until, engine, first, second)
    assert len(first.held) == 2 + 19 * 4, "what follows the missing block is withdrawn"
    await engine.store(prompts(3))
    await settled(until, engine, first, second)
    assert len(first.held) == 2 + 20 * 4, "and told again when the block returns"
    await engine.clear()
    await settled(until, engine, first, second)
    assert not first.held


async def test_the_listener_hears_of_stored_blocks(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    await engine.store(prompts(0))
    await settled(until, engine, replica)
    assert set(replica.stored) == engine.truth()


async def test_a_late_replica_reaches_the_others_index(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine, bridge_buffer=16, bridge_snapshot_bytes=4096)
    early = path.replica()
    for number in range(300):
        await engine.store(prompts(number))
    await settled(until, engine, early)
    late = path.replica()
    await settled(until, engine, late)
    assert late.subscriber.counts.snapshots == 1
    assert late.index.held(late.worker) == early.held


async def test_a_replica_joining_a_burst_reaches_the_engine(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine)
    for number in range(50):
        await engine.store(prompts(number))
    replica = path.replica()
    for number in range(50, 400):
        await engine.store(prompts(number))
        if number % 10 == 0:
            await engine.evict(engine.chain(prompts(number - 20))[-1])
            await asyncio.sleep(0.005)
    await settled(until, engine, replica)


async def test_batches_lost_on_the_way_to_the_bridge_are_replayed(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    await engine.store(prompts(0))
    await settled(until, engine, replica)
    lives = bridge.counts.lives
    await engine.store(prompts(1), lose=True)
    await engine.evict(engine.chain(prompts(0))[-1], lose=True)
    await engine.store(prompts(2))
    await settled(until, engine, replica)
    assert bridge.counts.gaps == 1
    assert bridge.counts.lives == lives, "a mended gap costs no epoch"


async def test_a_lost_last_batch_is_found_while_the_engine_is_idle(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    await engine.store(prompts(1), lose=True)
    await settled(until, engine, replica)
    assert replica.held


async def test_messages_lost_doubled_and_turned_around_on_nats_are_mended(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    first, second = path.replica(), path.replica()
    await settled(until, engine, first, second)
    send, late, count = bridge.link.send, [], 0

    async def unreliable(subject: str, data: bytes, *, reply: str = "") -> bool:
        nonlocal count
        if ".kv." not in subject:
            return bool(await send(subject, data, reply=reply))
        count += 1
        if count % 7 == 0:
            return True  # lost without a trace
        if count % 5 == 0:
            late.append((subject, data))
            return True
        await send(subject, data)
        if count % 3 == 0:
            await send(subject, data)
        while late:
            await send(*late.pop())
        return True

    bridge.link.send = unreliable
    for number in range(120):
        await engine.store(prompts(number))
        if number % 4 == 3:
            await engine.evict(engine.chain(prompts(number - 2))[3])
        await asyncio.sleep(0.002)
    await settled(until, engine, first, second)
    assert first.subscriber.counts.stream.gaps > 0
    assert first.subscriber.counts.stream.old > 0


async def test_a_lost_last_message_is_noticed_by_the_next_beat(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    send = bridge.link.send

    async def deaf(_subject: str, _data: bytes, *, reply: str = "") -> bool:
        return True

    bridge.link.send = deaf
    await engine.store(prompts(0))
    await until(lambda: len(bridge.ranks.by_rank[0].blocks.announced) == 6)
    bridge.link.send = send
    await settled(until, engine, replica)
    assert replica.subscriber.counts.snapshots <= 1, (
        "the missing event was kept; no snapshot is needed for it"
    )


async def test_nats_killed_and_restarted_loses_nothing(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine)
    first, second = path.replica(), path.replica()
    await engine.store(prompts(0))
    await settled(until, engine, first, second)
    await path.nats.kill()
    await until(lambda: not first.subscriber.status().connected)
    assert first.held, "what is known stays known while the server is away"
    for number in range(1, 30):
        await engine.store(prompts(number))
    await engine.evict(engine.chain(prompts(0))[-1])
    assert first.subscriber.status().away_seconds is not None
    await path.nats.start()
    await settled(until, engine, first, second)


async def test_nats_away_at_the_start_is_waited_for(path: Any, until: Any, prompts: Any) -> None:
    await path.nats.kill()
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica()
    await asyncio.sleep(0.3)
    await engine.store(prompts(0))
    assert replica.subscriber.unrecovered() == [replica.worker]
    assert not replica.subscriber.status().connected
    await path.nats.start()
    await settled(until, engine, replica)


async def test_a_bridge_that_restarts_rebuilds_from_the_engines_replay(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, task = path.bridge(engine)
    replica = path.replica()
    for number in range(30):
        await engine.store(prompts(number))
    await settled(until, engine, replica)
    before = bridge.ranks.epoch
    await path.end(task)
    await engine.store(prompts(30))
    await engine.evict(engine.chain(prompts(4))[3])
    again, _ = path.bridge(engine)
    await until(lambda: replica.subscriber.status().workers[replica.worker].epoch == again.ranks.epoch)
    await settled(until, engine, replica)
    assert again.ranks.epoch > before


async def test_with_more_history_than_the_replay_holds_the_worker_is_partial_and_nothing_is_invented(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine(keep=10)
    _, task = path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    for number in range(30):
        await engine.store(prompts(number))
    await settled(until, engine, replica)
    await path.end(task)
    for number in (100, 101):
        # These begin anew, so they are known to their first block although the past is not.
        await engine.store([each + 50_000 * number for each in prompts(number)])
    bridge, _ = path.bridge(engine)
    epoch = bridge.ranks.epoch
    await until(
        lambda: replica.subscriber.status().workers[replica.worker].epoch == bridge.ranks.epoch != epoch
    )
    await until(lambda: bridge.synced.is_set() and replica.recovered and len(replica.held) == 12)
    assert replica.partial
    assert replica.held < engine.truth()
    await engine.clear()
    await settled(until, engine, replica)


async def test_an_engine_that_restarts_in_place_is_forgotten_and_learnt_anew(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    path.bridge(engine)
    first, second = path.replica(), path.replica()
    for number in range(10):
        await engine.store(prompts(number))
    await settled(until, engine, first, second)
    engine = await path.restart(engine)
    for number in range(5, 12):
        await engine.store(prompts(number))
    await settled(until, engine, first, second)
    assert first.subscriber.counts.stream.new_epochs >= 1


async def test_an_engine_that_restarted_and_counts_past_the_old_number_is_not_taken_for_the_old_one(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica()
    for number in range(4):
        await engine.store(prompts(number))
    await settled(until, engine, replica)
    engine = await path.restart(engine)
    for number in range(20, 30):
        await engine.store(prompts(number), lose=number < 25)
    await settled(until, engine, replica)


async def test_without_a_replay_a_loss_makes_the_worker_partial_until_it_is_cleared(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine, replay=False)
    replica = path.replica()
    await until(lambda: bridge.feed.connected)
    await asyncio.sleep(0.1)
    await engine.store(prompts(0))
    await settled(until, engine, replica)
    await engine.evict(engine.chain(prompts(0))[-1], lose=True)
    await engine.store([9] * 8)
    await until(lambda: replica.recovered and replica.partial and len(replica.held) == 2)
    assert replica.held < engine.truth(), "a block whose removal may be lost is no longer claimed"
    await engine.clear()
    await engine.store(prompts(1))
    await settled(until, engine, replica)


async def test_an_engine_block_size_that_does_not_divide_is_refused_and_shown(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine(block_size=3)
    path.bridge(engine)
    replica = path.replica()
    await engine.store(prompts(0))
    await until(lambda: "does not divide" in replica.subscriber.status().workers[replica.worker].note)
    await until(lambda: replica.recovered)
    assert not replica.held


async def test_smaller_engine_blocks_are_joined(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine(block_size=2)
    path.bridge(engine)
    replica = path.replica()
    for number in range(6):
        await engine.store(prompts(number))
    await engine.evict(engine.chain(prompts(2))[-1])
    await settled(until, engine, replica)
    assert len(replica.held) == 2 + 6 * 4 - 1


async def test_a_worker_let_go_is_dropped_and_its_recovery_ends(path: Any, until: Any, prompts: Any) -> None:
    replica = path.replica("10.0.0.9:8000")
    await until(lambda: replica.subscriber.counts.asks > 1)
    assert replica.subscriber.pending() == [], "a worker without a bridge is not waited for"
    assert replica.subscriber.unrecovered() == ["10.0.0.9:8000"]
    replica.subscriber.unwatch("10.0.0.9:8000")
    await asyncio.sleep(0)
    asks = replica.subscriber.counts.asks
    await asyncio.sleep(0.5)
    assert replica.subscriber.counts.asks == asks
    assert not replica.subscriber.status().workers


async def test_bytes_that_are_no_event_are_counted_and_change_nothing(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    replica = path.replica()
    await engine.store(prompts(0))
    await settled(until, engine, replica)
    subject = bridge.ranks.subjects.events(replica.worker)
    for junk in (b"", b"\xc1", b"\x93\x01\x02", bytes(range(256))):
        await bridge.link.send(subject, junk)
    await bridge.link.send(bridge.ranks.subjects.events("10.0.0.66:1"), b"junk")
    await until(lambda: replica.subscriber.counts.malformed == 4)
    await until(lambda: replica.subscriber.counts.unwatched >= 1)
    await settled(until, engine, replica)


async def test_a_bad_batch_of_the_engine_is_counted_and_changes_nothing_else(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    replica = path.replica()
    await engine.store(prompts(0))
    await settled(until, engine, replica)
    await engine.emit("no event", {"type": "Unheard"}, {"type": "BlockRemoved", "block_hashes": ["x"]})
    await engine.store(prompts(1))
    await until(lambda: replica.held == engine.truth())
    assert bridge.ranks.counts.skipped == {"shape": 1, "unknown_tag": 1, "hash": 1}


async def test_a_frozen_nats_is_noticed_and_its_return_mended(path: Any, until: Any, prompts: Any) -> None:
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    path.nats.freeze()
    await engine.store(prompts(0))
    await until(lambda: not replica.subscriber.status().connected, seconds=30)
    path.nats.thaw()
    await settled(until, engine, replica)


@pytest.mark.parametrize("seed", [1, 3, 5, 8])
async def test_after_any_mixture_of_faults_the_replicas_equal_the_engine(
    path: Any, until: Any, prompts: Any, seed: int
) -> None:
    rng = random.Random(seed)
    engine = path.engine()
    _, task = path.bridge(engine, bridge_buffer=16)
    replicas = [path.replica()]
    for step in range(150):
        action = rng.random()
        lose = rng.random() < 0.1
        if action < 0.6:
            await engine.store(prompts(rng.randrange(40)), lose=lose)
        elif action < 0.85 and engine.held:
            await engine.evict(rng.choice(sorted(engine.held)), lose=lose)
        elif action < 0.87:
            await engine.clear()
        elif action < 0.90:
            engine = await path.restart(engine)
        elif action < 0.93:
            await path.end(task)
            _, task = path.bridge(engine, bridge_buffer=16)
        elif action < 0.95:
            await path.nats.kill()
            await path.nats.start()
        elif len(replicas) < 4:
            replicas.append(path.replica())
        if step % 5 == 0:
            await asyncio.sleep(rng.random() * 0.1)
    await settled(until, engine, *replicas)


@pytest.mark.parametrize("seed", [2, 4, 7])
async def test_where_the_engine_forgets_its_past_a_part_is_held_and_said_to_be_one(
    path: Any, until: Any, prompts: Any, seed: int
) -> None:
    rng = random.Random(seed)
    engine = path.engine(keep=8)
    bridge, task = path.bridge(engine, bridge_buffer=16)
    first, second = path.replica(), path.replica()
    for step in range(120):
        action, lose = rng.random(), rng.random() < 0.15
        if action < 0.65:
            await engine.store(prompts(rng.randrange(60)), lose=lose)
        elif action < 0.94 and engine.held:
            await engine.evict(rng.choice(sorted(engine.held)), lose=lose)
        elif action >= 0.97:
            await path.end(task)
            for _ in range(rng.randrange(12)):
                await engine.store(prompts(rng.randrange(60)))
            bridge, task = path.bridge(engine, bridge_buffer=16)
        if step % 4 == 0:
            await asyncio.sleep(rng.random() * 0.05)
    await until(lambda: bridge.synced.is_set())
    await asyncio.sleep(1.5)  # an idle engine is asked what it sent last

    def true() -> bool:
        return (
            all(
                each.recovered
                and (each.held == engine.truth() or (each.partial and each.held < engine.truth()))
                for each in (first, second)
            )
            and first.held == second.held
        )

    await until(
        true, say=lambda: [(each.recovered, each.partial, len(each.held)) for each in (first, second)]
    )
    await engine.clear()
    await engine.store(prompts(0))
    await settled(until, engine, first, second)


async def test_a_question_cannot_make_the_bridge_speak_on_the_events_subjects(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine)
    replica = path.replica()
    await settled(until, engine, replica)
    ask = bridge.ranks.subjects.asks(replica.worker)
    await replica.subscriber.link.send(
        ask, b"\x94\x01\x00\x00\x00", reply=bridge.ranks.subjects.events("other:1")
    )
    await replica.subscriber.link.send(ask, b"no question", reply="_INBOX.x")
    await replica.subscriber.link.send(ask, b"\x94\x01\x00\x00\x00")
    await until(lambda: bridge.counts.bad_asks == 3)
    assert replica.subscriber.counts.unwatched == 0
