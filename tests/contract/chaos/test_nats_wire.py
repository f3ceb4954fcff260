"""Through a wire, the real NATS client and server notice nothing but the faults that are asked for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chaos.injectors import InjectionError
from chaos.injectors import messages as faults
from chaos.injectors.links import latency, partition, refuse
from chaos.injectors.nats import MessageFault, NatsWire
from tests.contract.chaos.conftest import Stage

EVENT = "picker.v1.pool.kv.worker.0"
OTHER = "picker.v1.pool.ask.worker.0"
Eventually = Callable[..., Coroutine[Any, Any, None]]


@asynccontextmanager
async def connected(address: str, **options: Any) -> AsyncIterator[Client]:
    client = Client()
    await client.connect(
        [f"nats://{address}"],
        connect_timeout=5,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0,
        **options,
    )
    try:
        yield client
    finally:
        await client.close()
        await asyncio.sleep(0)


async def settled(client: Client) -> None:
    """Until the server has its subscriptions; the client's own ping may overtake them."""
    await asyncio.sleep(0.05)
    await client.flush(timeout=5)


@pytest.fixture
async def wire(stage: Stage) -> NatsWire:
    await stage.start_nats()
    return await stage.nats_wire("picker-0>nats")


@asynccontextmanager
async def heard(
    stage: Stage, wire: NatsWire, subject: str = "picker.v1.>"
) -> AsyncIterator[tuple[Client, list[bytes]]]:
    """A publisher straight at the server, and what a subscriber behind the wire gets."""
    got: list[bytes] = []

    async def note(message: Msg) -> None:
        got.append(message.data)

    async with connected(stage.servers.nats) as publisher, connected(wire.listen) as subscriber:
        await subscriber.subscribe(subject, cb=note)
        await settled(subscriber)
        yield publisher, got


async def test_payloads_headers_requests_and_streams_pass_unchanged(stage: Stage, wire: NatsWire) -> None:
    dice = random.Random(3)
    async with connected(wire.listen) as one, connected(stage.servers.nats) as two:
        subscription = await two.subscribe("a.>")
        await settled(two)
        sent = [dice.randbytes(size) for size in (0, 1, 2, 5000, 70_000, 900_000)] + [b"\r\nPUB a 1\r\n"]
        for data in sent:
            await one.publish("a.b", data, headers={"H": "v"} if len(data) % 2 else None)
        assert [(await subscription.next_msg(timeout=5)).data for _ in sent] == sent

        async def answer(message: Msg) -> None:
            await message.respond(message.data[::-1])

        await two.subscribe("ask", cb=answer)
        await settled(two)
        assert (await one.request("ask", b"abc", timeout=5)).data == b"cba"
        context = one.jetstream()
        await context.add_stream(name="S", subjects=["s.>"])
        for data in sent:
            await context.publish("s.x", data)
        follower = await context.subscribe("s.>", ordered_consumer=True)
        assert [(await follower.next_msg(timeout=5)).data for _ in sent] == sent
    assert wire.messages.not_understood == 0


