"""Bounds of one connection and of all: dead peers, silent ones, too many, too large. A gRPC client, no gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from picker.serving import server as serving
from picker.serving.gateway import request_body, request_headers
from picker.serving.modes import BodyMode
from picker.serving.seam import End

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks

from tests.serving.front import DUPLEX, front, send, served


class Wire:
    """A TCP proxy that, once told so, swallows everything and closes nothing: a peer whose machine is gone."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.dead = False
        self.port = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
        self._writers += [writer, far_writer]
        self._tasks += [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if not self.dead:
                    writer.write(data)
        except ConnectionError:
            pass
        finally:
            if not self.dead:
                writer.close()


async def test_a_dead_peer_is_found_and_its_streams_are_over(make_picks: MakePicks) -> None:
    async with (
        front(make_picks, keepalive_seconds=1, keepalive_timeout_seconds=1) as at,
        Wire(at.server.port) as wire,
        at.streams(wire.port) as method,
    ):
        streams = [method() for _ in range(5)]
        for stream in streams:
            assert await served(stream)
        await asyncio.sleep(3)
        assert at.server.open_streams == 5, "a peer that answers is not dead, however silent its streams"
        wire.dead = True
        await at.eventually(lambda: at.server.open_streams == 0)
        assert at.picks.overs == [("booking", End.CANCELLED)] * 5
        async with at.streams() as other:
            assert await served(other())


async def test_streams_of_one_connection_are_bounded_and_the_next_waits(make_picks: MakePicks) -> None:
    async with front(make_picks, max_connection_streams=2) as at, at.streams() as method:
        held = [method() for _ in range(2)]
        for stream in held:
            assert await served(stream)
        third = asyncio.create_task(served(method()))
        async with at.streams() as other:
            assert await served(other())
        assert not third.done()
        held[0].cancel()
        assert await third


async def test_connections_are_bounded_and_those_that_stand_are_served(make_picks: MakePicks) -> None:
    async with front(make_picks, max_connections=2) as at, at.streams() as first, at.streams() as second:
        assert await served(first())
        assert await served(second())
        async with at.streams() as third:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await served(third())
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await served(first())


async def test_a_burst_of_streams_waits_and_none_is_refused(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, at.streams() as method:
        assert all(await asyncio.gather(*(served(method()) for _ in range(3_000))))


async def test_a_connection_that_says_nothing_is_closed(
    make_picks: MakePicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_SECONDS", 1)
    async with front(make_picks) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port)
        async with asyncio.timeout(10):
            while await reader.read(1024):
                pass
        writer.close()


async def test_a_message_over_its_limit_ends_its_stream_alone(make_picks: MakePicks) -> None:
    async with front(make_picks, max_message_bytes=100_000) as at, at.streams() as method:
        other, stream = method(), method()
        await send(other, request_headers(mode=DUPLEX))
        await send(stream, request_headers(mode=DUPLEX), request_body(b"x" * 200_000))
        await at.eventually(lambda: at.server.open_streams == 1)
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await send(other, request_body(b"x" * 90_000))
        assert (await other.read()).HasField("request_headers")
        assert len(at.picks.requests) == 1


async def test_a_message_that_one_body_needs_is_read(make_picks: MakePicks) -> None:
    async with front(make_picks, max_body_bytes=6_000_000) as at, at.streams() as method:
        stream = method()
        await send(stream, request_headers(mode=BodyMode.BUFFERED))
        assert (await stream.read()).HasField("request_headers")
        await send(stream, request_body(b"x" * 6_000_000))
        assert (await stream.read()).HasField("request_body")


async def test_metadata_over_its_limit_ends_its_stream_alone(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, at.streams() as method:
        assert await served(method(metadata=[("x-a", "a" * 20_000)]))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await served(method(metadata=[(f"x-{number}", "a" * 400) for number in range(100)]))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await served(method())
        assert at.server.counts.decided == 2


async def test_a_stream_without_a_first_message_is_counted(make_picks: MakePicks) -> None:
    async with front(make_picks, body_timeout_seconds=0.2) as at, at.streams() as method:
        stream = method()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert (at.server.counts.closed_silent, at.server.counts.closed_idle) == (1, 0)
