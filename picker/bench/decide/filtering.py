"""What a gateway's own ext_proc filter costs: the same requests through one Envoy, with the filter and without."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, cast

from picker.bench.decide.drive import Driven, cpu_of
from picker.bench.decide.rows import latency, middle
from picker.bench.decide.script import PATH, prompts
from picker.bench.decide.stand import Kind, standing
from picker.bench.fleet import Fleet, Stage
from picker.sim import programs
from picker.sim.envoy import Listener, envoy_config
from picker.sim.processes import Children

_LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class Asking:
    """One round of requests to a gateway."""

    address: str
    clients: int = 16
    seconds: float = 2.0
    warm: float = 0.5
    size: int = 1024
    watched: Mapping[str, int] = field(default_factory=dict)


class _Client(asyncio.Protocol):
    """One kept connection: the next request goes out when the answer to the last one is there."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self._requests = requests
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._begun = 0.0
        self._turn = 0
        self.measuring = False
        self.latencies: list[float] = []
        self.failed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.failed += 1

    def ask(self) -> None:
        """Send the next request."""
        self._begun = monotonic()
        self._turn += 1
        if self._transport is not None:
            self._transport.write(self._requests[self._turn % len(self._requests)])

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._data.lower().index(_LENGTH) + len(_LENGTH)
        length = int(self._data[at : self._data.index(b"\r", at)])
        if len(self._data) < head + 4 + length:
            return
        if self.measuring:
            self.latencies.append(monotonic() - self._begun)
            self.failed += not self._data.startswith(b"HTTP/1.1 200")
        self._data = b""
        self.ask()


async def ask_gateway(stage: Stage, asking: Asking) -> Driven:
    """The round in its process: each client asks, waits, and asks again."""
    requests = [_request(body) for body in prompts(asking.size, 32, seed=1)]
    host, _, port = asking.address.rpartition(":")
    loop = asyncio.get_running_loop()
    await stage.ready()
    made = [
        await loop.create_connection(lambda: _Client(requests), host, int(port))
        for _ in range(asking.clients)
    ]
    clients = [client for _, client in made]
    await asyncio.sleep(asking.warm)
    for client in clients:
        client.measuring = True
    before, begun = cpu_of(asking.watched), monotonic()
    await asyncio.sleep(asking.seconds)
    after, seconds = cpu_of(asking.watched), monotonic() - begun
    failed = sum(client.failed for client in clients)
    taken = [each for client in clients for each in client.latencies]
    for transport, _ in made:
        transport.abort()
    cpu = {name: after[name] - before[name] for name in before}
    return Driven(seconds, len(taken), failed, 0, taken, cpu)


def _request(body: bytes) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nhost: models.example.com\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def filtering(gate: Fleet, kind: Kind, *, rounds: int = 3, seconds: float = 2.0) -> dict[str, Any]:
    """With the filter and without, by turns; medians."""
    found: dict[bool, list[dict[str, float | None]]] = {True: [], False: []}
    async with standing(kind) as stand:
        addresses = programs.free_addresses(3)
        pool, plain, admin = next(addresses), next(addresses), next(addresses)
        listeners = [
            Listener("pool", int(pool.rpartition(":")[2])),
            Listener("plain", int(plain.rpartition(":")[2]), ext_proc=False),
        ]
        with tempfile.TemporaryDirectory(prefix="picker-bench-") as folder:
            config = Path(folder) / "envoy.json"
            made = envoy_config(
                listeners,
                stand.addresses,
                int(admin.rpartition(":")[2]),
                workers=stand.engines.addresses,
                access_log=False,
            )
            config.write_text(json.dumps(made))
            async with Children(Path(folder), say=lambda _: None) as children:
                envoy = await children.start(programs.envoy(config, admin))
                watched = {"envoy": envoy.pid, "picker": stand.pids()[0]}
                for number in range(2 * rounds):
                    filtered = bool(number % 2)
                    asking = Asking(pool if filtered else plain, seconds=seconds, watched=watched)
                    (driven,) = await gate.together(ask_gateway, [asking])
                    found[filtered].append(_shown(driven))
    return {
        "transport": kind.transport,
        "clients": Asking("").clients,
        "rounds": rounds,
        "with_filter": middle(found[True]),
        "without": middle(found[False]),
    }


def _shown(driven: Driven) -> dict[str, float | None]:
    done = max(driven.done, 1)
    return latency(driven) | {
        "envoy_cpu_us": round(driven.cpu_ns["envoy"] / 1e3 / done, 1),
        "picker_cpu_us": round(driven.cpu_ns["picker"] / 1e3 / done, 1),
        "per_s": round(driven.done / driven.seconds, 1),
        "failed": float(driven.failed),
    }
