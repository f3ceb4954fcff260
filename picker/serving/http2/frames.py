"""Frames of HTTP/2 on the wire: their numbers, and builders of those that a server sends."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">HBBBI")
"""Length (16 bits and 8), type, flags, stream id with its reserved bit."""
HEAD_SIZE = HEAD.size

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITISED = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 5, 6, 7, 8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11

DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
LEAST_FRAME = 16_384
MOST_FRAME = 2**24 - 1
MAX_STREAM = 2**31 - 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The head of a frame whose payload follows it."""
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream)


def settings(values: Mapping[int, int]) -> bytes:
    """Our settings."""
    return frame(SETTINGS, 0, 0, b"".join(Struct(">HI").pack(name, value) for name, value in values.items()))


def window_update(stream: int, size: int) -> bytes:
    """The peer may send ``size`` bytes more."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    """The end of a stream."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: int, reason: bytes = b"") -> bytes:
    """No stream after ``last`` was or will be served."""
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + reason)


SETTINGS_TAKEN = frame(SETTINGS, ACK, 0)


class ConnectionFault(Exception):  # noqa: N818 - the peer's fault, not an error of ours
    """The peer broke the protocol in a way that no stream survives."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamFault(Exception):  # noqa: N818 - as above
    """The peer broke the protocol on one stream."""

    def __init__(self, stream: int, code: int, reason: str) -> None:
        super().__init__(reason)
        self.stream = stream
        self.code = code
        self.reason = reason
