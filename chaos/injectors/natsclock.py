"""The clock of a NATS server as its clients see it: moved in what they are told, for the server's own cannot be.

The server is a Go program, which asks the kernel for the time without the C library, so nothing can be put between.
What its clients learn of its clock is the time stamp of each delivered message of a stream; that is in the message's
reply subject, and a wire can rewrite it: ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<n>.<time>.<pending>``
(newer servers put domain and account before the stream).
"""

from __future__ import annotations

from chaos.injectors.frames import Frame

_ACK = "$JS.ACK."
_SECOND = 1_000_000_000


class ServerClock:
    """One clock for all wires before one server: every client is told the same time of the same message.

    Each step counts from the next message of the stream on, as with a server whose clock was stepped.
    """

    def __init__(self, stream: str) -> None:
        self.stamped = 0
        """Messages whose time was told otherwise than the server did."""
        self.plain = 0
        """Messages whose time was told as it is."""
        self._stream = stream
        """Prefix of the streams' names."""
        self._steps: dict[str, list[tuple[int, int]]] = {}
        self._newest: dict[str, int] = {}
        self._offset = 0

    @property
    def ahead(self) -> float:
        """By how many seconds new messages are told to be ahead."""
        return self._offset / _SECOND

    def set(self, seconds: float) -> None:
        """From the next message on the clock is so much ahead of the server's."""
        self._offset = round(seconds * _SECOND)
        for stream, newest in self._newest.items():
            self._steps.setdefault(stream, []).append((newest, self._offset))

    def told(self, frame: Frame) -> Frame:
        """The message as it is passed on."""
        if not frame.reply.startswith(_ACK):
            return frame
        words = frame.reply.split(".")
        first = 2 if len(words) == 9 else 4
        if len(words) <= first + 5 or not words[first].startswith(self._stream):
            return frame
        stream, sequence, stamp = words[first], words[first + 3], words[first + 5]
        if not sequence.isdecimal() or not stamp.isdecimal():
            return frame
        number = int(sequence)
        offset = self._of(stream, number)
        self._newest[stream] = max(number, self._newest.get(stream, 0))
        if not offset:
            self.plain += 1
            return frame
        self.stamped += 1
        words[first + 5] = str(int(stamp) + offset)
        return frame.with_reply(".".join(words))

    def _of(self, stream: str, sequence: int) -> int:
        if stream not in self._newest and self._offset:
            self._steps.setdefault(stream, []).append((0, self._offset))
        steps = self._steps.get(stream, ())
        return next((offset for after, offset in reversed(steps) if sequence > after), 0)
