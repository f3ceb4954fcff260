"""A port of a pod on loopback, through the API server: what `kubectl port-forward` does, without kubectl.

Each TCP connection is a WebSocket of its own (subprotocol ``v4.channel.k8s.io``). Its binary messages begin with a
channel number: 0 carries the port's bytes, 1 what went wrong; each channel's first message is the port's number.
In the pod the connection comes over loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import aiohttp

from chaos.targets.kube.server import Server
from discovery.kubernetes.api import ApiError

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
_PIECE = 1 << 16


class Forward:
    """Listens on loopback and passes every connection on to one port of one pod. ``fault`` is what was last wrong."""

    def __init__(self, server: Server, *, namespace: str, pod: str, port: int) -> None:
        self._server = server
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward"
        self._port = port
        self._listening: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self.address = ""
        """``host:port`` of the near end."""
        self.fault = ""

    async def open(self) -> None:
        """Listen on a free port."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening, cut what runs. Never raises."""
        if self._listening is not None:
            self._listening.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass_on(reader, writer)
        except ApiError as error:
            self.fault = str(error)
        except (OSError, aiohttp.ClientError) as error:
            self.fault = f"{type(error).__name__}: {error}"
        except asyncio.CancelledError:
            pass  # `close` cuts what runs; nobody awaits this task
        finally:
            self._passing.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket = await self._server.dial(self._path, protocol=PROTOCOL, query={"ports": self._port})
        try:
            out = asyncio.create_task(_send(reader, socket))
            try:
                await self._receive(socket, writer)
            finally:
                out.cancel()
                await asyncio.gather(out, return_exceptions=True)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await socket.close()

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        begun: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[2:]
            if channel == ERROR and data:
                self.fault = data.decode(errors="replace")[:300]
                return
            if channel == DATA and data:
                writer.write(data)
                await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while piece := await reader.read(_PIECE):
        await socket.send_bytes(bytes([DATA]) + piece)


class Forwards:
    """One forward for each port of each pod that is asked for, opened when it first is."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: dict[tuple[str, str, int], Forward] = {}

    async def to(self, namespace: str, pod: str, port: int) -> str:
        """``host:port`` on loopback that leads there."""
        key = (namespace, pod, port)
        if key not in self._open:
            forward = Forward(self._server, namespace=namespace, pod=pod, port=port)
            await forward.open()
            self._open[key] = forward
        return self._open[key].address

    async def leave(self, gone: Callable[[str, str], bool]) -> None:
        """Close those to pods that are gone; ``gone`` is asked by namespace and name."""
        for key in [key for key in self._open if gone(key[0], key[1])]:
            await self._open.pop(key).close()

    @property
    def faults(self) -> list[str]:
        """What went wrong last, by pod."""
        return [f"{pod}: {each.fault}" for (_, pod, _), each in self._open.items() if each.fault]

    async def close(self) -> None:
        """Close all."""
        for forward in self._open.values():
            await forward.close()
        self._open.clear()
