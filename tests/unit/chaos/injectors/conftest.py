"""A running cluster as injectors see it, made of wires alone; and a server that echoes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from chaos.injectors import Fault, Names, Wire
from chaos.injectors.wire import TcpWire


class Stage:
    """A `chaos.injectors.Running` that notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.cluster: Any = None
        self.folder = folder
        self.open_wires: dict[str, Wire] = {}
        self.names: Names | None = None
        self.told: list[Fault] = []
        self._lives: Counter[str] = Counter()

    @property
    def wires(self) -> Mapping[str, Wire]:
        return self.open_wires

    def resolve(self, target: str) -> str:
        return target

    def pid(self, target: str) -> int:
        raise KeyError(target)

    def fault_id(self, kind: str, target: str) -> str:
        self._lives[f"{kind} {target}"] += 1
        return f"{kind} {target} #{self._lives[f'{kind} {target}']}"

    def tell(self, fault: Fault) -> None:
        self.told.append(fault)

    @property
    def phases(self) -> list[str]:
        return [fault.phase for fault in self.told]


class Echo:
    """Sends back what it gets; knows what it got and how its connections ended."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.connections = 0
        self.ends: list[str] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                await self.reads.wait()
                data = await reader.read(65_536)
                if not data:
                    break
                self.got += data
                writer.write(data)
                await writer.drain()
            self.ends.append("end")
            writer.close()
        except OSError as error:
            self.ends.append(type(error).__name__)
            writer.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def wire(echo: Echo, stage: Stage) -> AsyncIterator[TcpWire]:
    """Before the echo; the stage knows it as ``a>b``. Nothing of it may be left when it is closed."""
    before = asyncio.all_tasks()
    opened = await TcpWire.open(listen="127.0.0.1:0", upstream=echo.address, name="a>b", seed=7)
    stage.open_wires["a>b"] = opened
    yield opened
    await opened.close()
    ours = {asyncio.current_task(), *before}
    left = {task for task in asyncio.all_tasks() if task not in ours and "Echo._serve" not in repr(task)}
    assert not left
    assert opened.open_connections == 0
