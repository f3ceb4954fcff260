"""A TCP proxy between two parts, which can be made slow, narrow, deaf, mute or rude while it runs.

What it cannot do: lose or reorder single packets (TCP would mend that anyway), and leave a dial without an answer
(the kernel completes the handshake of a listening port). Where the upstream does not take the connection, who dialled
sees it established and reset at once, instead of refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from chaos.injectors.lane import WAYS, Conditions, Filter, Flow, Lane, Way

MOST_CONNECTIONS = 4096
DIAL_SECONDS = 5.0
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Counts:
    """What happened to connections."""

    connections: int = 0
    """Taken, since the start."""
    resets: int = 0
    """Cut by us, because a fault says so or bytes of theirs were lost."""
    unheard: int = 0
    """Taken while nothing passes, so not dialled at the time."""
    undialled: int = 0
    """The upstream did not take them."""
    too_many: int = 0


class TcpWire:
    """One listening port whose connections go on to one upstream. Made by ``open``; ``close`` ends all of it."""

    def __init__(self, *, listen: str, upstream: str, name: str, seed: int = 0) -> None:
        self.listen, self.upstream, self.name = listen, upstream, name
        self.there, self.back = Lane(), Lane()
        self.counts = Counts()
        self.reset_after: float | None = None
        """Every connection made from now on is cut after so many seconds."""
        self.seed = seed
        self._server: asyncio.Server | None = None
        self._claim: socket.socket | None = None
        self._connections: dict[asyncio.Task[Any], _Connection] = {}
        self._closed = False

    @classmethod
    async def open(cls, *, listen: str, upstream: str, name: str, seed: int = 0) -> Self:
        """Listen and pass everything on unchanged; port 0 of ``listen`` takes a free one. ``seed``: of the jitter.

        Raises OSError when the port cannot be had.
        """
        wire = cls(listen=listen, upstream=upstream, name=name, seed=seed)
        host, port = _split(listen)
        # bound, never listening: the port stays ours while dials are refused
        wire._claim = socket.socket()
        wire._claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wire._claim.bind((host, port))
            wire.listen = f"{host}:{wire._claim.getsockname()[1]}"
            await wire.refuse(False)
        except BaseException:
            wire._claim.close()
            raise
        return wire

    @property
    def open_connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    @property
    def refusing(self) -> bool:
        """Whether a dial is refused."""
        return self._server is None

    def lane(self, way: Way) -> Lane:
        """The direction of that name."""
        return self.there if way == "there" else self.back

    def set(self, way: Way, **conditions: Any) -> None:
        """Change some conditions of a direction, see `Conditions`; running connections feel it at once."""
        lane = self.lane(way)
        lane.conditions = replace(lane.conditions, **conditions)

    def mend(self) -> int:
        """Be unimpaired again, but for refusing; connections that lost bytes are cut. How many these were."""
        self.reset_after = None
        for way in WAYS:
            self.lane(way).conditions = Conditions()
        return self.cut_torn()

    def cut_torn(self) -> int:
        """Cut the connections that lost bytes: their streams have holes. How many these were."""
        return self._cut(lambda connection: connection.torn)

    def reset(self) -> int:
        """Cut every running connection on both sides (RST). How many these were."""
        return self._cut(lambda _: True)

    async def refuse(self, refuse: bool) -> None:
        """Whether new dials are refused; running connections go on."""
        if refuse and self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)
        elif not refuse and self._server is None and not self._closed:
            host, port = _split(self.listen)
            self._server = await asyncio.start_server(
                self._take, host, port, reuse_address=True, backlog=1024
            )

    async def close(self) -> None:
        """Stop listening, cut what runs. Never raises."""
        self._closed = True
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._claim is not None:
            self._claim.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next round

    def sieve(self, way: Way, flow: Flow) -> Filter:
        """What one direction of a new connection does with its bytes."""
        del way, flow
        return Filter()

    def _cut(self, which: Callable[[_Connection], bool]) -> int:
        cut = [task for task, connection in self._connections.items() if which(connection) and task.cancel()]
        self.counts.resets += len(cut)
        return len(cut)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if self._closed or task is None or len(self._connections) >= MOST_CONNECTIONS:
            self.counts.too_many += not self._closed
            _abort(writer)
            return
        self.counts.connections += 1
        connection = _Connection(self, self.counts.connections)
        self._connections[task] = connection
        try:
            await connection.run(reader, writer)
        except asyncio.CancelledError:
            pass  # cut; a task of the server's own must not end as cancelled
        finally:
            del self._connections[task]


class _Connection:
    def __init__(self, wire: TcpWire, number: int) -> None:
        self._wire = wire
        self._flows = {
            way: Flow(wire.lane(way), random.Random(f"{wire.seed}/{wire.name}/{number}/{way}"))
            for way in WAYS
        }
        self._deaf = False

    @property
    def torn(self) -> bool:
        """Whether it cannot go on, for bytes of it are lost."""
        return self._deaf or any(flow.torn for flow in self._flows.values())

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass both ways until both ends have ended; a connection that breaks is cut on both sides."""
        writers = [writer]
        try:
            async with asyncio.timeout(self._wire.reset_after) as patience:
                upstream = await self._dial()
                if upstream is not None:
                    writers.append(upstream[1])
                    await self._pass(reader, writer, *upstream)
                    for each in writers:
                        each.close()
                    writers = []
        except TimeoutError:
            self._wire.counts.resets += patience.expired()
        except OSError:
            await self._untold()
        finally:
            for each in writers:
                _abort(each)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        wire = self._wire
        there = wire.there
        if there.conditions.swallow or there.conditions.pause:
            wire.counts.unheard += 1
        if there.conditions.swallow:
            self._deaf = True
            there.counts.swallowed += 1
            await asyncio.Event().wait()  # until it is cut
        if there.conditions.pause:
            there.counts.paused += 1
        await there.opened()
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await asyncio.open_connection(*_split(wire.upstream))
        except (TimeoutError, OSError):
            wire.counts.undialled += 1
            return None

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        there, back = self._flows["there"], self._flows["back"]
        work = (
            there.fill(reader, self._wire.sieve("there", there)),
            there.drain(up_writer),
            back.fill(up_reader, self._wire.sieve("back", back)),
            back.drain(writer),
        )
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _untold(self) -> None:
        """One side is gone; while nothing passes the other does not hear of it."""
        lanes = (self._wire.there, self._wire.back)
        while any(lane.conditions.swallow or lane.conditions.pause for lane in lanes):
            for lane in lanes:
                if lane.conditions.swallow or lane.conditions.pause:
                    await lane.change()


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
