"""A gateway's side of ext_proc over HTTP/2, for load: little work for each stream, so that the server is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import cast

from hpack import Encoder

from picker.bench.decide.script import Script
from picker.serving.http2 import frames
from picker.serving.methods import PROCESS

WINDOW = 1 << 30
"""Bytes that this side takes on a stream and on the connection."""
TAKEN = 1 << 28
"""Bytes after which the connection is given as many again."""
OPEN_SECONDS = 30.0
REQUEST_HEADERS, RESPONSE_HEADERS, REQUEST_BODY, IMMEDIATE = 0x0A, 0x12, 0x1A, 0x3A
"""First byte of an answer: which field of `ProcessingResponse` it is."""
ENDS = b"\x10\x01"
"""Last bytes of a streamed answer to a body that says end_of_stream."""

Over = Callable[["Stream"], None]


class Stream:
    """One stream on its way. Times are monotonic seconds."""

    __slots__ = (
        "buffered", "decided", "failed", "hold", "number", "opened", "over", "pending", "refused", "rest", "script",
        "stage", "window",
    )  # fmt: skip

    def __init__(self, script: Script, number: int, over: Over, *, buffered: bool, hold: bool) -> None:
        self.script = script
        self.number = number
        self.over = over
        self.buffered = buffered
        self.hold = hold
        """Whether it stays open after the response's headers."""
        self.opened = monotonic()
        self.decided = 0.0
        """When the pick was told; 0: not yet."""
        self.stage = 0
        """0: the pick is awaited; 1: the end of the body's answer; 2: that of the response's headers; 3: the end."""
        self.refused = False
        self.failed = False
        self.rest = b""
        self.pending = b""
        self.window = frames.DEFAULT_WINDOW


