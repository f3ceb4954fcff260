"""Requests that no service takes: what is no gRPC, and calls that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picker.serving.http2 import frames
from picker.serving.http2.stream import Stream
from picker.serving.native.calls import HEADERS, RefusedCallError, literal, trailers


class _Unserved:
    """A stream that waits for its answer, by a deadline. ``forget`` is called when it is over."""

    __slots__ = ("_forget", "deadline", "slot", "stream")

    def __init__(self, stream: Stream, deadline: float, forget: Callable[[Any], None]) -> None:
        self.stream = stream
        self.deadline: float | None = deadline
        self.slot = 0
        self._forget = forget

    def over(self) -> None:
        """It needs no deadline any more."""
        self.deadline = None
        self._forget(self)

    def data(self, data: bytes) -> None:
        """Nobody reads it."""

    def sent(self) -> None:
        """Nothing is waited for."""

    def reset(self, code: int) -> None:
        """The client is gone."""
        self.over()

    def lost(self) -> None:
        """The connection is gone."""
        self.over()


class Stranger(_Unserved):
    """A request that is not gRPC, answered once it is whole."""

    __slots__ = ()

    TEXT = b"This port speaks gRPC.\n"
    STATUS = b"\x08\x03415" + literal(b"content-type", b"text/plain")
    """``:status 415``."""

    def ended(self) -> None:
        """Answer."""
        self.over()
        self.stream.respond(self.STATUS)
        self.stream.send(self.TEXT)
        self.stream.finish(literal(b"x-reason", b"not gRPC"))

    def due(self, now: float) -> None:
        """It took too long."""
        self.over()
        self.stream.reset(frames.CANCEL)


class Refusal(_Unserved):
    """A call that is not served, told so with the first sign that the client has done what it does at a call's begin.

    A client that is still at it takes an end as early as that for a fault of its own, grpcio 1.85 among them.
    """

    __slots__ = ("_error",)

    def __init__(
        self, stream: Stream, deadline: float, forget: Callable[[Any], None], error: RefusedCallError
    ) -> None:
        super().__init__(stream, deadline, forget)
        self._error = error

    def data(self, data: bytes) -> None:
        """The client has begun."""
        self.due(0.0)

    def ended(self) -> None:
        """The client has begun, and ended."""
        self.due(0.0)

    def due(self, now: float) -> None:
        """Answer."""
        self.over()
        self.stream.finish(HEADERS + trailers(self._error.status, self._error.message))
