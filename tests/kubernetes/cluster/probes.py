"""Probes as a kubelet asks them: HTTP, TCP, gRPC health, and commands inside the container."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

import aiohttp
import grpc

from tests.kubernetes.cluster.api import Object

_SERVING = b"\x08\x01"


class Prober:
    """Asks the containers of one pod at its address; an asynchronous context manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()
        if self._session is not None:
            await self._session.close()

    async def ask(self, probe: Object, container: Object, pid: int) -> bool:
        """Whether it is answered well, in its `timeoutSeconds`. A hook (`preStop`) is asked in the same way."""
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1) if "periodSeconds" in probe else None):
                if "grpc" in probe:
                    return await self._grpc(probe["grpc"])
                if "httpGet" in probe:
                    return await self._http(probe["httpGet"], container)
                if "tcpSocket" in probe:
                    return await self._tcp(probe["tcpSocket"], container)
                return await _exec(probe["exec"]["command"], pid)
        except (OSError, TimeoutError, aiohttp.ClientError, grpc.RpcError):
            return False

    async def _http(self, get: Object, container: Object) -> bool:
        assert self._session is not None
        scheme = get.get("scheme", "HTTP").lower()
        url = f"{scheme}://{self.address}:{_port(container, get['port'])}{get.get('path', '/')}"
        headers = {each["name"]: each["value"] for each in get.get("httpHeaders", ())}
        async with self._session.get(url, headers=headers) as response:
            return 200 <= response.status < 400

    async def _tcp(self, socket: Object, container: Object) -> bool:
        _, writer = await asyncio.open_connection(self.address, _port(container, socket["port"]))
        writer.close()
        return True

    async def _grpc(self, health: Object) -> bool:
        port, service = health["port"], (health.get("service") or "").encode()
        if port not in self._channels:
            # a channel of gRPC waits longer and longer between attempts; a kubelet dials anew each time
            options = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.min_reconnect_backoff_ms", 200)]
            options.append(("grpc.initial_reconnect_backoff_ms", 200))
            self._channels[port] = grpc.aio.insecure_channel(f"{self.address}:{port}", options=options)
        check: Any = self._channels[port].unary_unary("/grpc.health.v1.Health/Check")
        question = b"\x0a" + bytes([len(service)]) + service if service else b""
        answer: bytes = await check(question)
        return answer == _SERVING


async def _exec(command: list[str], pid: int) -> bool:
    """A command where the container's process is; it ends with the probe."""
    process = await asyncio.create_subprocess_exec(
        "nsenter", "--target", str(pid), "--net", "--mount", "--root", "--", *command,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _port(container: Object, port: int | str) -> int:
    if isinstance(port, int):
        return port
    return int(next(each["containerPort"] for each in container["ports"] if each.get("name") == port))
