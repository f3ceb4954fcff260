"""A real replica, or several, with what they need: a plane, NATS, a file of workers, engines that answer scrapes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Literal

import aiohttp

from picker.bench.decide.engines import Engines
from picker.bench.decide.script import PATH, prompts
from picker.bench.timing import process_cpu_ns, process_rss_bytes
from picker.prompts import prompt_of
from picker.requests.ask import TokenIds
from picker.requests.reading import read
from picker.requests.tokens import Tokens
from picker.settings import RequestSettings
from picker.sim import programs
from picker.sim.model import DIRECTORY
from picker.sim.processes import Children, Program

Transport = Literal["native", "grpcio"]
Plane = Literal["off", "eventual", "atomic", "eventual-nats"]
TRANSPORTS: tuple[Transport, ...] = ("native", "grpcio")
PLANES: tuple[Plane, ...] = ("off", "eventual", "atomic", "eventual-nats")
BLOCK_SIZE = 16
POOL = f"{programs.POOL_NAMESPACE}/{programs.POOL_NAME}"
METRICS_SECONDS = 60.0
"""How long a replica's metrics page may take: one that is overloaded answers when it has caught up."""
SCRAPES_A_SECOND = 200.0
"""Most scrapes that a bench asks of one replica: with many workers each is scraped less often."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a decision is made in."""

    transport: Transport = "native"
    plane: Plane = "off"
    workers: int = 64
    replicas: int = 1
    index_blocks: int = 0
    """Blocks in the index besides those of the prompts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further ``PICKER_*`` variables."""

    @property
    def scrape_seconds(self) -> float:
        """Between two scrapes of a worker: the default, or what `SCRAPES_A_SECOND` allows."""
        return max(0.5, self.workers / SCRAPES_A_SECOND)

    def variables(self) -> dict[str, str]:
        """What the replicas are told beyond where everything is."""
        return {
            "PICKER_TRANSPORT": self.transport,
            "PICKER_SYNC": {"off": "isolated", "eventual-nats": "eventual"}.get(self.plane, self.plane),
            "PICKER_BLOCK_SIZE": str(BLOCK_SIZE),
            "PICKER_SCRAPE_SECONDS": f"{self.scrape_seconds:g}",
            "PICKER_REPORT_STALE_SECONDS": f"{4 * self.scrape_seconds + 3:g}",
            "PICKER_DRAIN_MIN_SECONDS": "0",
            "PICKER_DRAIN_MAX_SECONDS": "1",
            "PICKER_LOG_FORMAT": "json",
            **self.settings,
        }


@dataclass(slots=True)
class Stand:
    """What runs."""

    kind: Kind
    replicas: list[programs.Replica]
    children: Children
    engines: Engines
    nats_url: str
    plane_server: str

    @property
    def addresses(self) -> list[str]:
        """Where ext_proc is served."""
        return [replica.extproc for replica in self.replicas]

    def watched(self) -> dict[str, int]:
        """Process ids by name: every replica, and ``plane`` where there is one."""
        found = {replica.name: self.children[replica.name].pid for replica in self.replicas}
        return found | ({"plane": self.children[self.plane_server].pid} if self.plane_server else {})

    def pids(self) -> list[int]:
        """Process ids of the replicas."""
        return [self.children[replica.name].pid for replica in self.replicas]

    def rss_mb(self) -> float:
        """Memory of the largest replica, in MB."""
        return round(max(process_rss_bytes(pid) for pid in self.pids()) / 1e6, 1)

    async def idle_share(self, seconds: float) -> float:
        """Processor time of one replica without any request, as a share of a core (mean over the replicas)."""
        before, begun = [process_cpu_ns(pid) for pid in self.pids()], monotonic()
        await asyncio.sleep(seconds)
        taken = [now - then for now, then in zip(map(process_cpu_ns, self.pids()), before, strict=True)]
        return sum(taken) / 1e9 / (monotonic() - begun) / len(taken)

    async def metrics(self, *names: str) -> dict[str, float]:
        """Series of the first replica's metrics page, summed over their labels."""
        found = dict.fromkeys(names, 0.0)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=METRICS_SECONDS)) as session,
            session.get(f"http://{self.replicas[0].admin}/metrics") as response,
        ):
            for line in (await response.text()).splitlines():
                name = line.partition("{")[0].partition(" ")[0]
                if name in found:
                    found[name] += float(line.rpartition(" ")[2])
        return found

    async def until(self, name: str, at_least: float, *, seconds: float = 60.0) -> None:
        """Wait until a series is so high. Raises TimeoutError that says what it was."""
        until = monotonic() + seconds
        while (value := (await self.metrics(name))[name]) < at_least:
            if monotonic() > until:
                raise TimeoutError(f"{name} is {value:g} after {seconds:g} s, not {at_least:g}")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def standing(
    kind: Kind, *, started_as: Callable[[Program], Program] = lambda program: program
) -> AsyncIterator[Stand]:
    """Start it all; stop it at the end. ``started_as`` may start a replica in another way.

    Raises ProcessError with the last words of what did not come up.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="picker-bench-")))
        children = await stack.enter_async_context(Children(folder, say=lambda _: None))
        engines = await stack.enter_async_context(Engines(kind.workers))
        addresses = programs.free_addresses(2 + 3 * kind.replicas)
        nats, valkey = next(addresses), next(addresses)
        await children.start(programs.nats(nats, folder))
        url = {"off": "memory://", "eventual-nats": f"nats://{nats}/?storage=memory"}.get(kind.plane)
        if url is None:
            url = f"redis://{valkey}"
            await children.start(programs.valkey(valkey, folder))
        workers = folder / "workers.json"
        workers.write_text(
            json.dumps({"workers": [{"address": each, "rank": 0} for each in engines.addresses]})
        )
        replicas = programs.replicas_at(addresses, kind.replicas)
        for replica in replicas:
            peers = [peer for peer in replicas if peer is not replica] if kind.plane != "off" else []
            program = programs.replica(
                replica,
                peers,
                plane_url=url,
                nats_url=f"nats://{nats}",
                workers_file=workers,
                settings=kind.variables(),
            )
            await children.start(started_as(program))
        server = {"off": "", "eventual-nats": "nats"}.get(kind.plane, "valkey")
        yield Stand(kind, replicas, children, engines, f"nats://{nats}", server)


async def hashes_of(size: int, count: int, *, seed: int) -> list[Sequence[int]]:
    """Sequence hashes of `prompts`, told by the product's own reading and tokenizer."""
    tokens = Tokens(RequestSettings(tokenizers=f"*={DIRECTORY}", tokenize_budget_seconds=10.0))
    running = asyncio.create_task(tokens.run())
    try:
        await tokens.loaded()
        found: list[Sequence[int]] = []
        for body in prompts(size, count, seed=seed):
            asked = read(PATH, {"content-type": "application/json"}, body)
            told = await tokens.ids(asked)
            if isinstance(told, TokenIds):
                found += prompt_of(asked, told, BLOCK_SIZE).hashes
        return found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        tokens.close()
