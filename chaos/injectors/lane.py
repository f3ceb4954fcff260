"""One direction of a proxied connection: what it is like, and the bytes that wait in it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Way = Literal["there", "back"]
"""``there``: from the one that dials to the one that is dialled; ``back``: the other direction."""
WAYS: tuple[Way, Way] = ("there", "back")

PIECE_BYTES = 64 * 1024
HELD_BYTES = 1024 * 1024
"""Most bytes that one direction of one connection keeps; past it the sender is no longer read."""
_SLICE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Conditions:
    """What one direction is like. Times in seconds."""

    latency: float = 0.0
    """Added to every piece of bytes; order is kept."""
    jitter: float = 0.0
    """Up to so much more, drawn anew for every piece."""
    bandwidth: float = 0.0
    """Bytes per second of each connection; 0: as fast as it goes."""
    pause: bool = False
    """Nothing passes, nothing is lost: a partition that TCP outlives if it heals in time."""
    swallow: bool = False
    """Everything is read and thrown away, ends of connections too: the other side is gone without a word."""
    slow_close: float = 0.0
    """How long the end of a connection is kept back."""

    def __post_init__(self) -> None:
        if min(self.latency, self.jitter, self.bandwidth, self.slow_close) < 0:
            raise ValueError(f"times and bandwidths of a wire are not negative: {self}")


@dataclass(slots=True)
class LaneCounts:
    """What happened in one direction, over all connections."""

    bytes: int = 0
    """Passed on."""
    delayed: int = 0
    """Pieces that were late by their latency."""
    narrowed: int = 0
    """Slices after which the bandwidth made the next one wait."""
    paused: int = 0
    """Bytes and connections' ends that had to wait for the end of a pause."""
    swallowed: int = 0
    """Bytes thrown away."""
    slow_closes: int = 0
    """Ends that were kept back."""


class Lane:
    """One direction of a wire; what it is like may change at any time."""

    def __init__(self) -> None:
        self.counts = LaneCounts()
        self._conditions = Conditions()
        self._changed = asyncio.Event()

    @property
    def conditions(self) -> Conditions:
        """What it is like now."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, seconds: float | None = None) -> None:
        """Wait for the next change, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def opened(self) -> None:
        """Wait while it is paused."""
        while self._conditions.pause:
            await self.change()


class Filter:
    """What one direction of one connection does with the bytes. This one leaves them as they are."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The pieces to pass on now."""
        return (data,)

    def end(self) -> Iterable[bytes]:
        """What is left to pass on at the end of the stream."""
        return ()


@dataclass(slots=True)
class _Piece:
    data: bytes
    """Empty: the end of the stream."""
    read: float
    draw: float
    """Which part of the jitter it gets."""
    held: bool = False


class Flow:
    """One direction of one connection: bytes wait here until they are due."""

    def __init__(self, lane: Lane, dice: random.Random) -> None:
        self.lane = lane
        self.torn = False
        """Bytes were thrown away: the stream has a hole and cannot go on."""
        self._dice = dice
        self._queue: deque[_Piece] = deque()
        self._held = 0
        self._moved = asyncio.Event()
        self._moved_on = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Queue bytes, or with none the end."""
        now = asyncio.get_running_loop().time()
        self._queue.append(_Piece(data, now, self._dice.random()))
        self._held += len(data)
        self._moved.set()

    async def fill(self, reader: asyncio.StreamReader, sieve: Filter) -> None:
        """Read until the sender ends. Raises what the connection raises."""
        while True:
            while self._held > HELD_BYTES:
                self._moved_on.clear()
                await self._moved_on.wait()
            await self.lane.opened()
            data = await reader.read(PIECE_BYTES)
            if self.lane.conditions.swallow:
                self.lane.counts.swallowed += len(data)
                self.torn = True
                if not data:
                    return
                continue
            for piece in sieve.feed(data) if data else sieve.end():
                self.put(piece)
            if not data:
                self.put(b"")
                return

    async def drain(self, writer: asyncio.StreamWriter) -> None:
        """Write what is due, in order, until the end of the stream. Raises what the connection raises."""
        while True:
            while not self._queue:
                self._moved.clear()
                await self._moved.wait()
            piece = self._queue[0]
            if not await self._due(piece):
                continue
            self._queue.popleft()
            if self.lane.conditions.swallow:
                self.lane.counts.swallowed += len(piece.data)
                self.torn = True
            elif not piece.data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            else:
                await self._write(writer, piece.data)
            self._held -= len(piece.data)
            self._moved_on.set()

    async def _due(self, piece: _Piece) -> bool:
        """Wait for the time at which the piece may go on; False: look again, for something has changed."""
        lane, conditions = self.lane, self.lane.conditions
        if conditions.swallow:
            return True
        if conditions.pause:
            if not piece.held:
                lane.counts.paused += len(piece.data) or 1
                piece.held = True
            await lane.change()
            return False
        late = conditions.latency + piece.draw * conditions.jitter
        if not piece.data:
            late += conditions.slow_close
        left = piece.read + late - asyncio.get_running_loop().time()
        if left > 0:
            await lane.change(left)
            return False
        if late > 0:
            lane.counts.delayed += 1
            lane.counts.slow_closes += not piece.data and conditions.slow_close > 0
        return True

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        lane, view = self.lane, memoryview(data)
        while view:
            await lane.opened()
            bandwidth = lane.conditions.bandwidth
            size = max(1, int(bandwidth * _SLICE_SECONDS)) if bandwidth else len(view)
            writer.write(bytes(view[:size]))
            await writer.drain()
            sent = min(size, len(view))
            lane.counts.bytes += sent
            view = view[sent:]
            if bandwidth:
                lane.counts.narrowed += 1
                await lane.change(sent / bandwidth)
