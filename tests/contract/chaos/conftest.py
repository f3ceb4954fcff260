"""Real servers as children of a small cluster, and a stage that injectors act on."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.injectors import Fault, Names, Wire, clock
from chaos.injectors.nats import NatsWire
from chaos.injectors.wire import TcpWire
from picker.sim import programs
from picker.sim.cluster import Cluster
from picker.sim.processes import Child, Children, Program

FOLDER = Path(__file__).parent


class Servers:
    """What injectors ask of a cluster, with servers alone in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children = Children(folder, say=lambda _line: None, restart_seconds=0.2)
        addresses = programs.free_addresses(6)
        self.nats, self.valkey = next(addresses), next(addresses)
        self.spare = addresses
        self.replicas: list[programs.Replica] = []
        self.workers: list[programs.Worker] = []

    @property
    def plane_address(self) -> str:
        return self.valkey

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, revive: bool = False) -> None:
        await self.children.kill(name, number, revive=revive)

    async def restart(self, name: str) -> None:
        await self.children.restart(name)


class Stage:
    """A `chaos.injectors.Running` over real servers."""

    def __init__(self, folder: Path) -> None:
        self.servers = Servers(folder)
        self.folder = folder
        self.open_wires: dict[str, Wire] = {}
        self.names: Names | None = None
        self.told: list[Fault] = []
        self._lives: Counter[str] = Counter()

    @property
    def cluster(self) -> Cluster:
        return cast("Cluster", self.servers)

    @property
    def wires(self) -> Mapping[str, Wire]:
        return self.open_wires

    def resolve(self, target: str) -> str:
        return self.servers.children["valkey" if target == "plane" else target].name

    def pid(self, target: str) -> int:
        return self.servers.children[self.resolve(target)].pid

    def fault_id(self, kind: str, target: str) -> str:
        self._lives[f"{kind} {target}"] += 1
        return f"{kind} {target} #{self._lives[f'{kind} {target}']}"

    def tell(self, fault: Fault) -> None:
        self.told.append(fault)

    @property
    def phases(self) -> list[str]:
        return [fault.phase for fault in self.told]

    def evidence(self, phase: str) -> Mapping[str, Any]:
        return next(fault.value for fault in self.told if fault.phase == phase)

    async def start(self, program: Program, *, clocked: bool = False) -> Child:
        if clocked:
            more = clock.environment(self.folder, program.name)
            program = replace(program, environment={**program.environment, **more})
        return await self.servers.children.start(program)

    async def start_nats(self) -> Child:
        return await self.start(programs.nats(self.servers.nats, self.folder))

    async def start_valkey(self, *, clocked: bool = False) -> Child:
        return await self.start(programs.valkey(self.servers.valkey, self.folder), clocked=clocked)

    async def wire(self, link: str, upstream: str) -> TcpWire:
        opened = await TcpWire.open(listen="127.0.0.1:0", upstream=upstream, name=link, seed=7)
        self.open_wires[link] = opened
        return opened

    async def nats_wire(self, link: str) -> NatsWire:
        opened = await NatsWire.open(listen="127.0.0.1:0", upstream=self.servers.nats, name=link, seed=7)
        self.open_wires[link] = opened
        return opened

    async def close(self) -> None:
        for wire in self.open_wires.values():
            await wire.close()
        await self.servers.children.close()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Nothing runs on it yet; whatever was started on it is ended."""
    made = Stage(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def eventually() -> Callable[..., Coroutine[Any, Any, None]]:
    """Waits until a look is true."""

    async def wait(look: Callable[[], object], *, within: float = 10.0) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while not look():
            assert loop.time() < until, "not in time"
            await asyncio.sleep(0.01)

    return wait
