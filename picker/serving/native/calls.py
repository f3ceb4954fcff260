"""gRPC over a stream of HTTP/2: messages with their length before them, and a status at the end. No input or output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from struct import Struct
from urllib.parse import quote

from picker.serving.buffers import Budget
from picker.serving.http2 import frames
from picker.serving.http2.limits import Counts
from picker.serving.http2.stream import Stream

CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 7, 8, 12, 13, 14

PREFIX = 5
"""Bytes before each message: whether it is compressed, and its length."""
NOT_COMPRESSED = 0

SMALL_PART = 1_024
"""Parts of a message that are smaller are kept together: an object for each would be larger than they are."""

MOST_TEXT = 120
"""Most characters of a status's text, escaped."""

_PREFIX = Struct(">BI")
prefix = _PREFIX.pack
"""What stands before a message: whether it is compressed, and its size."""
_prefix_of = _PREFIX.unpack_from
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
    return prefix(NOT_COMPRESSED, len(message)) + message


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

    __slots__ = ("_kept", "_need", "_shared", "_size", "finished", "stream")

    def __init__(self, stream: Stream, shared: Shared) -> None:
        self.stream = stream
        self.finished = False
        """Whether we have said how it ended: nothing that comes later is looked at."""
        self._shared = shared
        # of a message that is not there as a whole: its parts, their size and the whole one's with the prefix
        self._kept: list[bytes | bytearray] | None = None
        self._size = self._need = 0

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

    def too_large(self, size: int) -> None:
        """A message of that size, which is over the limit, is not read."""
        self.fail(RESOURCE_EXHAUSTED, "a message over PICKER_MAX_MESSAGE_BYTES")

    # -- what goes out ------------------------------------------------------------------------------------------

    def send(self, messages: Iterable[bytes]) -> None:
        """Send messages."""
        self.send_framed(b"".join([prefixed(message) for message in messages]))

    def send_framed(self, data: bytes) -> None:
        """Send messages that have their prefixes."""
        stream = self.stream
        if not stream.responded:
            stream.respond(HEADERS)
        stream.send(data)

    def send_from(self, messages: Iterator[bytes]) -> None:
        """Send messages that are made only when the client takes them."""
        if not self.stream.responded:
            self.stream.respond(HEADERS)
        self.stream.send_from(prefixed(message) for message in messages)

    def finish(self, status: bytes = OK) -> None:
        """End the call with a status; what waits is sent before."""
        self.finished = True
        self._release()
        stream = self.stream
        stream.finish(status if stream.responded else HEADERS + status)

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
        while data and self._kept is not None:
            data = self._more(data)
        at, end, most = 0, len(data), self._shared.max_message
        while end - at >= PREFIX and not self.finished:
            compressed, size = _prefix_of(data, at)
            if compressed or size > most:
                self._refuse(compressed, size)
                return
            start = at + PREFIX
            after = start + size
            if after > end:
                if self._pay(end - at, 0):
                    self._kept, self._size, self._need = [data[start:]], end - at, PREFIX + size
                return
            at = after
            self.message(data[start:after])
        if at < end and not self.finished and self._pay(end - at, 0):
            self._kept, self._size, self._need = [data[at:]], end - at, PREFIX

    def ended(self) -> None:
        """The client has ended its side."""
        if self.finished:
            return
        if self._kept is not None:
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

    def _more(self, data: bytes) -> bytes:
        """Add to what is kept; returns what is left over."""
        kept, lacks = self._kept, self._need - self._size
        assert kept is not None
        part = data[:lacks] if lacks < len(data) else data
        if not self._pay(len(part), self._size):
            return b""
        self._size += len(part)
        if len(part) >= SMALL_PART:
            kept.append(part)
        elif kept and isinstance(kept[-1], bytearray):
            kept[-1] += part
        else:
            kept.append(bytearray(part))
        rest = data[lacks:]
        if self._size == self._need == PREFIX:
            if not self._measured(b"".join(kept)):
                return rest
            kept.clear()
        if self._size < self._need:
            return rest
        message = b"".join(kept)
        self._release()
        self.message(message)
        return rest

    def _measured(self, prefix: bytes) -> bool:
        """Find out how long the message will be; False where it is refused."""
        compressed, size = _prefix_of(prefix, 0)
        if compressed or size > self._shared.max_message:
            self._refuse(compressed, size)
            return False
        self._need = PREFIX + size
        return True

    def _refuse(self, compressed: int, size: int) -> None:
        counts = self._shared.counts
        if compressed:
            counts.messages_compressed += 1
            self.fail(UNIMPLEMENTED, "compressed messages are not read")
        else:
            counts.messages_too_large += 1
            self.too_large(size)

    def _pay(self, size: int, paid: int) -> bool:
        if self._shared.budget.take(size, paid=paid):
            return True
        self._release()
        self.full()
        return False

    def _release(self) -> None:
        if self._kept is not None:
            self._kept = None
            self._shared.budget.give(self._size)


class RefusedCallError(Exception):
    """A call is not served; its status and text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
