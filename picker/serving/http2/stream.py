"""One stream: what we send on it, as fast as the peer takes it, and what is known of its other side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from picker.serving.http2 import frames
from picker.serving.http2.frames import DATA, END_HEADERS, END_STREAM, HEAD, HEADERS, head

if TYPE_CHECKING:
    from picker.serving.http2.connection import Connection

AT_ONCE = 64 * 1024
"""Most bytes that go past other streams' turns where nothing waits, and the peer takes them."""
AT_ONCE_TOGETHER = 256 * 1024
"""... of all streams of a connection before they are handed out."""
_LAST_HEADERS = END_HEADERS | END_STREAM
_pack = HEAD.pack


class Handler(Protocol):
    """What serves one stream. Called synchronously; whatever it raises ends its own stream alone."""

    def data(self, data: bytes) -> None:
        """Bytes of the request's body."""
        ...

    def ended(self) -> None:
        """The request has ended in good order."""
        ...

    def sent(self) -> None:
        """The peer was sent everything that waited."""
        ...

    def reset(self, code: int) -> None:
        """The stream is over because one side reset it."""
        ...

    def lost(self) -> None:
        """The stream is over because its connection is."""
        ...


class Stream:
    """One open stream. Whatever is sent on one that is over goes nowhere."""

    __slots__ = (
        "_connection", "_ending", "_queue", "ended", "expected", "handler", "id", "over", "queued", "ready",
        "responded", "room", "unreturned", "waits", "window",
    )  # fmt: skip

    handler: Handler

    def __init__(self, connection: Connection, number: int, window: int, room: int) -> None:
        self.id = number
        self.window = window
        """Bytes that the peer takes now."""
        self.room = room
        """Bytes that the peer may still send."""
        self.unreturned = 0
        """Bytes consumed that the peer was not yet allowed to send anew."""
        self.expected: int | None = None
        """Bytes that are still to come by the request's ``content-length``."""
        self.ended = False
        """Whether the peer has ended its side."""
        self.over = False
        self.responded = False
        """Whether response headers were sent."""
        self.queued = 0
        """Bytes that wait, as far as they are known."""
        self.ready = False
        """Whether it waits for its turn among the connection's streams."""
        self.waits = False
        """Whether there is something that the peer has not yet taken."""
        self._connection = connection
        self._queue: deque[bytes | memoryview | Iterator[bytes]] | None = None
        self._ending: bytes | None = None

    # -- what a handler does ------------------------------------------------------------------------------------

    def respond(self, block: bytes) -> None:
        """Send response headers, as a compressed block."""
        if not self.over:
            self.responded = True
            connection, size = self._connection, len(block)
            connection.out += (_pack(size >> 8, size & 0xFF, HEADERS, END_HEADERS, self.id), block)
            if not connection.inside:
                connection.written()

    def send(self, data: bytes) -> None:
        """Send bytes of the body, at once where the peer takes them, else in turn with other streams."""
        size = len(data)
        connection = self._connection
        if (
            size <= self.window
            and size <= connection.window
            and size <= AT_ONCE
            and not self.waits
            and not connection.queue
            and not connection.paused
            and connection.given + size <= AT_ONCE_TOGETHER
        ):
            if self.over:
                return
            self.window -= size
            connection.window -= size
            connection.given += size
            if size > connection.max_frame:
                self._frames(data)
            else:
                connection.sent += 1
                connection.out += (_pack(size >> 8, size & 0xFF, DATA, 0, self.id), data)
            if not connection.inside:
                connection.written()
        elif not self.over and size:
            self._enqueue(data, size)

    def _frames(self, data: bytes) -> None:
        """Write what needs several frames."""
        connection, view = self._connection, memoryview(data)
        most = connection.max_frame
        for at in range(0, len(data), most):
            part = view[at : at + most]
            connection.sent += 1
            connection.out += (head(len(part), DATA, 0, self.id), part)

    def send_from(self, pieces: Iterator[bytes]) -> None:
        """Send bytes that are made only when the peer takes them."""
        if not self.over:
            self._enqueue(pieces, 0)

    def finish(self, block: bytes) -> None:
        """End the stream with these trailers, or headers where none were sent, once everything else is sent."""
        if self.over or self._ending is not None:
            return
        self._ending = block
        if not self.waits:
            self._finish()

    def reset(self, code: int = frames.CANCEL) -> None:
        """End the stream at once; what waits is dropped. The handler is not told: it knows."""
        if not self.over:
            self._connection.reset_by_us(self, code)

    def failed(self, error: Exception) -> None:
        """Something of ours that serves this stream raised outside of a call of its handler: end the stream."""
        self._connection.failed(self, error)

    # -- what a connection does ---------------------------------------------------------------------------------

    def emit(self, most: int) -> int:
        """Write up to ``most`` bytes as frames, and the end where nothing else waits. Returns how many."""
        connection, queue, left = self._connection, self._queue, min(most, self.window)
        written = 0
        while queue and left > 0:
            part = self._next(queue)
            if part is None:
                continue
            size = min(len(part), left, connection.max_frame)
            if size < len(part):
                view = memoryview(part)
                queue[0] = view[size:]
                part = view[:size]
            else:
                queue.popleft()
            self.queued -= size
            connection.queued -= size
            left -= size
            written += size
            connection.sent += 1
            connection.out.append(head(size, DATA, 0, self.id))
            connection.out.append(part)
        self.window -= written
        self.waits = bool(queue)
        if not queue and self._ending is not None:
            self._finish()
        return written

    def close(self) -> None:
        """Take note that the stream is over."""
        self.over = True
        self._connection.queued -= self.queued
        self.queued = 0
        self._queue = None
        self.waits = False

    def _next(self, queue: deque[bytes | memoryview | Iterator[bytes]]) -> bytes | memoryview | None:
        """What comes next, left at the queue's head; None where there was nothing in it."""
        part = queue[0]
        if isinstance(part, bytes | memoryview):
            return part
        try:
            made = next(part)
        except StopIteration:
            queue.popleft()
            return None
        if not made:
            return None
        queue.appendleft(made)
        self.queued += len(made)
        self._connection.queued += len(made)
        return made

    def _enqueue(self, part: bytes | Iterator[bytes], size: int) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(part)
        self.waits = True
        self.queued += size
        self._connection.queued += size
        self._connection.enqueue(self)

    def _finish(self) -> None:
        block, connection = self._ending or b"", self._connection
        size = len(block)
        self.responded = True
        connection.out += (_pack(size >> 8, size & 0xFF, HEADERS, _LAST_HEADERS, self.id), block)
        connection.finished(self)
        if not connection.inside:
            connection.written()
