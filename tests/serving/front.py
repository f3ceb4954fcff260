"""A server with scripted picks, a gRPC client for it, and a peer that speaks HTTP/2 frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
from hpack import Decoder, Encoder

from picker.serving.gateway import request_headers
from picker.serving.http2 import frames
from picker.serving.http2.frames import frame
from picker.serving.methods import PROCESS
from picker.serving.modes import BodyMode
from picker.serving.seam import Picked
from picker.serving.server import Server
from picker.serving.wire.extproc_pb2 import ProcessingRequest, ProcessingResponse
from picker.settings import ServingSettings

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks, Picks


DUPLEX = BodyMode.FULL_DUPLEX_STREAMED


async def send(stream: Any, *messages: ProcessingRequest) -> None:
    for message in messages:
        await stream.write(message.SerializeToString())


async def served(stream: Any) -> bool:
    await send(stream, request_headers(end=True))
    return bool((await stream.read()).HasField("request_headers"))


class Front:
    """A started server and what its picker was told."""

    def __init__(self, server: Server, picks: Picks) -> None:
        self.server = server
        self.picks = picks

    async def eventually(self, true: Callable[[], Any], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def channel(self, port: int = 0) -> AsyncIterator[Any]:
        """A connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        address = f"127.0.0.1:{port or self.server.port}"
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield channel

    @asynccontextmanager
    async def streams(self, port: int = 0) -> AsyncIterator[Any]:
        """A connection of its own that makes ext_proc streams."""
        async with self.channel(port) as channel:
            yield channel.stream_stream(PROCESS, response_deserializer=ProcessingResponse.FromString)

    async def served(self) -> bool:
        """Whether another connection is served."""
        async with self.streams() as method:
            return await served(method())


@asynccontextmanager
async def front(make_picks: MakePicks, **more: Any) -> AsyncIterator[Front]:
    picks = make_picks(lambda _: Picked("127.0.0.1:9", "booking"))
    given = {"grpc_host": "127.0.0.1", "grpc_port": 0, "grpc_health_port": 0, **more}
    server = Server(ServingSettings(**given), picks, hold=lambda: "response")
    await server.start()
    try:
        yield Front(server, picks)
    finally:
        await server.stop()


def native_front(make_picks: MakePicks, **more: Any) -> AbstractAsyncContextManager[Front]:
    """As `front`, on the transport whose promises it is about."""
    return front(make_picks, transport="native", **more)


class Raw:
    """A connection whose frames are written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.decoded: dict[str, str] = {}

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def ask(self, number: int, path: str = PROCESS, *, end: bool = False, **more: str) -> None:
        fields = [
            (":method", more.pop("method", "POST")),
            (":scheme", "http"),
            (":path", path),
            ("content-type", more.pop("kind", "application/grpc")),
            *((name.replace("_", "-"), value) for name, value in more.items()),
        ]
        block = self.encoder.encode(fields)
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        for place, piece in enumerate(pieces):
            kind = frames.CONTINUATION if place else frames.HEADERS
            last = frames.END_HEADERS if place == len(pieces) - 1 else 0
            ending = frames.END_STREAM if end and not place else 0
            self.send(frame(kind, last | ending, number, piece))

    def message(self, number: int, *messages: ProcessingRequest, end: bool = False) -> None:
        data = b"".join(
            b"\0" + len(one).to_bytes(4, "big") + one
            for one in (message.SerializeToString() for message in messages)
        )
        while data:
            piece, data = data[:16_384], data[16_384:]
            self.send(frame(frames.DATA, frames.END_STREAM if end and not data else 0, number, piece))

    async def frame(self) -> tuple[int, int, int, bytes] | None:
        """The next frame; None at the end of the connection."""
        try:
            head = await self.reader.readexactly(9)
            high, low, kind, flags, number = frames.HEAD.unpack(head)
            return kind, flags, number, await self.reader.readexactly(high << 8 | low)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def until(self, kind: int, number: int | None = None, flags: int = 0) -> bytes:
        """The payload of the next frame of a kind."""
        async with asyncio.timeout(20):
            while True:
                found = await self.frame()
                assert found is not None, "the connection ended"
                if found[0] == frames.HEADERS:
                    self.decoded = self.fields(found[3])
                if found[0] == kind and number in (None, found[2]) and found[1] & flags == flags:
                    return found[3]

    def fields(self, block: bytes) -> dict[str, str]:
        return {
            bytes(name).decode(): bytes(value).decode()
            for name, value in self.decoder.decode(block, raw=True)
        }

    async def status(self, number: int) -> str:
        """The gRPC status that ends a stream."""
        await self.until(frames.HEADERS, number, frames.END_STREAM)
        return self.decoded["grpc-status"]

    async def ends(self) -> int | None:
        """Read to the end of the connection; returns the code of the last GOAWAY."""
        code = None
        async with asyncio.timeout(20):
            while (found := await self.frame()) is not None:
                if found[0] == frames.GOAWAY:
                    code = int.from_bytes(found[3][4:8], "big")
        return code


@asynccontextmanager
async def raw(at: Front, *, port: int = 0, settings: bytes | None = None) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port or at.server.port)
    try:
        one = Raw(reader, writer)
        one.send(frames.PREFACE, frames.settings({}) if settings is None else settings)
        yield one
    finally:
        writer.transport.abort()
