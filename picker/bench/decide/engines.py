"""Many engines in one process, as far as a picker and a gateway see them: metrics, models, and an answer to a request.

Each has an address of loopback of its own, all have one port. Nothing is computed: pages are written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from types import TracebackType
from typing import Self, cast

from picker.sim.engine.engine import Engine
from picker.sim.engine.metrics import Page
from picker.sim.engine.options import Options
from picker.sim.model import MODEL
from picker.sim.processes import free_ports

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "root": MODEL, "parent": None}]}
_ANSWER = {"id": "bench", "object": "chat.completion", "choices": [], "usage": {"prompt_tokens": 1}}


class Engines:
    """So many engines; ``async with`` lets them listen."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._server: asyncio.Server | None = None
        self.addresses: list[str] = []
        self.scrapes = 0
        self.requests = 0

    async def __aenter__(self) -> Self:
        pages = {
            b"/metrics": _response("text/plain; version=0.0.4", Page(Engine(Options())).text()),
            b"/v1/models": _response("application/json", json.dumps(_MODELS).encode()),
            b"": _response("application/json", json.dumps(_ANSWER).encode()),
        }
        (port,) = free_ports(1)
        hosts = [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(self._count)]
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Client(self, pages), hosts, port, family=socket.AF_INET, backlog=64
        )
        self.addresses = [f"{host}:{port}" for host in hosts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 5)


class _Client(asyncio.Protocol):
    """One connection: requests are answered in their order once they are there to their end."""

    def __init__(self, engines: Engines, pages: dict[bytes, bytes]) -> None:
        self._engines = engines
        self._pages = pages
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (head := self._data.find(_HEAD_END)) >= 0:
            end = end_of_body(self._data, head + len(_HEAD_END))
            if end < 0:
                return
            path = self._data[:head].split(b" ", 2)[1]
            self._data = self._data[end:]
            if path in self._pages:
                self._engines.scrapes += 1
            else:
                self._engines.requests += 1
            if self._transport is not None:
                self._transport.write(self._pages.get(path, self._pages[b""]))


def end_of_body(data: bytes, begin: int) -> int:
    """Where a request that begins with ``data`` ends; negative: not there yet."""
    head = data[:begin].lower()
    if (at := head.find(b"content-length:")) >= 0:
        end = begin + int(head[at + 15 : head.index(b"\r", at)])
        return end if len(data) >= end else -1
    if b"transfer-encoding: chunked" in head:
        last = data.find(_LAST_CHUNK, begin)
        return last + len(_LAST_CHUNK) if last >= 0 else -1
    return begin


def _response(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
