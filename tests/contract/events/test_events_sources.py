"""What else tells of caches, over real servers: an engine put to sleep, workers without events, Dynamo's workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats
import pytest
from aiohttp import web

from picker.core.blocks import block_hash, sequence_hashes

WORKER = "[fd00::1]:8000"
OTHER = "10.0.0.9:8000"
INSTANCE = 7587884888253033398
PREFIX = "namespace.prod.component.backend"


class MetricsPage:
    """An engine's metrics, as far as sleep is concerned."""

    def __init__(self) -> None:
        self.awake = {0: True}
        self.broken = False
        self.url = ""

    async def serve(self, _request: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=500)
        lines = ["# TYPE vllm:engine_sleep_state gauge", "vllm:num_requests_running 1.0"]
        for engine, awake in self.awake.items():
            for state, on in (("awake", awake), ("weights_offloaded", not awake), ("discard_all", False)):
                lines.append(
                    f'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="{state}"}} {float(on)}'
                )
        return web.Response(text="\n".join(lines) + "\n")


@pytest.fixture
async def metrics() -> AsyncIterator[MetricsPage]:
    page = MetricsPage()
    app = web.Application()
    app.router.add_get("/metrics", page.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    page.url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    try:
        yield page
    finally:
        await runner.cleanup()


async def test_an_engine_put_to_sleep_is_empty_although_no_event_says_so(
    path: Any, until: Any, prompts: Any, metrics: MetricsPage
) -> None:
    engine = path.engine()
    bridge, _ = path.bridge(engine, bridge_metrics=metrics.url, bridge_metrics_seconds=0.1)
    replica = path.replica()
    await engine.store(prompts(0))
    await until(lambda: replica.recovered and replica.held == engine.truth() != frozenset())
    metrics.awake = {0: False}
    await until(lambda: replica.held == frozenset())
    assert not replica.partial
    await engine.store(prompts(1))  # sent before it slept, read after
    await until(lambda: bridge.ranks.by_rank[0].blocks.counts.asleep >= 2)
    await until(lambda: replica.recovered and not replica.held)
    metrics.awake = {0: True}
    await until(lambda: not bridge.ranks.by_rank[0].asleep)
    await engine.clear()
    await engine.store(prompts(2))
    await until(lambda: replica.recovered and replica.held == engine.truth() != frozenset())


async def test_a_metrics_page_that_fails_changes_nothing(
    path: Any, until: Any, prompts: Any, metrics: MetricsPage
) -> None:
    engine = path.engine()
    metrics.broken = True
    bridge, _ = path.bridge(engine, bridge_metrics=metrics.url, bridge_metrics_seconds=0.1)
    replica = path.replica()
    await engine.store(prompts(0))
    await until(lambda: replica.recovered and replica.held == engine.truth() != frozenset())
    await until(lambda: bridge.sleep.counts.poll_failures > 2)
    assert replica.held == engine.truth()


async def test_picks_of_a_worker_without_events_are_learned_by_every_replica_until_its_bridge_speaks(
    path: Any, until: Any, prompts: Any
) -> None:
    first, second = path.replica(approximate=True), path.replica(approximate=True)
    deaf = path.replica()
    await until(lambda: all(each.subscriber.link.connected for each in (first, second, deaf)))
    hashes = [sequence_hashes(prompts(number), 4) for number in range(3)]
    await until(
        lambda: len(second.subscriber.picks._link._held) == 3 == len(first.subscriber.picks._link._held)
    )
    first.subscriber.routed(WORKER, 0.0, hashes[0])
    second.subscriber.routed(WORKER, 0.0, hashes[1])
    await until(lambda: first.held == second.held == {*hashes[0], *hashes[1]})
    assert deaf.held == frozenset()
    engine = path.engine()
    await engine.store(prompts(2))
    path.bridge(engine)
    await until(lambda: first.recovered and second.recovered and first.held == second.held == set(hashes[2]))
    first.subscriber.routed(WORKER, 0.0, hashes[0])
    await asyncio.sleep(0.1)
    assert first.held == second.held == set(hashes[2]), "its own events tell: picks do not"


async def test_tails_are_learned_by_every_replica_of_workers_whose_events_are_followed(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    await engine.store(prompts(0))
    path.bridge(engine)
    first, second = path.replica(), path.replica()
    await until(lambda: first.recovered and second.recovered)
    await until(lambda: all(len(each.subscriber.link._held) == 2 for each in (first, second)))
    before = second.held
    first.subscriber.routed(WORKER, 0.0, (), [1, 2, 3])
    await until(
        lambda: second.subscriber.tails.held(WORKER) == {1, 2, 3} == first.subscriber.tails.held(WORKER)
    )
    assert second.held == before, "a tail is no block of an engine's"
    await engine.clear()
    await until(lambda: not second.subscriber.tails.held(WORKER) and not first.subscriber.tails.held(WORKER))


class DynamoWorker:
    """A worker that numbers, publishes and keeps its events, and answers queries, as Dynamo's do."""

    def __init__(self, client: Any, *, keep: int = 1024, instance: int = INSTANCE) -> None:
        self.instance = instance
        self.held: dict[int, tuple[int, ...]] = {}
        self.number = 0
        self.queries = 0
        self.answers = True
        self._keep = keep
        self._client = client
        self._buffer: list[dict[str, Any]] = []

    async def serve(self) -> None:
        await self._client.subscribe(f"{PREFIX}.worker_kv_indexer_query.{self.instance}", cb=self._answer)
        await self._client.flush()

    async def _answer(self, message: Any) -> None:
        self.queries += 1
        if not self.answers:
            return
        start = json.loads(message.data)["start_event_id"]
        if start is not None and start > self.number:
            answer: Any = {"TooNew": {"requested_start": start, "newest_available": self.number}}
        elif start is not None and self._buffer and start >= self._buffer[0]["event"]["event_id"]:
            events = [each for each in self._buffer if each["event"]["event_id"] >= start]
            answer = {"Events": {"events": events, "last_event_id": self.number}}
        else:
            order = sorted(self.held, key=lambda key: len(self.held[key]))
            events = [self._event(n, self._stored([key])) for n, key in enumerate(order)]
            answer = {"TreeDump": {"events": events, "last_event_id": self.number}}
        await message.respond(json.dumps(answer).encode())

    def _key(self, tokens: tuple[int, ...]) -> int:
        return hash(tokens) & (2**64 - 1)

    def _stored(self, keys: list[int]) -> Any:
        first = self.held[keys[0]]
        blocks = [{"block_hash": key, "tokens_hash": block_hash(self.held[key][-4:])} for key in keys]
        return {"stored": {"parent_hash": self._key(first[:-4]) if first[:-4] else None, "blocks": blocks}}

    def _event(self, number: int, data: Any) -> dict[str, Any]:
        event = {"event_id": number, "dp_rank": 0, "data": data}
        return {"worker_id": self.instance, "storage_tier": "device", "event": event}

    async def emit(self, data: Any, *, lose: bool = False) -> None:
        self.number += 1
        event = self._event(self.number, data)
        self._buffer = [*self._buffer, event][-self._keep :]
        if not lose:
            await self._client.publish(f"{PREFIX}.kv-events", json.dumps(event).encode())

    async def store(self, tokens: list[int], *, lose: bool = False) -> None:
        paths = [tuple(tokens[:end]) for end in range(4, len(tokens) + 1, 4)]
        fresh = [each for each in paths if self._key(each) not in self.held]
        if fresh:
            self.held.update({self._key(each): each for each in fresh})
            await self.emit(self._stored([self._key(each) for each in fresh]), lose=lose)

    async def evict(self, tokens: list[int], *, lose: bool = False) -> None:
        key = self._key(tuple(tokens))
        del self.held[key]
        await self.emit({"removed": {"block_hashes": [key]}}, lose=lose)

    def truth(self) -> frozenset[int]:
        return frozenset(sequence_hashes(each, 4)[-1] for each in self.held.values())


@pytest.fixture
async def dynamo(path: Any) -> AsyncIterator[Callable[..., Any]]:
    client = await nats.connect(path.nats.url)

    async def make(**given: Any) -> DynamoWorker:
        worker = DynamoWorker(client, **given)
        await worker.serve()
        return worker

    try:
        yield make
    finally:
        await client.close()


SETTINGS = {"dynamo_subject": PREFIX, "dynamo_workers": (f"{INSTANCE}={OTHER}",)}


async def test_dynamos_workers_are_followed_beside_the_bridges(
    path: Any, until: Any, prompts: Any, dynamo: Callable[..., Any]
) -> None:
    worker = await dynamo()
    for number in range(5):
        await worker.store(prompts(number))
    replica = path.replica(OTHER, **SETTINGS)
    await until(lambda: replica.recovered and replica.held == worker.truth() and not replica.partial)
    await worker.store(prompts(5))
    await worker.evict(prompts(3))
    await until(lambda: replica.held == worker.truth())
    assert set(replica.stored) >= worker.truth()
    engine = path.engine()
    path.bridge(engine)
    replica.subscriber.watch(WORKER)
    await engine.store(prompts(7))
    await until(lambda: replica.index.held(WORKER) == engine.truth() != frozenset())


@pytest.mark.parametrize("keep", [1024, 2], ids=["kept", "too long ago"])
async def test_events_of_dynamos_workers_that_were_lost_are_asked_for(
    path: Any, until: Any, prompts: Any, dynamo: Callable[..., Any], keep: int
) -> None:
    worker = await dynamo(keep=keep)
    await worker.store(prompts(0))
    replica = path.replica(OTHER, **SETTINGS)
    await until(lambda: replica.recovered and replica.held == worker.truth())
    for number in range(1, 6):
        await worker.store(prompts(number), lose=True)
    await worker.evict(prompts(0), lose=True)
    await worker.store(prompts(9))
    await until(lambda: replica.recovered and replica.held == worker.truth() and not replica.partial)
    assert replica.subscriber.dynamo.counts.gaps == 1


async def test_a_last_event_of_a_dynamo_worker_lost_with_the_connection_is_found(
    path: Any, until: Any, prompts: Any, dynamo: Callable[..., Any]
) -> None:
    worker = await dynamo()
    replica = path.replica(OTHER, **SETTINGS)
    await worker.store(prompts(0))
    await until(lambda: replica.recovered and replica.held == worker.truth())
    await path.nats.kill()
    await until(lambda: not replica.subscriber.status().connected)
    await worker.store(prompts(1), lose=True)
    await path.nats.start()
    await until(lambda: replica.recovered and replica.held == worker.truth())


async def test_a_dynamo_worker_under_a_new_instance_replaces_the_old_one(
    path: Any, until: Any, prompts: Any, dynamo: Callable[..., Any]
) -> None:
    old, new = await dynamo(), await dynamo(instance=INSTANCE + 1)
    await old.store(prompts(0))
    replica = path.replica(OTHER, **SETTINGS)
    await until(lambda: replica.recovered and replica.held == old.truth())
    await new.store(prompts(1))
    replica.subscriber.dynamo.instance(INSTANCE + 1, OTHER)
    await until(lambda: replica.recovered and replica.held == new.truth())
    await old.store(prompts(2))
    await until(lambda: replica.subscriber.dynamo.counts.unknown_worker == 1)
    assert replica.held == new.truth()
    replica.subscriber.unwatch(OTHER)
    await new.store(prompts(3))
    await until(lambda: replica.subscriber.dynamo.counts.other_ranks == 1)
    assert replica.held == frozenset()


async def test_bytes_that_are_no_router_event_are_counted_and_change_nothing(
    path: Any, until: Any, prompts: Any, dynamo: Callable[..., Any]
) -> None:
    worker = await dynamo()
    await worker.store(prompts(0))
    replica = path.replica(OTHER, **SETTINGS)
    await until(lambda: replica.recovered and replica.held == worker.truth())
    for junk in (b"", b"{", b"\xc1", b"[1,2]", bytes(range(256))):
        await worker._client.publish(f"{PREFIX}.kv-events", junk)
    await until(lambda: replica.subscriber.dynamo.counts.skipped == 6)
    await worker.store(prompts(1))
    await until(lambda: replica.recovered and replica.held == worker.truth())
