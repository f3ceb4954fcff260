"""gRPC over a stream of HTTP/2: messages with their length before them, and a status at the end. No input or output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from picker.serving.buffers import Budget
from picker.serving.http2 import frames
from picker.serving.http2.limits import Counts
from picker.serving.http2.stream import Stream

CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 7, 8, 12, 13, 14

PREFIX = 5
"""Bytes before each message: whether it is compressed, and its length."""

MOST_TEXT = 120
"""Most characters of a status's text, escaped."""

_CUT_ESCAPE = re.compile("%.?$")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def literal(name: bytes, value: bytes) -> bytes:
    """One header, compressed in a way that needs no table. Both are shorter than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


HEADERS = b"\x88" + literal(b"content-type", b"application/grpc")
"""``:status 200`` and the content type."""


def trailers(status: int, message: str = "") -> bytes:
    """A status as a compressed block."""
    block = literal(b"grpc-status", b"%d" % status)
    if message:
        escaped = quote(message, safe=" !#$&'()*+,/:;=?@[]~")[:MOST_TEXT]
        block += literal(b"grpc-message", _CUT_ESCAPE.sub("", escaped).encode())
    return block


OK = trailers(0)


def seconds_of(timeout: bytes) -> float | None:
    """The seconds that ``grpc-timeout`` names; None where it names none."""
    match = _TIMEOUT.fullmatch(timeout)
    return int(match[1]) * _UNITS[match[2]] if match else None


def prefixed(message: bytes) -> bytes:
    """A message with its prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Shared:
    """What the calls of one port share."""

    __slots__ = ("budget", "counts", "max_message")

    def __init__(self, *, budget: Budget, counts: Counts, max_message: int) -> None:
        self.budget = budget
        """Pays for messages that are not there as a whole."""
        self.counts = counts
        self.max_message = max_message


class Call:
    """One call: what comes in as messages, in their order; what goes out, messages and a status.

    To be served by a subclass: `message`, `half_closed`, `broken` and what else concerns it.
    """

    __slots__ = ("_buffer", "_need", "_shared", "finished", "stream")

    def __init__(self, stream: Stream, shared: Shared) -> None:
        self.stream = stream
        self.finished = False
        """Whether we have said how it ended: nothing that comes later is looked at."""
        self._shared = shared
        self._buffer: bytearray | None = None
        self._need = 0

    # -- to be served -------------------------------------------------------------------------------------------

    def message(self, data: bytes) -> None:
        """A message of the client."""

    def half_closed(self) -> None:
        """The client will send nothing more."""

    def cancelled(self) -> None:
        """The client, or a fault of its, ended the call."""

    def broken(self) -> None:
        """The connection is lost."""

    def full(self) -> None:
        """A message cannot be kept because all messages together take too much."""
        self.fail(RESOURCE_EXHAUSTED, "out of memory for messages")

    # -- what goes out ------------------------------------------------------------------------------------------

    def send(self, messages: Iterable[bytes]) -> None:
        """Send messages."""
        stream = self.stream
        if not stream.responded:
            stream.respond(HEADERS)
        stream.send(b"".join([prefixed(message) for message in messages]))

    def send_from(self, messages: Iterator[bytes]) -> None:
        """Send messages that are made only when the client takes them."""
        if not self.stream.responded:
            self.stream.respond(HEADERS)
        self.stream.send_from(prefixed(message) for message in messages)

    def finish(self, status: bytes = OK) -> None:
        """End the call with a status; what waits is sent before."""
        self.finished = True
        self._release()
        self.stream.finish(status if self.stream.responded else HEADERS + status)

    def fail(self, status: int, message: str) -> None:
        """End the call with an error, for which nobody of ours asked: it counts as cancelled."""
        if self.finished:
            return
        if self.stream.waits:
            # nobody would look after what still waits
            self.finished = True
            self._release()
            self.stream.reset(frames.CANCEL)
        else:
            self.finish(trailers(status, message))
        self.cancelled()

    # -- the stream's handler -----------------------------------------------------------------------------------

    def data(self, data: bytes) -> None:
        """Bytes of messages."""
        while data and not self.finished:
            data = self._more(data) if self._buffer is not None else self._whole(data)

    def ended(self) -> None:
        """The client has ended its side."""
        if self.finished:
            return
        if self._buffer is not None:
            self.fail(INTERNAL, "the stream ended amid a message")
            return
        self.half_closed()

    def sent(self) -> None:
        """Everything that waited is sent."""

    def reset(self, code: int) -> None:
        """The stream was reset."""
        self.finished = True
        self._release()
        self.cancelled()

    def lost(self) -> None:
        """The connection is lost."""
        self.finished = True
        self._release()
        self.broken()

    # -- assembling ---------------------------------------------------------------------------------------------

    def _whole(self, data: bytes) -> bytes:
        """Take the messages that are whole; begin to keep what is not. Returns nothing."""
        at, end = 0, len(data)
        while end - at >= PREFIX:
            need = int.from_bytes(data[at + 1 : at + PREFIX], "big")
            if data[at] or need > self._shared.max_message:
                self._refuse(data[at])
                return b""
            start, at_end = at + PREFIX, at + PREFIX + need
            if at_end > end:
                break
            at = at_end
            self.message(data[start:at_end])
            if self.finished:
                return b""
        if at < end and self._pay(end - at, 0):
            self._buffer, self._need = bytearray(data[at:]), PREFIX
            self._measure()
        return b""

    def _more(self, data: bytes) -> bytes:
        """Add to what is kept; returns what is left over."""
        buffer = self._buffer
        assert buffer is not None
        lacks = self._need - len(buffer)
        if not self._pay(min(lacks, len(data)), len(buffer)):
            return b""
        buffer += data[:lacks] if lacks < len(data) else data
        rest = data[lacks:] if lacks < len(data) else b""
        if len(buffer) < self._need:
            return b""
        if self._need == PREFIX:
            self._measure()
            if len(buffer) < self._need or self.finished:
                return rest
        message = bytes(memoryview(buffer)[PREFIX:])
        self._release()
        self.message(message)
        return rest

    def _measure(self) -> None:
        """Find out how long the message will be, once its prefix is there."""
        buffer = self._buffer
        if buffer is None or len(buffer) < PREFIX:
            return
        need = int.from_bytes(buffer[1:PREFIX], "big")
        self._need = PREFIX + need
        if buffer[0] or need > self._shared.max_message:
            self._refuse(buffer[0])

    def _refuse(self, compressed: int) -> None:
        counts = self._shared.counts
        if compressed:
            counts.messages_compressed += 1
            self.fail(UNIMPLEMENTED, "compressed messages are not read")
        else:
            counts.messages_too_large += 1
            self.fail(RESOURCE_EXHAUSTED, "a message over PICKER_MAX_MESSAGE_BYTES")

    def _pay(self, size: int, paid: int) -> bool:
        if self._shared.budget.take(size, paid=paid):
            return True
        self._release()
        self.full()
        return False

    def _release(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._shared.budget.give(len(buffer))


class RefusedCallError(Exception):
    """A call is not served; its status and text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
