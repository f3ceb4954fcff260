from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import zmq
import zmq.asyncio

from picker.sim.engine.publisher import END, Publisher, Wires


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    opened = zmq.asyncio.Context()
    yield opened
    opened.destroy(linger=0)


@asynccontextmanager
async def publishing(**told: object) -> AsyncIterator[Publisher]:
    publisher = Publisher(Wires("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", **told))  # type: ignore[arg-type]  # the test names its fields
    replays = asyncio.create_task(publisher.serve_replays())
    yield publisher
    replays.cancel()
    with suppress(asyncio.CancelledError):
        await replays
    publisher.close()


async def receive(socket: zmq.asyncio.Socket) -> list[bytes]:
    async with asyncio.timeout(10):
        return await socket.recv_multipart()


async def replay(
    context: zmq.asyncio.Context, publisher: Publisher, first: int, count: int
) -> list[list[bytes]]:
    with context.socket(zmq.DEALER) as socket:
        socket.connect(publisher.replay)
        await socket.send_multipart([b"", first.to_bytes(8, "big")])
        return [await receive(socket) for _ in range(count)]


def number(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")


async def test_live_batches_carry_topic_and_rising_numbers(context: zmq.asyncio.Context) -> None:
    async with publishing(topic="kv@x") as publisher:
        with context.socket(zmq.SUB) as socket:
            socket.subscribe("kv@")
            socket.connect(publisher.live)
            while not await socket.poll(50):
                await publisher.publish(b"a")
            first = publisher.counts.batches - 1
            assert await receive(socket) == [b"kv@x", number(first), b"a"]
            await publisher.publish(b"b")
            assert await receive(socket) == [b"kv@x", number(first + 1), b"b"]


@pytest.mark.parametrize(("with_topic", "topic", "end"), [(False, [], []), (True, [b"t"], [b""])])
async def test_a_replay_begins_where_asked_and_says_its_end(
    context: zmq.asyncio.Context, with_topic: bool, topic: list[bytes], end: list[bytes]
) -> None:
    async with publishing(topic="t", replay_topic=with_topic) as publisher:
        for payload in (b"a", b"b", b"c"):
            await publisher.publish(payload)
        assert (await replay(context, publisher, 0, 1))[0][-2:] == [number(0), b"a"]
        assert await replay(context, publisher, 1, 3) == [
            [b"", *topic, number(1), b"b"],
            [b"", *topic, number(2), b"c"],
            [b"", *end, END, b""],
        ]


async def test_what_left_the_buffer_is_not_replayed(context: zmq.asyncio.Context) -> None:
    async with publishing(keep_batches=2) as publisher:
        for payload in (b"a", b"b", b"c"):
            await publisher.publish(payload)
        frames = await replay(context, publisher, 0, 3)
        assert [each[-2] for each in frames] == [number(1), number(2), END]


async def test_the_end_marker_can_be_lost(context: zmq.asyncio.Context) -> None:
    async with publishing(replay_end=False) as publisher:
        await publisher.publish(b"a")
        assert [each[-1] for each in await replay(context, publisher, 0, 1)] == [b"a"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await replay(context, publisher, 1, 1)


async def test_a_malformed_replay_request_is_ignored_and_counted(context: zmq.asyncio.Context) -> None:
    async with publishing() as publisher:
        with context.socket(zmq.DEALER) as socket:
            socket.connect(publisher.replay)
            await socket.send_multipart([b"", b"short"])
            await socket.send_multipart([b"", number(0)])
            assert (await receive(socket))[-2] == END
        assert publisher.counts.bad_replay_requests == 1


async def test_an_endpoint_that_is_taken_is_named() -> None:
    async with publishing() as publisher:
        with pytest.raises(OSError, match=publisher.live):
            Publisher(Wires(publisher.live))
