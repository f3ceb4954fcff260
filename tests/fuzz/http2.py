"""Hostile peers of an HTTP/2 connection: sequences of frames, right ones and wrong ones, and mutations of their bytes.

``python -m tests.fuzz.http2 --seconds 600`` does for as long what the unit tests do for a moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from hpack import Encoder
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from picker.serving.http2 import frames
from picker.serving.http2.connection import Connection
from picker.serving.http2.frames import frame
from picker.serving.http2.limits import Counts, Limits

NAMES = [
    ":method",
    ":path",
    ":scheme",
    ":authority",
    "content-type",
    "content-length",
    "te",
    "X",
    "",
    "grpc-timeout",
]
VALUES = ["POST", "/a", "http", "application/grpc", "3", "trailers", "\r\n", " ", "1S", "a" * 300]

numbers = st.one_of(st.sampled_from([0, 1, 3, 5, 7, 9, 2, 2**31 - 1]), st.integers(0, 2**31 - 1))
small = st.binary(max_size=40)
codes = st.integers(0, 2**32 - 1)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """A block of headers: a right one, an odd one, or bytes."""
    how = draw(st.integers(0, 5))
    if how == 0:
        return draw(st.binary(max_size=80))
    encoder = Encoder()
    if how == 1:
        pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES))
        return bytes(encoder.encode(draw(st.lists(pairs, max_size=12))))
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("content-type", "application/grpc")]
    if how == 2:
        fields.append(("content-length", str(draw(st.integers(0, 100)))))
    return bytes(encoder.encode(fields, huffman=draw(st.booleans())))


@st.composite
def wires(draw: st.DrawFn) -> bytes:
    """One frame, or a few that belong together."""
    kind, number, flags = draw(st.integers(0, 11)), draw(numbers), draw(st.integers(0, 255))
    match kind:
        case 0:
            return frame(frames.DATA, flags, number, draw(st.binary(max_size=2_000)))
        case 1:
            return frame(frames.HEADERS, flags | frames.END_HEADERS, number, draw(blocks()))
        case 2:
            block = draw(blocks())
            cut = draw(st.integers(0, len(block)))
            return frame(frames.HEADERS, flags & 1, number, block[:cut]) + frame(
                frames.CONTINUATION, frames.END_HEADERS, number, block[cut:]
            )
        case 3:
            return frames.reset(number, draw(codes))
        case 4:
            values = st.dictionaries(st.integers(0, 8), st.integers(0, 2**32 - 1), max_size=4)
            return frames.settings(draw(values))
        case 5:
            return frame(frames.PING, flags, 0, draw(st.binary(min_size=8, max_size=8)))
        case 6:
            return frames.window_update(number, draw(st.integers(0, 2**31 - 1)))
        case 7:
            return frame(frames.PRIORITY, 0, number, draw(st.binary(min_size=5, max_size=5)))
        case 8:
            return frames.goaway(number, draw(codes), draw(small))
        case _:
            return frame(draw(st.integers(0, 255)), flags, number, draw(small))


class Chaotic:
    """A handler that does what its script says, defects among it."""

    def __init__(self, stream: Any, script: list[int]) -> None:
        self.stream = stream
        self.script = script
        self.ends = 0

    def _act(self) -> None:
        match self.script.pop() if self.script else 0:
            case 1:
                self.stream.respond(b"\x88")
            case 2:
                self.stream.send(b"x" * 50_000)
            case 3:
                self.stream.send_from(b"y" * 1_000 for _ in range(30))
            case 4:
                self.stream.finish(b"\x88")
            case 5:
                self.stream.reset()
            case 6:
                raise RuntimeError("a defect")

    def data(self, data: bytes) -> None:
        assert data
        self._act()

    def ended(self) -> None:
        self._act()

    def sent(self) -> None:
        self._act()

    def reset(self, code: int) -> None:
        self.ends += 1
        self._act()

    def lost(self) -> None:
        self.ends += 1
        self._act()


class Watched:
    """A connection under attack, and what must be true of it after every step."""

    def __init__(self, script: list[int]) -> None:
        self.handlers: list[Chaotic] = []
        self.counts = Counts()
        self.limits = Limits(streams=4, stream_window=4_000, connection_window=70_000, remembered=8)
        self._script = script
        self.connection = Connection(
            self._accept,
            limits=self.limits,
            counts=self.counts,
            wake=lambda: None,
            defect=self._defect,
            now=0.0,
        )

    def _accept(self, stream: Any, _: Any) -> Chaotic:
        if self._script and self._script[-1] == 7:
            self._script.pop()
            raise RuntimeError("a defect")
        handler = Chaotic(stream, self._script)
        self.handlers.append(handler)
        return handler

    @staticmethod
    def _defect(error: Exception) -> None:
        if not isinstance(error, RuntimeError):
            raise error

    def receive(self, data: bytes, now: float) -> None:
        connection = self.connection
        connection.receive(data, now)
        for _ in range(3):
            sent = connection.take()
            assert len(sent) < 1_000_000
        self.check()

    def check(self) -> None:
        """Bounds hold, sums are right, and each stream had at most one end."""
        connection = self.connection
        assert len(connection.streams) <= self.limits.streams
        assert len(connection.past) <= 2 * self.limits.remembered
        assert len(connection._rest) <= 9 + frames.LEAST_FRAME
        assert connection.queued == sum(stream.queued for stream in connection.streams.values())
        assert all(handler.ends <= 1 for handler in self.handlers)
        assert all(not stream.over for stream in connection.streams.values())
        if connection.closing:
            assert not connection.streams or connection.settled
        for stream in connection.streams.values():
            assert stream.waits or stream._ending is None


OPENING = frames.PREFACE + frames.settings({})


def attack(script: list[int], steps: list[tuple[bytes, float]]) -> None:
    """Let a peer send these pieces, each so many seconds after the one before."""
    watched, now = Watched(script), 0.0
    watched.receive(OPENING, now)
    for data, seconds in steps:
        now += seconds
        watched.receive(data, now)
    watched.connection.lost()
    assert all(handler.ends <= 1 for handler in watched.handlers)
    assert watched.connection.queued == 0


@st.composite
def attacks(draw: st.DrawFn) -> tuple[list[int], list[tuple[bytes, float]]]:
    """What handlers do, and what the peer sends: whole frames, some of them cut or with bytes changed."""
    script = draw(st.lists(st.integers(0, 7), max_size=40))
    sent = draw(st.lists(wires(), max_size=25))
    steps: list[tuple[bytes, float]] = []
    for data in sent:
        if draw(st.integers(0, 9)) == 0 and data:
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes((draw(st.integers(0, 255)),)) + data[at + 1 :]
        cut = draw(st.integers(0, len(data))) if draw(st.booleans()) else 0
        if cut:
            steps.append((data[:cut], 0.0))
        steps.append((data[cut:], draw(st.sampled_from([0.0, 0.001, 1.0]))))
    return script, steps


def main() -> int:
    """Attack until the time is over; a fault is printed as hypothesis finds it smallest."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args()
    begun, turn, examples = time.monotonic(), given_.seed, 100
    while time.monotonic() < begun + given_.seconds:
        turn += 1

        @seed(turn)
        @settings(
            max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck)
        )
        @given(attacks())
        def held(one: tuple[list[int], list[tuple[bytes, float]]]) -> None:
            attack(*one)

        held()
    sys.stdout.write(
        f"{(turn - given_.seed) * examples} attacks in {time.monotonic() - begun:.0f} s, none got through;"
        f" seeds {given_.seed + 1} to {turn}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
