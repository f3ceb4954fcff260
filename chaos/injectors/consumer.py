"""A slow consumer on NATS: a subscriber of everything that reads nothing, while filler comes on a subject of its own.

The server buffers for it, then drops it. What it must not do is to hold up the others.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life, seen

RECEIVE_BYTES = 4096
FILLER = "chaos.filler"
FILLER_BYTES = 32 * 1024
PAUSE_SECONDS = 0.01
"""Between two fillers: some 3 MB a second, which fills all buffers of the system in a few seconds."""
_GREETING = b'CONNECT {"verbose": false, "pedantic": false, "name": "chaos"}\r\n'


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """Beside the replicas, on the server of KV events (with the NATS plane that of the bookings too)."""

    target: str = field(default="nats", init=False)
    kind: str = field(default="slow-consumer", init=False)

    def describe(self) -> str:
        """One line for people."""
        return "subscribe to everything on nats and read nothing, while large messages pass on a subject of their own"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once bytes pile up unread; both connections are ended when left."""
        begun: list[_Idler] = []

        async def act() -> Evidence:
            idler = _Idler()
            begun.append(idler)
            await idler.start(running.cluster.nats)
            await seen(lambda: idler.unread >= RECEIVE_BYTES, what="unread bytes at the slow consumer")
            return {"unread": idler.unread}

        async def heal() -> Evidence:
            for idler in begun:
                await idler.stop()
                return {"filler_bytes": idler.filled, "dropped_by_server": idler.dropped}
            return {}

        return life(running, kind=self.kind, target=self.target, value={}, act=act, heal=heal)


def slow_consumer() -> SlowConsumer:
    """A subscriber that reads nothing."""
    return SlowConsumer()


class _Idler:
    def __init__(self) -> None:
        self.filled = 0
        self.dropped = False
        self._socket: socket.socket | None = None
        self._filling: asyncio.Task[None] | None = None

    @property
    def unread(self) -> int:
        """Bytes that wait in its socket."""
        if self._socket is None:
            return 0
        return int(struct.unpack("i", fcntl.ioctl(self._socket, termios.FIONREAD, b"\0" * 4))[0])

    async def start(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.setblocking(False)
        async with asyncio.timeout(5):
            await loop.sock_connect(self._socket, (host, int(port)))
            if not (await loop.sock_recv(self._socket, RECEIVE_BYTES)).startswith(b"INFO"):
                raise InjectionError(f"{address} does not speak NATS")
            await loop.sock_sendall(self._socket, _GREETING + b"SUB > 1\r\n")
            reader, writer = await asyncio.open_connection(host, int(port))
        self._filling = asyncio.create_task(self._fill(reader, writer), name="filler for the slow consumer")

    async def _fill(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = b"PUB %s %d\r\n%s\r\n" % (FILLER.encode(), FILLER_BYTES, b"x" * FILLER_BYTES)
        answering = asyncio.create_task(self._answer(reader, writer))
        try:
            writer.write(_GREETING)
            while True:
                writer.write(message)
                await writer.drain()
                self.filled += FILLER_BYTES
                await asyncio.sleep(PAUSE_SECONDS)
        except OSError:
            pass  # the server went away by somebody else's fault
        finally:
            answering.cancel()
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")

    async def stop(self) -> None:
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        if self._socket is None:
            return
        try:
            while self._socket.recv(1024 * 1024):
                pass
            self.dropped = True
        except BlockingIOError:
            pass
        except OSError:
            self.dropped = True
        self._socket.close()
        self._socket = None
