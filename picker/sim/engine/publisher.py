"""
The engine's ZMQ side: live batches on a bound PUB socket, past ones on a ROUTER that replays.

Frames and numbers are vLLM's: `[topic][sequence, 8 bytes big-endian, from 0][payload]` live; a replay request is
`[identity][empty][first sequence]` and is answered with one message per kept batch and an end marker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import structlog
import zmq
import zmq.asyncio

log = structlog.get_logger(__name__)

END = b"\xff" * 8
"""The sequence of a replay's end marker."""


@dataclass(slots=True)
class Counts:
    """What went out."""

    batches: int = 0
    replays: int = 0
    bad_replay_requests: int = 0
    send_failures: int = 0


@dataclass(frozen=True, slots=True)
class Wires:
    """Where the publisher listens and how it behaves. An endpoint with port 0 takes any free port."""

    live: str
    replay: str = ""
    topic: str = ""
    keep_batches: int = 10_000
    live_high_water: int = 100_000
    replay_high_water: int = 20_002
    replay_topic: bool = False
    replay_end: bool = True
    """False loses the end marker, as an overrun ROUTER does."""


class Publisher:
    """
    Numbers, sends and keeps batches. `live` and `replay` are the endpoints really bound.

    Raises OSError, naming the endpoint, when one cannot be bound.
    """

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._context = zmq.asyncio.Context()
        self._topic = wires.topic.encode()
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=wires.keep_batches)
        self._next = 0
        self.counts = Counts()
        self._live = self._bind(zmq.PUB, wires.live, wires.live_high_water)
        self._replay = self._bind(zmq.ROUTER, wires.replay, wires.replay_high_water) if wires.replay else None
        self.live = _bound(self._live)
        self.replay = _bound(self._replay) if self._replay else ""

    def _bind(self, kind: int, endpoint: str, high_water: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, high_water)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.bind(endpoint.removesuffix(":0") + ":*" if endpoint.endswith(":0") else endpoint)
        except zmq.ZMQError as fault:
            self._context.destroy(linger=0)
            raise OSError(f"{endpoint}: {fault}") from fault
        return socket

    async def publish(self, payload: bytes) -> None:
        """Send one batch to whoever listens; a slow listener loses it silently beyond the high-water mark."""
        sequence = self._next.to_bytes(8, "big")
        self._next += 1
        self._kept.append((sequence, payload))
        self.counts.batches += 1
        try:
            await self._live.send_multipart([self._topic, sequence, payload])
        except zmq.ZMQError as fault:
            self.counts.send_failures += 1
            log.warning("kv batch not sent", fault=str(fault))

    async def serve_replays(self) -> None:
        """Answer replay requests until cancelled."""
        if self._replay is None:
            return
        while True:
            request = await self._replay.recv_multipart()
            if len(request) != 3 or request[1] or len(request[2]) != 8:
                self.counts.bad_replay_requests += 1
                log.warning("replay request ignored", frames=len(request))
                continue
            self.counts.replays += 1
            try:
                await self._answer(request[0], request[2])
            except zmq.ZMQError as fault:
                self.counts.send_failures += 1
                log.warning("replay not sent", fault=str(fault))

    async def _answer(self, identity: bytes, first: bytes) -> None:
        socket = self._replay
        assert socket is not None
        topic = [self._topic] if self._wires.replay_topic else []
        for number, (sequence, payload) in enumerate(list(self._kept)):
            if sequence >= first:
                await socket.send_multipart([identity, b"", *topic, sequence, payload])
            if number % 64 == 63:
                await asyncio.sleep(0)
        if self._wires.replay_end:
            blank = [b""] if self._wires.replay_topic else []
            await socket.send_multipart([identity, b"", *blank, END, b""])

    def close(self) -> None:
        """Close the sockets."""
        self._live.close()
        if self._replay:
            self._replay.close()
        self._context.term()


def _bound(socket: zmq.asyncio.Socket) -> str:
    endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return endpoint.rstrip("\0")
