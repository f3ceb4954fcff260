"""One connection on asyncio: a transport on one side, `picker.serving.http2` on the other."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from picker.serving.http2.connection import Connection

if TYPE_CHECKING:
    from picker.serving.native.port import Port

HIGH_WATER = 512 * 1024
"""Bytes that may wait in one socket's buffer before nothing more is given to it."""
LINGER_SECONDS = 5.0
"""How long the rest of what we had to say may take on a connection that we close."""
STALE_SECONDS = 1.0
"""After a longer silence a peer may have left before its last words are read: this process may have stood still."""
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8
"""States of a connection that the peer has reset, or closed from its side (Linux, ``include/net/tcp_states.h``)."""


class Link(asyncio.Protocol):
    """One connection. What one turn of the loop has to say leaves in one write."""

    __slots__ = (
        "_asked", "_closing", "_connection", "_early", "_flushing", "_heard", "_loop", "_opened", "_port", "_transport"
    )  # fmt: skip

    def __init__(self, port: Port) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._early: list[bytes] = []
        self._flushing = False
        self._opened = self._heard = port.clock()
        self._asked: float | None = None
        self._closing: float | None = None

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, TLS included."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        connection = self._connection = self._port.connect(self, self._transport)
        if connection is None:
            self._transport.abort()
            return
        early, self._early = self._early, []
        for data in early:
            connection.receive(data, self._port.clock())
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        connection = self._connection
        if connection is None:
            if self._transport is None:
                # TLS may hand out what came with the handshake before it says that it is done
                self._early.append(data)
            return
        now = self._port.clock()
        if now - self._heard > STALE_SECONDS and self._left():
            # nobody waits for an answer any more: requests that were read now would be booked, and never run
            self._port.http2.connections_stale += 1
            self.abort()
            return
        self._heard = now
        connection.receive(data, now)
        if connection.out or connection.queue or connection.closing:
            self._flush()

    def _left(self) -> bool:
        """Whether the peer has closed the connection already, behind what it said before."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or not hasattr(socket, "TCP_INFO"):
            return False
        try:
            state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:  # no TCP, or gone altogether, which asyncio is about to find out
            return False
        return state in (_TCP_CLOSE, _TCP_CLOSE_WAIT)

    def eof_received(self) -> bool:
        """The peer will say nothing more: with HTTP/2 that is the end."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._port.disconnected(self)
            connection.lost()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        if self._connection is not None:
            self._connection.paused = True

    def resume_writing(self) -> None:
        """There is room again."""
        if self._connection is not None:
            self._connection.paused = False
            self._connection.floods.read()
            self.wake()

    # -- what there is to write ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have what there is to write written at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._later)

    def _later(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        if not connection.paused:
            out = connection.take()
            if out:
                transport.write(out)
            if connection.more and not connection.paused:
                self.wake()
                return
        if connection.closing and self._closing is None and not connection.out:
            self._closing = self._port.clock()
            transport.close()

    # -- the port's side ----------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Look after a connection that may be dead, or may not speak HTTP/2 at all."""
        connection, port = self._connection, self._port
        if connection is None:
            return
        if connection.closing:
            self._closing = self._closing or now
            if now - self._closing > LINGER_SECONDS:
                port.http2.connections_lingering += 1
                self.abort()
        elif not connection.began:
            if now - self._opened > port.handshake_seconds:
                port.http2.connections_silent += 1
                self.abort()
        elif self._asked is not None:
            if self._heard > self._asked:
                self._asked = None
            elif now - self._asked > port.keepalive_timeout:
                port.http2.connections_dead += 1
                self.abort()
        elif now - self._heard > port.keepalive:
            self._asked = now
            connection.ping()

    def drain(self) -> None:
        """Take no new streams, and close when the open ones are over."""
        if self._connection is not None:
            self._connection.drain()

    def settle(self) -> None:
        """Take no new streams from here on, whether the peer knows of it or not."""
        if self._connection is not None:
            self._connection.settle()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()