async def test_a_doubled_message_is_seen_twice_and_once_again_after_the_heal(
    stage: Stage, wire: NatsWire, eventually: Eventually
) -> None:
    async with heard(stage, wire) as (publisher, got):

        async def beat() -> None:
            while True:
                await publisher.publish(EVENT, b"beat")
                await asyncio.sleep(0.02)

        beating = asyncio.create_task(beat())
        async with faults.double("picker-0>nats").into(stage):
            beating.cancel()
            await publisher.flush()
            await asyncio.sleep(0.1)
            got.clear()
            for number in range(5):
                await publisher.publish(EVENT, b"%d" % number)
                await publisher.publish(OTHER, b"other")
            await eventually(lambda: len(got) >= 15)
        assert [each for each in got if each != b"other"] == [b"%d" % (n // 2) for n in range(10)]
        assert got.count(b"other") == 5
        got.clear()
        await publisher.publish(EVENT, b"after")
        await publisher.publish(OTHER, b"end")
        await eventually(lambda: b"end" in got)
        assert got == [b"after", b"end"]
    assert stage.phases == ["begin", "seen", "healing", "healed"]
    assert stage.evidence("healed")["picker-0>nats"]["hit"] >= 6


async def numbered(stage: Stage, wire: NatsWire, fault: Any, count: int = 200) -> list[int]:
    """What of so many numbered messages arrives, and in which order, under a fault of the wire."""
    async with heard(stage, wire) as (publisher, got):
        wire.faults.append(fault)
        for number in range(count):
            await publisher.publish(EVENT, b"%d" % number)
        await publisher.flush()
        await asyncio.sleep(0.3)
        wire.stop(fault)
        await publisher.publish(OTHER, b"-1")
        async with asyncio.timeout(10):
            while b"-1" not in got:  # noqa: ASYNC110 - a list tells nobody that it has grown
                await asyncio.sleep(0.01)
        return [int(each) for each in got if each != b"-1"]


async def test_the_same_seed_loses_the_same_messages(stage: Stage, wire: NatsWire) -> None:
    def fault(seed: int) -> MessageFault:
        return MessageFault("drop", faults.EVENTS, way="back", share=0.3, seed=seed)

    first, again, other = [await numbered(stage, wire, fault(seed)) for seed in (1, 1, 2)]
    assert first == again != other
    assert first == sorted(first)
    assert 100 < len(first) < 180
    assert wire.messages.dropped == 600 - len(first) - len(again) - len(other)


async def test_a_reordered_message_comes_right_after_the_next_and_none_is_lost(
    stage: Stage, wire: NatsWire
) -> None:
    fault = MessageFault("reorder", faults.EVENTS, way="back", share=0.3, seconds=5.0, seed=1)
    got = await numbered(stage, wire, fault)
    assert sorted(got) == list(range(200))
    assert got != sorted(got)
    assert all(abs(number - place) <= 1 for place, number in enumerate(got))
    assert wire.messages.reordered == fault.hits > 10


async def test_a_late_message_is_overtaken_and_comes_at_the_heal_at_the_latest(
    stage: Stage, wire: NatsWire
) -> None:
    fault = MessageFault("delay", faults.EVENTS, way="back", share=0.2, seconds=60.0, seed=1)
    got = await numbered(stage, wire, fault)
    assert sorted(got) == list(range(200))
    assert got[-fault.hits :] == sorted(got[-fault.hits :])
    assert got[: -fault.hits] == sorted(got[: -fault.hits])
    assert fault.hits > 10


async def test_what_a_bridge_publishes_is_lost_for_all(stage: Stage, eventually: Eventually) -> None:
    await stage.start_nats()
    for number in range(2):
        await stage.nats_wire(f"bridge-{number}>nats")
    got: list[bytes] = []

    async def note(message: Msg) -> None:
        got.append(message.data)

    async with connected(stage.servers.nats) as straight:
        await straight.subscribe("picker.>", cb=note)
        await settled(straight)
        async with connected(stage.open_wires["bridge-0>nats"].listen) as bridge:

            async def beat() -> None:
                while True:
                    await bridge.publish(EVENT, b"beat")
                    await asyncio.sleep(0.02)

            beating = asyncio.create_task(beat())
            async with faults.drop("bridge-*>nats").into(stage):
                got.clear()
                await asyncio.sleep(0.3)
                assert got == []
            await eventually(lambda: got)
            beating.cancel()


async def test_messages_on_a_link_that_is_not_nats_are_no_fault_that_can_be(stage: Stage) -> None:
    await stage.wire("picker-0>plane", "127.0.0.1:1")
    with pytest.raises(InjectionError, match="not every link"):
        async with faults.drop("picker-0>plane").into(stage):
            pytest.fail("entered")


async def test_a_client_reconnects_after_a_refusal_and_bears_latency_and_a_partition(
    stage: Stage, wire: NatsWire, eventually: Eventually
) -> None:
    async with heard(stage, wire) as (publisher, got), connected(wire.listen, ping_interval=1) as beside:

        async def beat() -> None:
            while True:
                await publisher.publish(EVENT, b"beat")
                await asyncio.sleep(0.02)

        beating = asyncio.create_task(beat())
        async with latency("picker-0>nats", seconds=0.2, ways="back").into(stage):
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await beside.flush(timeout=5)
            assert loop.time() - begun >= 0.19
        async with partition("picker-0>nats").into(stage):
            await asyncio.sleep(0.3)
            got.clear()
            await asyncio.sleep(0.2)
            assert got == []
        await eventually(lambda: len(got) > 20)
        async with refuse("picker-0>nats").into(stage):
            await eventually(lambda: not beside.is_connected)
        got.clear()
        await eventually(lambda: beside.is_connected and got)
        beating.cancel()
