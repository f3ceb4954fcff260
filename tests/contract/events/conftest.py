"""A real NATS server, a made-up engine on real ZMQ sockets, and the event path between it and two replicas."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import xxhash
import zmq
import zmq.asyncio
from pydantic import SecretStr

from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex
from picker.events.bridge.bridge import Bridge
from picker.events.subscriber import Subscriber
from picker.settings import BridgeSettings, EventSettings

POOL = "team.a/llama 3"
WORKER = "[fd00::1]:8000"
BLOCK = 4
NATS_SERVER = Path(sys.executable).parent / "nats-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """One real server on a fixed port, which can be killed and started again. ``configuration``: a file of it."""

    def __init__(self, configuration: Path | None = None) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._configuration = ["-c", str(configuration)] if configuration else []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self.port), *self._configuration,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(400):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.02)
        raise RuntimeError("nats-server does not accept connections")

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


class Engine:
    """An engine's cache and its two event sockets. Hashes are its own; ``truth`` says in ours what it holds."""

    def __init__(
        self, *, keep: int = 10_000, ports: tuple[int, int] | None = None, block_size: int = BLOCK
    ) -> None:
        self.keep = keep
        self.block_size = block_size
        self.ports = ports or (free_port(), free_port())
        self.events, self.replay = (f"tcp://127.0.0.1:{port}" for port in self.ports)
        self.salt = time.time_ns()
        self.next = 0
        self.buffer: list[tuple[int, bytes]] = []
        self.held: dict[int, tuple[int, ...]] = {}
        self.copies: dict[int, int] = {}
        self._context = zmq.asyncio.Context()
        self._pub = self._bind(zmq.PUB, self.events)
        self._router = self._bind(zmq.ROUTER, self.replay)
        self._task = asyncio.create_task(self._serve())

    def _bind(self, kind: int, endpoint: str) -> zmq.asyncio.Socket:
        bound = self._context.socket(kind)
        bound.set(zmq.LINGER, 0)
        bound.set(zmq.SNDHWM, 100_000)
        bound.bind(endpoint)
        return bound

    async def _serve(self) -> None:
        while True:
            identity, _, start = await self._router.recv_multipart()
            for number, payload in list(self.buffer):
                if number >= int.from_bytes(start, "big"):
                    frames = [identity, b"", b"topic", number.to_bytes(8, "big"), payload]
                    await self._router.send_multipart(frames)
            await self._router.send_multipart([identity, b"", b"", b"\xff" * 8, b""])

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._context.destroy(linger=0)

    async def emit(self, *events: object, lose: bool = False) -> None:
        """One batch. ``lose``: the live stream does not carry it, the replay does."""
        payload = msgspec.msgpack.encode([time.time(), list(events), 0])
        number = self.next
        self.next += 1
        self.buffer = [*self.buffer, (number, payload)][-self.keep :]
        if not lose:
            await self._pub.send_multipart([b"topic", number.to_bytes(8, "big"), payload])

    def chain(self, tokens: Sequence[int]) -> list[int]:
        """The engine's own hashes of a prompt's full blocks."""
        hashes: list[int] = []
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            raw = msgspec.msgpack.encode([self.salt, list(tokens[:end])])
            hashes.append(xxhash.xxh3_64_intdigest(raw))
        return hashes

    async def store(self, tokens: Sequence[int], *, lose: bool = False) -> None:
        """Compute a prompt: every block of it that is not held is stored, in one event."""
        hashes = self.chain(tokens)
        size = self.block_size
        first = next((n for n, each in enumerate(hashes) if each not in self.held), len(hashes))
        if first == len(hashes):
            return
        for n in range(first, len(hashes)):
            self.held[hashes[n]] = tuple(tokens[: (n + 1) * size])
            self.copies[hashes[n]] = self.copies.get(hashes[n], 0) + 1
        await self.emit(
            {
                "type": "BlockStored",
                "block_hashes": hashes[first:],
                "parent_block_hash": hashes[first - 1] if first else None,
                "token_ids": list(tokens[first * size : len(hashes) * size]),
                "block_size": size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
            },
            lose=lose,
        )

    async def evict(self, engine_hash: int, *, lose: bool = False) -> None:
        copies = self.copies.pop(engine_hash)
        del self.held[engine_hash]
        removed = {"type": "BlockRemoved", "block_hashes": [engine_hash] * copies, "medium": "GPU"}
        await self.emit(removed, lose=lose)

    async def clear(self) -> None:
        self.held.clear()
        self.copies.clear()
        await self.emit({"type": "AllBlocksCleared"})

    def truth(self, pool_block: int = BLOCK) -> frozenset[int]:
        """The prefix-closed part of what is held, as our sequence hashes."""
        closed: set[int] = set()
        for tokens in self.held.values():
            if all(each in self.held for each in self.chain(tokens)):
                closed.update(sequence_hashes(tokens, pool_block))
        return frozenset(closed)


