"""Every fault on a whole cluster: seen, healed, and afterwards requests are answered as before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from chaos.injectors import (
    Fault,
    Injection,
    clock,
    consumer,
    dns,
    failover,
    links,
    messages,
    poison,
    process,
    workers,
)
from chaos.targets.local import Local
from chaos.topology import Topology
from picker.sim.model import MODEL

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

ON_EITHER_PLANE: list[Injection] = [
    links.latency("*>plane", seconds=0.05, jitter=0.02),
    links.partition("picker-0>plane"),
    links.half_open("picker-0>nats"),
    links.half_open("envoy>picker-0", ways="back"),
    links.reset("picker-1>plane"),
    links.refuse("bridge-0>nats"),
    links.bandwidth("[*]>engine-0", bytes_per_second=20_000),
    messages.drop("bridge-*>nats", share=0.5, seed=1),
    messages.double("picker-0>nats"),
    messages.reorder("*>nats", share=0.5),
    clock.step("plane", seconds=300),
    dns.nxdomain(),
    dns.stale("127.0.0.7"),
    process.freeze("picker-0"),
    process.kill("bridge-1"),
    process.restart("engine-0"),
    workers.leave("engine-1"),
    consumer.slow_consumer(),
    poison.poison_events("engine-0"),
]
ON_REDIS: list[Injection] = [
    clock.step("picker-0", seconds=-300),
    failover.failover(),
    process.restart("plane", kept=True),
]


def name(fault: Injection) -> str:
    return f"{fault.kind} {fault.target}"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["redis", "nats"])
async def local(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Local]:
    """Two of everything, a wire on every link, a name server, clocks that can be stepped."""
    clocks = ("plane", "picker-0") if request.param == "redis" else ("plane",)
    topology = Topology(replicas=2, workers=2, plane=request.param, links=("*",), dns=True, clocks=clocks)
    async with Local(topology, folder=tmp_path_factory.mktemp("faults")) as running:
        yield running


async def answered(local: Local) -> list[int]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    found = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        for _ in range(4):
            async with session.post(f"{local.gateway}/v1/chat/completions", json=body) as response:
                await response.read()
                found.append(response.status)
    return found


async def suffered(local: Local, fault: Injection) -> list[Fault]:
    told: list[Fault] = []
    local.begin(told.append)
    async with fault.into(local):
        assert [each.phase for each in told] == ["begin", "seen"]
    await local.make_whole()
    assert await answered(local) == [200] * 4
    assert [each.phase for each in told] == ["begin", "seen", "healing", "healed"]
    return told


@pytest.mark.parametrize("fault", ON_EITHER_PLANE, ids=name)
async def test_a_fault_is_seen_and_healed_and_requests_are_answered_after_it(
    local: Local, fault: Injection
) -> None:
    await suffered(local, fault)


@pytest.mark.parametrize("local", ["redis"], indirect=True)
@pytest.mark.parametrize("fault", ON_REDIS, ids=name)
async def test_a_fault_that_only_redis_knows_is_seen_and_healed(local: Local, fault: Injection) -> None:
    await suffered(local, fault)


async def test_every_poisoned_body_is_answered(local: Local) -> None:
    told = await suffered(local, poison.poison_bodies(model=MODEL))
    answers = told[1].value["answers"]
    assert {body: status for body, status in answers.items() if not 200 <= status < 500} == {}
