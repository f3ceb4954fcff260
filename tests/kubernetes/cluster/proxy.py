"""ClusterIPs: each connection to one goes to an endpoint drawn at random, and stays there, as with kube-proxy."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from tests.kubernetes.cluster.services import Services

_BYTES = 1 << 18
Address = tuple[str, int]


class ClusterIps:
    """Listens on every port of every ClusterIP, while its Service is there."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._changed = asyncio.Event()
        self._servers: dict[Address, asyncio.Server] = {}
        self._behind: dict[Address, frozenset[Address]] = {}

    def changed(self) -> None:
        """Something about Services is different."""
        self._changed.set()

    async def run(self, services: Services) -> None:
        """Follow the Services until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._behind = {
                    (service.cluster_ip, number): endpoints
                    for service in services.all.values()
                    if service.cluster_ip
                    for number, endpoints in service.ports.values()
                }
                await self._listen()
        finally:
            for server in self._servers.values():
                server.close()

    async def _listen(self) -> None:
        for address in self._servers.keys() - self._behind.keys():
            self._servers.pop(address).close()
        for address in self._behind.keys() - self._servers.keys():
            try:
                self._servers[address] = await asyncio.start_server(self._pinned(address), *address)
            except OSError as error:
                self._say(f"ClusterIP {address}: {error}")

    def _pinned(
        self, address: Address
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def pin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            endpoints = sorted(self._behind.get(address, ()))
            try:
                far_reader, far_writer = await asyncio.wait_for(
                    asyncio.open_connection(*random.choice(endpoints)), 5
                )
            except (OSError, TimeoutError, IndexError):
                writer.transport.abort()
                return
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

        return pin


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, and its end; a broken side breaks the other."""
    try:
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        with contextlib.suppress(Exception):
            writer.transport.abort()
