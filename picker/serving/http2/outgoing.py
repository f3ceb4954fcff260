"""What one connection has to say, whose turn it is among its streams, and how much the peer may send."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from picker.serving.http2 import frames
from picker.serving.http2.floods import Floods
from picker.serving.http2.limits import WRITE_QUANTUM, Limits
from picker.serving.http2.stream import Stream

WRITE_BYTES = 256 * 1024
"""Most bytes of bodies that one `Outgoing.take` hands out."""


class Outgoing:
    """One direction of a connection. ``wake`` is called when there is something to write outside of `receive`."""

    __slots__ = (
        "_wake", "first_window", "floods", "given", "inside", "limits", "max_frame", "out", "paused", "queue", "queued",
        "room", "sent", "unreturned", "window",
    )  # fmt: skip

    def __init__(self, limits: Limits, floods: Floods, wake: Callable[[], None]) -> None:
        self.limits = limits
        self.floods = floods
        self.out: list[bytes | memoryview] = []
        self.queue: deque[Stream] = deque()
        """Streams that wait for their turn to send."""
        self.queued = 0
        """Bytes that wait on all streams."""
        self.window = frames.DEFAULT_WINDOW
        """Bytes that the peer takes on all streams together."""
        self.first_window = frames.DEFAULT_WINDOW
        """... on each new stream."""
        self.max_frame = frames.LEAST_FRAME
        self.room = limits.connection_window
        """Bytes that the peer may send on all streams together."""
        self.sent = 0
        """Frames with data sent."""
        self.paused = False
        """Whether nothing can be written now; set from outside."""
        self.given = 0
        """Bytes of bodies in ``out`` that did not wait for their turn."""
        self._wake = wake
        self.inside = False
        """Whether what is written now is looked for afterwards in any case."""
        self.unreturned = 0
        """Bytes consumed that the peer was not yet allowed to send anew, on all streams together."""
        self.out.append(frames.settings({
            frames.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.MAX_HEADER_LIST_SIZE: limits.header_list,
        }))  # fmt: skip
        self.out.append(frames.window_update(0, limits.connection_window - frames.DEFAULT_WINDOW))

    def call(self, stream: Stream, function: Callable[[], None]) -> None:
        """Call a handler; what it raises ends its stream."""
        raise NotImplementedError

    @property
    def more(self) -> bool:
        """Whether `take` has more to hand out at once."""
        return bool(self.out) or (bool(self.queue) and self.window > 0)

    def take(self) -> bytes:
        """What is to be written now; not to be called while `paused`."""
        if self.queue:
            self.inside = True
            try:
                self._pump(WRITE_BYTES)
            finally:
                self.inside = False
        out = b"".join(self.out)
        self.out.clear()
        self.given = 0
        return out

    def written(self) -> None:
        """Something is there to be written."""
        if not self.inside:
            self._wake()

    def enqueue(self, stream: Stream) -> None:
        """A stream has something to send; it gets its turn when both windows are open."""
        if stream.window > 0 and not stream.ready:
            stream.ready = True
            self.queue.append(stream)
            self.written()

    def _pump(self, most: int) -> None:
        queue = self.queue
        while queue and self.window > 0 and most > 0:
            stream = queue.popleft()
            stream.ready = False
            if stream.over:
                continue
            written = stream.emit(min(WRITE_QUANTUM, self.window))
            self.window -= written
            most -= written
            if stream.waits:
                self.enqueue(stream)
            else:
                self.call(stream, stream.handler.sent)
                self.return_room(stream)
        self.return_all_room()

    def reply(self, answer: bytes) -> None:
        """Answer a control frame."""
        if self.paused:
            self.floods.unread()
        self.out.append(answer)

    # -- room for the peer to send ------------------------------------------------------------------------------

    def return_room(self, stream: Stream) -> None:
        """Let the peer send on, unless the stream is about to end or its answers are not taken."""
        if stream.unreturned * 2 < self.limits.stream_window or stream.ended or stream.waits or stream.over:
            return
        self.out.append(frames.window_update(stream.id, stream.unreturned))
        stream.room += stream.unreturned
        stream.unreturned = 0

    def return_all_room(self) -> None:
        """Let the peer send on, on all streams together, unless too much of our answers is not taken."""
        size = self.unreturned
        if size * 2 >= self.limits.connection_window and self.queued < self.limits.pending:
            self.room += size
            self.unreturned = 0
            self.out.append(frames.window_update(0, size))
