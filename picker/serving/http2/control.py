"""The frames that carry neither headers nor bodies, one function each: RFC 9113 6.3 to 6.9."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from picker.serving.http2 import frames
from picker.serving.http2.frames import ConnectionFault, StreamFault

if TYPE_CHECKING:
    from picker.serving.http2.connection import Connection

_SETTING = Struct(">HI")
SETTLING = b"settling"
"""What the ping says whose answer tells that the peer knows of our going away."""
LARGEST_FRAME = 64 * 1024
"""Most bytes of one frame of ours, whatever the peer would take."""


def _priority(connection: Connection, number: int, _: int, payload: bytes) -> None:
    if number == 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY without a stream")
    connection.floods.idle(connection.now, connection.closed)
    if len(payload) != 5:
        raise _on(connection, number, frames.FRAME_SIZE_ERROR, "PRIORITY of a wrong size")
    if int.from_bytes(payload[:4], "big") & frames.MAX_STREAM == number:
        raise _on(connection, number, frames.PROTOCOL_ERROR, "a stream that depends on itself")


def _on(connection: Connection, number: int, code: int, reason: str) -> StreamFault | ConnectionFault:
    """A fault of one stream, or of the connection where that stream was never opened: it cannot be reset."""
    if _idle(connection, number):
        return ConnectionFault(code, reason)
    return StreamFault(number, code, reason)


def _idle(connection: Connection, number: int) -> bool:
    return number > connection.last or not number & 1


def _rst_stream(connection: Connection, number: int, _: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
    if _idle(connection, number):
        raise ConnectionFault(frames.PROTOCOL_ERROR, "RST_STREAM on a stream that is not open")
    stream = connection.streams.get(number)
    if stream is None:
        connection.floods.idle(connection.now, connection.closed)
    else:
        connection.reset_by_peer(stream, int.from_bytes(payload, "big"))


def _settings(connection: Connection, number: int, flags: int, payload: bytes) -> None:
    if number:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS on a stream")
    if flags & frames.ACK:
        if payload:
            raise ConnectionFault(
                frames.FRAME_SIZE_ERROR, "an acknowledgement of settings that says something"
            )
        connection.floods.settings(connection.now)
        return
    if len(payload) % 6:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
    connection.floods.settings(connection.now)
    window = connection.first_window
    for name, value in _SETTING.iter_unpack(payload):
        _check(name, value)
        if name == frames.INITIAL_WINDOW_SIZE:
            window = value
        elif name == frames.MAX_FRAME_SIZE:
            connection.max_frame = min(value, LARGEST_FRAME)
    if window != connection.first_window:
        _resize(connection, window)
    connection.reply(frames.SETTINGS_TAKEN)


def _check(name: int, value: int) -> None:
    if name == frames.ENABLE_PUSH and value > 1:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    if name == frames.INITIAL_WINDOW_SIZE and value > frames.MAX_WINDOW:
        raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
    if name == frames.MAX_FRAME_SIZE and not frames.LEAST_FRAME <= value <= frames.MOST_FRAME:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")


def _resize(connection: Connection, window: int) -> None:
    """6.9.2: the windows of all open streams change by as much; they may become negative."""
    change, connection.first_window = window - connection.first_window, window
    for stream in connection.streams.values():
        stream.window += change
        if stream.window > frames.MAX_WINDOW:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a stream's window is too large")
        if stream.waits:
            connection.enqueue(stream)


def _push_promise(*_: object) -> None:
    raise ConnectionFault(frames.PROTOCOL_ERROR, "a client cannot push")


def _ping(connection: Connection, number: int, flags: int, payload: bytes) -> None:
    if number:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "PING on a stream")
    if len(payload) != 8:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING of a wrong size")
    connection.floods.ping(connection.now, connection.sent)
    if not flags & frames.ACK:
        connection.reply(frames.frame(frames.PING, frames.ACK, 0, payload))
        return
    connection.pinged = False
    # the answer to an older ping does not tell that the peer knows of our going away
    if connection.draining and payload == SETTLING:
        connection.settle()


def _goaway(_: Connection, number: int, __: int, payload: bytes) -> None:
    if number:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "GOAWAY on a stream")
    if len(payload) < 8:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")


def _window_update(connection: Connection, number: int, _: int, payload: bytes) -> None:
    if len(payload) != 4:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
    connection.floods.window(connection.now, connection.sent + connection.closed)
    size = int.from_bytes(payload, "big") & frames.MAX_WINDOW
    if number == 0:
        if size == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        connection.window += size
        if connection.window > frames.MAX_WINDOW:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "the connection's window is too large")
        return
    if _idle(connection, number):
        raise ConnectionFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE on a stream that is not open")
    stream = connection.streams.get(number)
    if stream is None:
        connection.floods.idle(connection.now, connection.closed)
        return
    if size == 0:
        raise StreamFault(number, frames.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
    stream.window += size
    if stream.window > frames.MAX_WINDOW:
        raise StreamFault(number, frames.FLOW_CONTROL_ERROR, "a stream's window is too large")
    if stream.waits:
        connection.enqueue(stream)


def _continuation(*_: object) -> None:
    raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION without headers before it")


Control = Callable[["Connection", int, int, bytes], None]

CONTROL: Mapping[int, Control] = {
    frames.PRIORITY: _priority,
    frames.RST_STREAM: _rst_stream,
    frames.SETTINGS: _settings,
    frames.PUSH_PROMISE: _push_promise,
    frames.PING: _ping,
    frames.GOAWAY: _goaway,
    frames.WINDOW_UPDATE: _window_update,
    frames.CONTINUATION: _continuation,
}
