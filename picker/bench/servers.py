"""The real servers that a bench measures: started on loopback from their wheels, watched, and stopped with it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from picker.bench.timing import process_cpu_ns
from picker.sim.processes import Children, Program
from picker.sim.programs import free_addresses, nats, valkey

POOL = "bench/plane"
BACKENDS = ("valkey", "nats-memory", "nats-file")


@dataclass(frozen=True, slots=True)
class Server:
    """One server that runs."""

    name: str
    """What its figures are called by: the backend, and with NATS the kind of storage."""
    address: str
    url: str
    """The plane's URL on it."""
    pid: int

    def cpu_ns(self) -> int:
        """CPU time that the server has taken since its start, in nanoseconds."""
        return process_cpu_ns(self.pid)

    async def cpu_settled_ns(self) -> int:
        """The same once the server has gone back to sleep after its last answer."""
        await asyncio.sleep(0.0005)
        return self.cpu_ns()


@asynccontextmanager
async def running(backend: str) -> AsyncIterator[Server]:
    """Start the server of a backend, one of `BACKENDS`; stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="picker-bench-") as folder:
        (address,) = free_addresses(1)
        program = _program(backend, address, Path(folder))
        async with Children(Path(folder), say=lambda _: None) as children:
            child = await children.start(program)
            yield Server(backend, address, _url(backend, address), child.pid)


def _program(backend: str, address: str, folder: Path) -> Program:
    return valkey(address, folder) if backend == "valkey" else nats(address, folder)


def _url(backend: str, address: str) -> str:
    if backend == "valkey":
        return f"redis://{address}"
    return f"nats://{address}/?storage={backend.removeprefix('nats-')}"
