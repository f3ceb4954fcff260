"""
The engine's two ZMQ sockets: its stream of events, and the replay of past ones.

Frames are drained with no other work in between: an engine's replay socket drops what its reader is too
slow for, the mark of the end included, so nothing here waits without an end. Numbers are judged elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from picker.events.bridge.dialect import decode_frames, is_end
from picker.events.bridge.engine_events import Frames

log = structlog.get_logger(__name__)

RECEIVE_MARK: Final = 100_000
QUEUE_MESSAGES: Final = 100_000
QUEUE_BYTES: Final = 512 * 1024 * 1024
REPLAY_BYTES: Final = 512 * 1024 * 1024
REPLAY_IDLE_SECONDS: Final = 2.0
REPLAY_SECONDS: Final = 120.0
_DRAIN: Final = 256


@dataclass(frozen=True, slots=True)
class Connected:
    """The engine's event socket is there, for the first time or again."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The engine's event socket is gone: maybe the engine is."""


Item: TypeAlias = Frames | Connected | Disconnected


@dataclass(frozen=True, slots=True)
class Replay:
    """What an engine played back, in the order of arrival. ``ended``: it said that this is all."""

    batches: list[Frames]
    ended: bool


@dataclass(slots=True)
class Counts:
    """What came from the engine."""

    messages: int = 0
    bad_frames: int = 0
    queue_dropped: int = 0
    connects: int = 0
    disconnects: int = 0
    replays: int = 0
    replays_cut: int = 0
    """Replays without the mark of their end: frames were dropped, or the engine is slow or away."""


class EngineFeed:
    """
    One engine's events. ``run`` reads; ``next`` hands out; ``replay`` asks for past ones.

    Args:
        events: ZMQ endpoint of the engine's PUB socket.
        replay: of its ROUTER socket; empty: it has none.
        clock: monotonic seconds.

    """

    def __init__(self, events: str, replay: str, *, clock: Callable[[], float]) -> None:
        self.counts = Counts()
        self.connected = False
        self.message_at: float | None = None
        """Monotonic time of the last message."""
        self._events = events
        self._replay = replay
        self._clock = clock
        self._context: zmq.asyncio.Context | None = None
        self._queue: deque[Item] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()

    @property
    def replays(self) -> bool:
        """Whether the engine can be asked for past events."""
        return bool(self._replay)

    async def run(self) -> None:
        """
        Read the engine's stream until cancelled.

        Raises:
            ValueError: an endpoint is not one.

        """
        self._context = zmq.asyncio.Context()
        try:
            sub = self._socket(zmq.SUB)
            monitor = sub.get_monitor_socket(int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED))
            sub.subscribe(b"")
            self._connect(sub, self._events, "PICKER_BRIDGE_EVENTS")
            poller = zmq.asyncio.Poller()
            poller.register(sub, zmq.POLLIN)
            poller.register(monitor, zmq.POLLIN)
            while True:
                await poller.poll()
                # Changes of the connection first: they came before the messages that follow on a new one.
                await self._read_monitor(monitor)
                await self._read_messages(sub)
                await asyncio.sleep(0)
        finally:
            self._context.destroy(linger=0)

    async def next(self, timeout: float) -> Item | None:
        """The next thing that happened, or ``None`` when nothing did within ``timeout`` seconds."""
        if not self._queue:
            self._filled.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._filled.wait()
            except TimeoutError:
                return None
        item = self._queue.popleft()
        if isinstance(item, Frames):
            self._bytes -= len(item.payload)
        return item

    async def replay(self, start: int) -> Replay:
        """
        What the engine still has from number ``start`` on. Ends by itself: at the mark, after an idle time,
        or in all.
        """
        self.counts.replays += 1
        batches: list[Frames] = []
        size = 0
        dealer = self._socket(zmq.DEALER)
        try:
            self._connect(dealer, self._replay, "PICKER_BRIDGE_REPLAY")
            await dealer.send_multipart([b"", start.to_bytes(8, "big")])
            async with asyncio.timeout(REPLAY_SECONDS):
                while size < REPLAY_BYTES and await dealer.poll(int(REPLAY_IDLE_SECONDS * 1000)):
                    frames = await dealer.recv_multipart()
                    if is_end(frames):
                        return Replay(batches, ended=True)
                    batch = decode_frames(frames)
                    if batch is None:
                        self.counts.bad_frames += 1
                        continue
                    size += len(batch.payload)
                    batches.append(batch)
        except (TimeoutError, zmq.ZMQError) as error:
            log.debug("a replay broke off", error=str(error))
        finally:
            dealer.close(linger=0)
        self.counts.replays_cut += 1
        return Replay(batches, ended=False)

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        assert self._context is not None, "sockets are opened while the feed runs"
        socket = self._context.socket(kind)
        socket.set(zmq.RCVHWM, RECEIVE_MARK)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, 100)
        socket.set(zmq.RECONNECT_IVL_MAX, 1000)
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, 5)
        socket.set(zmq.TCP_KEEPALIVE_INTVL, 2)
        socket.set(zmq.TCP_KEEPALIVE_CNT, 3)
        socket.set(zmq.IPV6, 1)
        return socket

    def _connect(self, socket: zmq.asyncio.Socket, endpoint: str, variable: str) -> None:
        try:
            if "*" in endpoint:
                socket.bind(endpoint)  # llm-d's simulator dials its reader
            else:
                socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise ValueError(f"{variable}: {endpoint!r} is no ZMQ endpoint to connect to: {error}") from error

    async def _read_monitor(self, monitor: zmq.asyncio.Socket) -> None:
        while True:
            try:
                frames = await monitor.recv_multipart(flags=zmq.NOBLOCK)
            except zmq.Again:
                return
            happened = parse_monitor_message(frames)["event"]
            self.connected = happened == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self.connected:
                self.counts.connects += 1
                self._put(Connected())
            else:
                self.counts.disconnects += 1
                self._put(Disconnected())

    async def _read_messages(self, sub: zmq.asyncio.Socket) -> None:
        for _ in range(_DRAIN):
            try:
                frames = await sub.recv_multipart(flags=zmq.NOBLOCK)
            except zmq.Again:
                return
            self.counts.messages += 1
            self.message_at = self._clock()
            message = decode_frames(frames)
            if message is None or is_end(frames):
                self.counts.bad_frames += 1
                continue
            self._bytes += len(message.payload)
            self._put(message)

    def _put(self, item: Item) -> None:
        self._queue.append(item)
        self._filled.set()
        while len(self._queue) > QUEUE_MESSAGES or self._bytes > QUEUE_BYTES:
            dropped = self._queue.popleft()
            if isinstance(dropped, Frames):
                self._bytes -= len(dropped.payload)
                self.counts.queue_dropped += 1
