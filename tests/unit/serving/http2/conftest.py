"""A client of HTTP/2 that writes frames by hand, and a connection that it talks to under a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hpack import Encoder

from picker.serving.http2 import frames
from picker.serving.http2.connection import Connection
from picker.serving.http2.headers import Request
from picker.serving.http2.limits import Counts, Limits
from picker.serving.http2.stream import Stream

ASK = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/service/Method"),
    (":authority", "picker"),
    ("content-type", "application/grpc"),
)


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


class Served:
    """A handler that remembers what it was told, and does as a test says."""

    def __init__(self, stream: Stream, request: Request) -> None:
        self.stream = stream
        self.request = request
        self.told: list[Any] = []
        self.raises = False

    def _note(self, what: Any) -> None:
        self.told.append(what)
        if self.raises:
            raise RuntimeError("a defect")

    def data(self, data: bytes) -> None:
        self._note(data)

    def ended(self) -> None:
        self._note("ended")

    def sent(self) -> None:
        self._note("sent")

    def reset(self, code: int) -> None:
        self._note(("reset", code))

    def lost(self) -> None:
        self._note("lost")

    @property
    def body(self) -> bytes:
        return b"".join(one for one in self.told if isinstance(one, bytes))


@dataclass
class Peer:
    """Both ends of one connection."""

    limits: Limits = field(default_factory=Limits)
    accept: Callable[[Stream, Request], Any] = Served
    now: float = 1000.0
    introduce: bool = True

    def __post_init__(self) -> None:
        self.counts = Counts()
        self.defects: list[Exception] = []
        self.woken = 0
        self.handlers: dict[int, Served] = {}
        self.encoder = Encoder()
        self.connection = Connection(
            self._accept,
            limits=self.limits,
            counts=self.counts,
            wake=self._wake,
            defect=self.defects.append,
            now=self.now,
        )
        if self.introduce:
            self.send(frames.PREFACE + frames.settings({}))
            self.got()

    def _accept(self, stream: Stream, request: Request) -> Served:
        handler: Served = self.accept(stream, request)
        self.handlers[stream.id] = handler
        return handler

    def _wake(self) -> None:
        self.woken += 1

    def send(self, *parts: bytes) -> None:
        self.connection.receive(b"".join(parts), self.now)

    def open(
        self, number: int, *, end: bool = False, fields: Iterable[tuple[str, str]] = ASK
    ) -> Served | None:
        """Send the headers of a request."""
        block = self.encoder.encode(list(fields))
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        self.send(frames.frame(frames.HEADERS, flags, number, block))
        return self.handlers.get(number)

    def opened(self, number: int, *, end: bool = False) -> Served:
        handler = self.open(number, end=end)
        assert handler is not None
        return handler

    def data(self, number: int, data: bytes, *, end: bool = False) -> None:
        self.send(frames.frame(frames.DATA, frames.END_STREAM if end else 0, number, data))

    def got(self) -> list[Frame]:
        """What the connection has to say now."""
        return parsed(self.connection.take())

    def all(self) -> list[Frame]:
        """What it says until it has nothing more to say."""
        found: list[Frame] = []
        while self.connection.more:
            found += self.got()
        return found


def parsed(data: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream = frames.HEAD.unpack_from(data, at)
        end = at + 9 + (high << 8 | low)
        assert end <= len(data), "a frame that is cut"
        found.append(Frame(kind, flags, stream, data[at + 9 : end]))
        at = end
    return found


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def make_peer() -> type[Peer]:
    return Peer