class Replica:
    """A subscriber with its index."""

    def __init__(self, url: str, worker: str = WORKER, **settings: object) -> None:
        self.worker = worker
        self.index = PrefixIndex()
        self.stored: list[int] = []
        self.subscriber = Subscriber(
            EventSettings(nats_url=SecretStr(url), **{"recovery_timeout_seconds": 0.5} | settings),  # type: ignore[arg-type]
            POOL, self.index,
            clock=time.monotonic, on_stored=lambda _worker, hashes: self.stored.extend(hashes),
        )  # fmt: skip
        self.subscriber.watch(worker)
        self.task = asyncio.create_task(self.subscriber.run())

    @property
    def held(self) -> frozenset[int]:
        return self.index.held(self.worker)

    @property
    def recovered(self) -> bool:
        return self.subscriber.recovered(self.worker)

    @property
    def partial(self) -> bool:
        return self.subscriber.status().workers[self.worker].partial


class EventPath:
    """Everything between an engine and its replicas; ends all of it."""

    def __init__(self, nats: NatsServer) -> None:
        self.nats = nats
        self._engines: list[Engine] = []
        self._tasks: list[asyncio.Task[None]] = []

    def engine(self, **given: object) -> Engine:
        engine = Engine(**given)  # type: ignore[arg-type]
        self._engines.append(engine)
        return engine

    async def restart(self, engine: Engine) -> Engine:
        """The engine crashes and comes back on the same sockets, empty, counting from 0."""
        await engine.stop()
        self._engines.remove(engine)
        return self.engine(ports=engine.ports, keep=engine.keep, block_size=engine.block_size)

    def bridge(
        self, engine: Engine, *, replay: bool = True, events: dict[str, object] | None = None, **given: object
    ) -> tuple[Bridge, asyncio.Task[None]]:
        settings = BridgeSettings(
            bridge_events=engine.events, bridge_replay=engine.replay if replay else "",
            **{"bridge_worker": WORKER} | given,  # type: ignore[arg-type]
        )  # fmt: skip
        nats = EventSettings(nats_url=SecretStr(self.nats.url), **events or {})  # type: ignore[arg-type]
        bridge = Bridge(nats, settings, pool=POOL, block_size=BLOCK)
        task = asyncio.create_task(bridge.run())
        self._tasks.append(task)
        return bridge, task

    def replica(self, worker: str = WORKER, **settings: object) -> Replica:
        replica = Replica(self.nats.url, worker, **settings)
        self._tasks.append(replica.task)
        return replica

    async def end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def close(self) -> None:
        for task in self._tasks:
            await self.end(task)
        for engine in self._engines:
            await engine.stop()
        await self.nats.kill()


@pytest.fixture
async def path() -> AsyncIterator[EventPath]:
    nats = NatsServer()
    await nats.start()
    made = EventPath(nats)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def configured(tmp_path: Path) -> AsyncIterator[Callable[[str], object]]:
    """An event path over a server with this configuration."""
    made: list[EventPath] = []

    async def start(text: str) -> EventPath:
        file = tmp_path / "nats.conf"
        file.write_text(text)
        nats = NatsServer(file)
        await nats.start()
        made.append(EventPath(nats))
        return made[-1]

    try:
        yield start
    finally:
        for each in made:
            await each.close()


@pytest.fixture
def until() -> Callable[..., object]:
    """Wait until something is so; fail with what is so instead."""

    async def wait(
        holds: Callable[[], bool], seconds: float = 20.0, say: Callable[[], object] = lambda: ""
    ) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not so after {seconds} s: {say()}")
            await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def prompts() -> Callable[[int], list[int]]:
    """Prompts by number: 24 tokens, of which the first 8 are shared by all."""

    def prompt(number: int) -> list[int]:
        return list(range(8)) + [1000 * (number + 1) + each for each in range(16)]

    return prompt


@pytest.fixture
def free() -> Callable[[], int]:
    """A free port."""
    return free_port
