"""What makes up requests on one connection, headers, bodies and trailers, and the streams that they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from picker.serving.http2 import frames
from picker.serving.http2.frames import END_HEADERS, END_STREAM, ConnectionFault, StreamFault
from picker.serving.http2.headers import MalformedError, Reader
from picker.serving.http2.past import How
from picker.serving.http2.stream import Stream

if TYPE_CHECKING:
    from picker.serving.http2.connection import Accept, Connection

_EXTRAS = frames.PADDED | frames.PRIORITISED


class _Block:
    """Headers whose end has not come yet."""

    __slots__ = ("flags", "frames", "number", "parts", "size")

    def __init__(self, number: int, flags: int, part: bytes) -> None:
        self.number = number
        self.flags = flags
        self.parts = [part]
        self.size = len(part)
        self.frames = 0


class Requests:
    """Reads requests, and opens their streams. Methods raise the faults of `frames`."""

    __slots__ = (
        "_accept", "_block", "_connection", "_counts", "_half_connection", "_half_stream", "_limits", "_reader", "free"
    )  # fmt: skip

    def __init__(self, connection: Connection, accept: Accept) -> None:
        self.free = False
        """Whether any frame may come next: neither the peer's first settings, nor the rest of headers."""
        self._connection = connection
        self._accept = accept
        self._limits = connection.limits
        self._counts = connection.counts
        self._reader = Reader(
            connection.limits,
            connection.counts,
            lambda cost: connection.floods.block(connection.now, cost, connection.sent),
        )
        self._block: _Block | None = None
        # room is given back once half of it is used
        self._half_connection = (connection.limits.connection_window + 1) // 2
        self._half_stream = (connection.limits.stream_window + 1) // 2

    # -- bodies -------------------------------------------------------------------------------------------------

    def data(self, number: int, flags: int, payload: bytes) -> None:
        """A DATA frame."""
        connection, size = self._connection, len(payload)
        stream = connection.streams.get(number)
        if size:
            connection.room -= size
            if connection.room < 0:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "more data than the connection has room for")
            # they leave the connection's room free, whatever their stream does with them
            connection.unreturned += size
            if connection.unreturned >= self._half_connection:
                connection.return_all_room()
        if stream is None:
            self._late_data(number, size)
            return
        if stream.ended:
            raise StreamFault(number, frames.STREAM_CLOSED, "data after the end")
        if size:
            stream.room -= size
            if stream.room < 0:
                raise StreamFault(number, frames.FLOW_CONTROL_ERROR, "more data than the stream has room for")
            if flags & frames.PADDED:
                payload = _unpadded(payload, 0)
            stream.unreturned += size
        elif flags & frames.PADDED:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a padded frame without the padding's size")
        end = flags & END_STREAM
        if stream.expected is not None:
            _count(stream, stream.expected - len(payload), end)
        self._deliver(stream, payload, end)

    def _deliver(self, stream: Stream, payload: bytes, end: int) -> None:
        connection = self._connection
        if end:
            stream.ended = True
        elif not payload:
            connection.floods.empty(connection.now)
        try:
            if payload:
                stream.handler.data(payload)
            if end and not stream.over:
                stream.handler.ended()
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            connection.failed(stream, error)
        if stream.unreturned >= self._half_stream:
            connection.return_room(stream)

    def _late_data(self, number: int, size: int) -> None:
        connection = self._connection
        if number > connection.last or not number & 1:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "DATA on a stream that is not open")
        if not size:
            connection.floods.idle(connection.now, connection.closed)
        how = connection.past.how(number)
        if how is How.ENDED:
            raise ConnectionFault(frames.STREAM_CLOSED, "data on a stream that both sides have ended")
        if how is How.RESET:
            raise StreamFault(number, frames.STREAM_CLOSED, "data on a stream that is over")
        # we have left it; or it is forgotten, which many are that a busy gateway has not yet seen us leave

    # -- headers ------------------------------------------------------------------------------------------------

    def headers(self, number: int, flags: int, payload: bytes) -> None:
        """A HEADERS frame."""
        if not number & 1:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "HEADERS on a stream that a client cannot open")
        if flags & _EXTRAS:
            skip = 5 if flags & frames.PRIORITISED else 0
            payload, priority = _opened(payload, flags, skip)
            if skip and int.from_bytes(priority[:4], "big") & frames.MAX_STREAM == number:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "a stream that depends on itself")
        if flags & END_HEADERS:
            self._whole(number, flags, payload)
            return
        self._block = _Block(number, flags, payload)
        self.free = False

    def continuation(self, number: int, flags: int, payload: bytes) -> None:
        """A CONTINUATION frame."""
        block, connection = self._block, self._connection
        if block is None or number != block.number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION of no headers")
        block.parts.append(payload)
        block.size += len(payload)
        block.frames += 1
        if block.frames > self._limits.continuations or block.size > self._limits.header_block:
            raise connection.floods.cut("flooded_headers", "too many or too large CONTINUATION frames")
        if flags & frames.END_HEADERS:
            self._block, self.free = None, True
            self._whole(number, block.flags, b"".join(block.parts))

    def _whole(self, number: int, flags: int, block: bytes) -> None:
        connection = self._connection
        if number <= connection.last:
            stream = connection.streams.get(number)
            if stream is not None:
                self._trailers(stream, flags, block)
            else:
                self._late_headers(number, block)
        elif connection.settled:
            # 6.8: they are as if they had never been sent, but for what they do to the decoder
            self._reader.fields(block)
            connection.last = number
            connection.past.note(number, How.LEFT)
        else:
            connection.last = number
            self._open(number, flags, block)

    def _open(self, number: int, flags: int, block: bytes) -> None:
        connection = self._connection
        try:
            request = self._reader.request(block)
        except MalformedError as error:
            raise StreamFault(number, frames.PROTOCOL_ERROR, str(error)) from None
        if request.too_large:
            connection.floods.headers(connection.now)
        ended = bool(flags & END_STREAM)
        if len(connection.streams) >= self._limits.streams:
            self._counts.streams_refused += 1
            connection.past.note(number, How.LEFT)
            connection.reply(frames.reset(number, frames.REFUSED_STREAM))
            connection.floods.reset(connection.now, connection.answered)
            return
        if ended and request.length:
            raise StreamFault(number, frames.PROTOCOL_ERROR, "not as much data as content-length says")
        stream = Stream(connection, number, connection.first_window, self._limits.stream_window)
        stream.ended = ended
        stream.expected = None if ended else request.length
        connection.streams[number] = stream
        try:
            stream.handler = self._accept(stream, request)
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            stream.handler = NOBODY
            connection.failed(stream, error)
        if ended and not stream.over:
            connection.call(stream, stream.handler.ended)

    def _trailers(self, stream: Stream, flags: int, block: bytes) -> None:
        try:
            self._reader.trailers(block)
        except MalformedError as error:
            raise StreamFault(stream.id, frames.PROTOCOL_ERROR, str(error)) from None
        if stream.ended:
            raise StreamFault(stream.id, frames.STREAM_CLOSED, "headers after the end")
        if not flags & frames.END_STREAM:
            raise StreamFault(stream.id, frames.PROTOCOL_ERROR, "trailers that do not end the stream")
        if stream.expected:
            raise StreamFault(stream.id, frames.PROTOCOL_ERROR, "not as much data as content-length says")
        stream.ended = True
        self._connection.call(stream, stream.handler.ended)

    def _late_headers(self, number: int, block: bytes) -> None:
        connection = self._connection
        connection.floods.idle(connection.now, connection.closed)
        self._reader.fields(block)
        how = connection.past.how(number)
        if how is How.ENDED:
            raise ConnectionFault(frames.STREAM_CLOSED, "headers on a stream that both sides have ended")
        if how is How.RESET:
            raise StreamFault(number, frames.STREAM_CLOSED, "headers on a stream that is over")
        if how is None:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a stream opened after one of a higher number")