class Gateway(asyncio.Protocol):
    """One connection to an ext_proc server."""

    def __init__(self, authority: str) -> None:
        encoder = Encoder()
        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", PROCESS), (":authority", authority),
            ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "picker-bench"),
        ]  # fmt: skip
        self._first, self._again = encoder.encode(fields), encoder.encode(fields)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._streams: dict[int, Stream] = {}
        self._next = 1
        self._window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._taken = 0
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._waking = False
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done once the server's settings are there."""
        self.lost = ""

    @classmethod
    async def open(cls, address: str) -> Gateway:
        """Connect; returns when the server has said its settings. Raises OSError, TimeoutError among them."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, gateway = await loop.create_connection(lambda: cls(address), host, int(port))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await gateway.ready
        except TimeoutError:
            gateway.close()
            raise TimeoutError(f"{address} does not speak HTTP/2 within {OPEN_SECONDS:g} s") from None
        return gateway

    @property
    def open_streams(self) -> int:
        """Streams that are not over."""
        return len(self._streams)

    def close(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def send(self, script: Script, number: int, over: Over, *, buffered: bool, hold: bool = False) -> Stream:
        """Open a stream. ``over`` is called once: at its end, or with ``hold`` when it waits for the response's."""
        identifier = self._next
        self._next += 2
        stream = Stream(script, number, over, buffered=buffered, hold=hold)
        stream.window = self._stream_window
        if self._transport is None or self.lost:
            self._loop.call_soon(self._failed, stream)
            return stream
        block = self._first if identifier == 1 else self._again
        self._out.append(frames.frame(frames.HEADERS, frames.END_HEADERS, identifier, block))
        self._streams[identifier] = stream
        opening = script.opening(number)
        self._say(identifier, stream, opening if buffered else opening + script.body)
        return stream

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say the preface."""
        self._transport = cast("asyncio.Transport", transport)
        settings = frames.settings({frames.INITIAL_WINDOW_SIZE: WINDOW, frames.ENABLE_PUSH: 0})
        self._transport.write(frames.PREFACE + settings + frames.window_update(0, WINDOW))

    def connection_lost(self, error: Exception | None) -> None:
        """Every stream has failed."""
        self.lost = str(error or "the server closed the connection")
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(self.lost))
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._failed(stream)

    def data_received(self, data: bytes) -> None:
        """Take the frames apart."""
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while size - at >= frames.HEAD_SIZE:
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            end = at + frames.HEAD_SIZE + (high << 8 | low)
            if end > size:
                break
            self._frame(kind, flags, number, data[at + frames.HEAD_SIZE : end])
            at = end
        self._rest = data[at:]
        self._flush()

    # -- frames -------------------------------------------------------------------------------------------------

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == frames.DATA:
            self._taken += len(payload)
            stream = self._streams.get(number)
            if stream is not None:
                self._messages(number, stream, payload)
            if self._taken > TAKEN:
                self._out.append(frames.window_update(0, self._taken))
                self._taken = 0
        elif kind == frames.HEADERS:
            if flags & frames.END_STREAM:
                self._ended(number)
        elif kind == frames.WINDOW_UPDATE:
            self._wider(number, int.from_bytes(payload, "big"))
        elif kind == frames.SETTINGS and not flags & frames.ACK:
            self._settings(payload)
        elif kind == frames.PING and not flags & frames.ACK:
            self._out.append(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.RST_STREAM:
            stream = self._streams.pop(number, None)
            if stream is not None:
                self._failed(stream)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            if int.from_bytes(payload[at : at + 2], "big") == frames.INITIAL_WINDOW_SIZE:
                self._stream_window = int.from_bytes(payload[at + 2 : at + 6], "big")
        self._out.append(frames.SETTINGS_TAKEN)
        if not self.ready.done():
            self.ready.set_result(None)

    def _wider(self, number: int, size: int) -> None:
        if number == 0:
            self._window += size
            for each, stream in list(self._streams.items()):
                if stream.pending:
                    self._say(each, stream)
        elif (stream_ := self._streams.get(number)) is not None:
            stream_.window += size
            if stream_.pending:
                self._say(number, stream_)

    def _messages(self, number: int, stream: Stream, data: bytes) -> None:
        if stream.rest:
            data = stream.rest + data
        at, size = 0, len(data)
        while size - at >= 5:
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > size:
                break
            self._answered(number, stream, data[at + 5] if end > at + 5 else 0, data[end - 2 : end])
            at = end
        stream.rest = data[at:]

    def _answered(self, number: int, stream: Stream, kind: int, last: bytes) -> None:
        """One answer: what it is is its first byte, whether it ends a body its last two."""
        if kind == REQUEST_HEADERS and stream.buffered:
            self._say(number, stream, stream.script.body)
            return
        if kind == IMMEDIATE:
            stream.refused = True
            stream.decided = stream.decided or monotonic()
            return
        if stream.stage == 0 and kind in (REQUEST_HEADERS, REQUEST_BODY):
            stream.decided = monotonic()
            stream.stage = 1
        if stream.stage == 1 and kind == REQUEST_BODY and (stream.buffered or last == ENDS):
            stream.stage = 2
            self._say(number, stream, stream.script.response)
        elif kind == RESPONSE_HEADERS:
            stream.stage = 3
            if stream.hold:
                stream.over(stream)
            else:
                self._out.append(frames.frame(frames.DATA, frames.END_STREAM, number))

    def _ended(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        stream.failed = stream.stage < 2 and not stream.refused
        if not (stream.hold and stream.stage == 3):
            stream.over(stream)

    @staticmethod
    def _failed(stream: Stream) -> None:
        stream.failed = True
        stream.over(stream)

    # -- what there is to say -----------------------------------------------------------------------------------

    def _say(self, number: int, stream: Stream, data: bytes = b"") -> None:
        data = stream.pending + data if stream.pending else data
        room = min(stream.window, self._window)
        sent = data if len(data) <= room else data[: max(room, 0)]
        for at in range(0, len(sent), frames.LEAST_FRAME):
            self._out.append(frames.frame(frames.DATA, 0, number, sent[at : at + frames.LEAST_FRAME]))
        stream.pending = data[len(sent) :]
        stream.window -= len(sent)
        self._window -= len(sent)
        if not self._waking:
            self._waking = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._waking = False
        self._flush()

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()
