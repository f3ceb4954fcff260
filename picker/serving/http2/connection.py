"""One connection of HTTP/2, the server's side of it: bytes in, bytes out, calls to streams' handlers in between.

No input or output, no clock: `Connection.receive` takes what came and when, `Connection.take` hands out what is to be
written. Nothing raises. What the peer breaks ends its stream, or the connection with a GOAWAY that says why; what a
handler raises ends its stream.
"""

from __future__ import annotations

from collections.abc import Callable

from picker.serving.http2 import frames
from picker.serving.http2.control import CONTROL, SETTLING
from picker.serving.http2.floods import Floods
from picker.serving.http2.frames import DATA, HEADERS, LEAST_FRAME, MAX_STREAM, ConnectionFault, StreamFault
from picker.serving.http2.headers import Request
from picker.serving.http2.limits import Counts, Limits
from picker.serving.http2.outgoing import Outgoing
from picker.serving.http2.past import How, Past
from picker.serving.http2.requests import Requests
from picker.serving.http2.stream import Handler, Stream

Accept = Callable[[Stream, Request], Handler]
"""Called for each new stream; whoever refuses one may finish it right there."""

ALIVE = b"alive?\0\0"

_unpack = frames.HEAD.unpack_from


class Connection(Outgoing):
    """Serves one connection. ``wake`` is called when there is something to write that `receive` did not bring about.

    ``defect`` is told of what handlers raise.
    """

    __slots__ = (
        "_began", "_defect", "_introduced", "_promised", "_requests", "_rest", "answered", "closed", "closing",
        "counts", "draining", "last", "now", "past", "pinged", "settled", "streams",
    )  # fmt: skip

    def __init__(
        self,
        accept: Accept,
        *,
        limits: Limits,
        counts: Counts,
        wake: Callable[[], None],
        defect: Callable[[Exception], None],
        now: float,
    ) -> None:
        super().__init__(limits, Floods(now), wake)
        self.counts = counts
        self.streams: dict[int, Stream] = {}
        self.past = Past(limits.remembered)
        self.answered = 0
        """Streams that we ended in good order."""
        self.closed = 0
        """Streams that are over, however they ended."""
        self.last = 0
        """The newest stream of the peer."""
        self.now = now
        self.pinged = False
        """Whether a ping of ours waits for its answer."""
        self.draining = False
        self.closing = False
        """Whether the connection is to be closed once everything is written."""
        self.settled = False
        """Whether new streams are ignored."""
        self._defect = defect
        self._requests = Requests(self, accept)
        self._rest = b""
        self._began = self._introduced = False
        self._promised = frames.MAX_STREAM

    @property
    def began(self) -> bool:
        """Whether the peer has begun to speak HTTP/2."""
        return self._introduced

    # -- what comes in ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the peer."""
        if self.closing:
            return
        self.now = now
        self.inside = True
        try:
            if self._rest:
                self._go_on(data)
            else:
                self._read(data, 0)
            if self.paused and len(self.out) > 8 * self.limits.streams + 10_000:
                raise self.floods.cut("flooded_unread", "answers are not read")
        except ConnectionFault as fault:
            self._give_up(fault)
        finally:
            self.inside = False

    def lost(self) -> None:
        """The connection is gone, and all its streams with it."""
        self.closing = True
        streams, self.streams = self.streams, {}
        self.queue.clear()
        for stream in streams.values():
            stream.close()
            self.call(stream, stream.handler.lost)
        self.out.clear()

    def _go_on(self, data: bytes) -> None:
        """Read the frame that was cut, and then the rest: what follows that frame is not copied."""
        rest = self._rest
        if self._began and len(rest) >= 9:
            lacking = 9 + (rest[0] << 16 | rest[1] << 8 | rest[2]) - len(rest)
            if lacking < len(data):
                self._read(rest + data[:lacking], 0)
                if not self.closing:
                    self._read(data, lacking)
                return
        self._read(rest + data, 0)

    def _read(self, data: bytes, at: int) -> None:
        """Take the whole frames from there on, and keep what is left."""
        end = len(data)
        if not self._began:
            if not self._preface(data):
                return
            at = len(frames.PREFACE)
        requests, last = self._requests, end - 9
        while at <= last:
            high, low, kind, flags, number = _unpack(data, at)
            start = at + 9
            after = start + (high << 8 | low)
            if after - start > LEAST_FRAME:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a frame larger than was allowed")
            if after > end:
                break
            at = after
            try:
                # by how often they come
                if not requests.free:
                    self._frame(kind, number & MAX_STREAM, flags, data[start:after])
                elif kind == DATA:
                    requests.data(number & MAX_STREAM, flags, data[start:after])
                elif kind == HEADERS:
                    requests.headers(number & MAX_STREAM, flags, data[start:after])
                else:
                    self._control(kind, number & MAX_STREAM, flags, data[start:after])
            except StreamFault as fault:
                self._reset(fault)
            if self.closing:
                return
        self._rest = data[at:] if at else data

    def _frame(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        """A frame where not every one is welcome: the first one, or one amid headers."""
        requests = self._requests
        if not self._introduced:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "the first frame is no SETTINGS")
            self._introduced = requests.free = True
            self._control(kind, number, flags, payload)
        elif kind == frames.CONTINUATION:
            requests.continuation(number, flags, payload)
        else:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "another frame amid headers")

    def _control(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        control = CONTROL.get(kind)
        if control is None:
            self.floods.idle(self.now, self.closed)
        else:
            control(self, number, flags, payload)

    def _preface(self, data: bytes) -> bool:
        """Whether the peer's first words are here; keeps what is there of them."""
        if len(data) < len(frames.PREFACE):
            if not frames.PREFACE.startswith(data):
                raise ConnectionFault(frames.PROTOCOL_ERROR, "this is not HTTP/2")
            self._rest = data
            return False
        if not data.startswith(frames.PREFACE):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "this is not HTTP/2")
        self._began = True
        return True

    def ping(self) -> None:
        """Ask the peer whether it lives; `pinged` until it answers."""
        self.pinged = True
        self.out.append(frames.frame(frames.PING, 0, 0, ALIVE))
        self.written()

    # -- ends ---------------------------------------------------------------------------------------------------

    def call(self, stream: Stream, function: Callable[[], None]) -> None:
        """Call a handler; what it raises ends its stream."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            self.failed(stream, error)

    def failed(self, stream: Stream, error: Exception) -> None:
        """A handler raised."""
        self.counts.handler_errors += 1
        self._defect(error)
        if not stream.over:
            self.reset_by_us(stream, frames.INTERNAL_ERROR)
            self.call(stream, lambda: stream.handler.reset(frames.INTERNAL_ERROR))

    def finished(self, stream: Stream) -> None:
        """Our side has ended in good order."""
        self.answered += 1
        if stream.ended:
            self._gone(stream, How.ENDED)
        else:
            # 8.1: the answer is whole, the rest of the request is of no interest
            self.out.append(frames.reset(stream.id, frames.NO_ERROR))
            self._gone(stream, How.LEFT)

    def reset_by_us(self, stream: Stream, code: int) -> None:
        """End a stream from our side; its handler knows, or is told by the caller."""
        self.out.append(frames.reset(stream.id, code))
        self._gone(stream, How.LEFT)
        self.written()

    def reset_by_peer(self, stream: Stream, code: int) -> None:
        """The peer has reset a stream."""
        self._gone(stream, How.RESET)
        self.call(stream, lambda: stream.handler.reset(code))
        if not stream.responded:
            self.counts.resets_premature += 1
            self.floods.reset(self.now, self.answered)

    def _gone(self, stream: Stream, how: How) -> None:
        self.streams.pop(stream.id, None)
        self.closed += 1
        self.past.note(stream.id, how)
        stream.close()
        if self.settled and not self.streams:
            self.closing = True
            self.written()

    def _reset(self, fault: StreamFault) -> None:
        """Reset a stream for what the peer did on it."""
        self.counts.stream_errors += 1
        self.reply(frames.reset(fault.stream, fault.code))
        stream = self.streams.get(fault.stream)
        if stream is not None:
            self._gone(stream, How.LEFT)
            self.call(stream, lambda: stream.handler.reset(fault.code))
        elif self.past.how(fault.stream) is None:
            self.past.note(fault.stream, How.LEFT)
        # a peer that makes us reset streams is no better than one that resets them
        self.floods.reset(self.now, self.answered)

    def _give_up(self, fault: ConnectionFault) -> None:
        cut_by = self.floods.cut_by or "connection_errors"
        setattr(self.counts, cut_by, getattr(self.counts, cut_by) + 1)
        self.lost()
        self.out.append(frames.goaway(min(self.last, self._promised), fault.code, fault.reason.encode()))

    # -- going away ---------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no new streams once the peer knows of it; close when those that are open are over."""
        if self.draining or self.closing:
            return
        self.draining = True
        self.out.append(frames.goaway(frames.MAX_STREAM, frames.NO_ERROR))
        self.out.append(frames.frame(frames.PING, 0, 0, SETTLING))
        self.written()

    def settle(self) -> None:
        """The peer knows that we go away: say which streams are served, and take no others."""
        if self.settled or self.closing:
            return
        self.draining = self.settled = True
        self._promised = self.last
        self.out.append(frames.goaway(self.last, frames.NO_ERROR))
        self.closing = not self.streams
        self.written()