class _Nobody:
    """Serves a stream that is over, or about to be."""

    def data(self, data: bytes) -> None:
        """Nothing becomes of it."""

    def ended(self) -> None:
        """Nothing is waited for."""

    def sent(self) -> None:
        """Nothing is waited for."""

    def reset(self, code: int) -> None:
        """Nothing is left to end."""

    def lost(self) -> None:
        """Nothing is left to end."""


NOBODY = _Nobody()


def _count(stream: Stream, left: int, end: int) -> None:
    """Of the data that ``content-length`` says there is so much left."""
    stream.expected = left
    if left < 0 or (end and left):
        raise StreamFault(stream.id, frames.PROTOCOL_ERROR, "not as much data as content-length says")


def _unpadded(payload: bytes, skip: int) -> bytes:
    """A payload without its padding, and without ``skip`` bytes before it."""
    if len(payload) < 1 + skip:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a padded frame without the padding's size")
    end = len(payload) - payload[0]
    if end < 1 + skip:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than there is room for")
    return payload[1:end]


def _opened(payload: bytes, flags: int, skip: int) -> tuple[bytes, bytes]:
    """The fragment of headers in a frame, and the priority before it."""
    if flags & frames.PADDED:
        payload = _unpadded(payload, skip)
    if len(payload) < skip:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "HEADERS too small for a priority")
    return payload[skip:], payload[:skip]
