"""A real NATS server on loopback, and the harness of the planes on it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from nats.aio.client import Client

from stateplane.booking import Owner, Rules
from stateplane.nats.address import Names
from stateplane.nats.plane import NatsPlane
from stateplane.plane import StatePlane
from stateplane.testing import RULES

NATS_SERVER = Path(sys.executable).parent / "nats-server"


class Server:
    """One server on a port of its own; it can be killed, frozen and started again."""

    def __init__(self, folder: Path, *arguments: str, jetstream: bool = True) -> None:
        self.folder = folder
        self.arguments = (*arguments, *(("-js", "-sd", str(folder / "store")) if jetstream else ()))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, options: str = "") -> str:
        return f"nats://{self.where}/{options}"

    def start(self) -> None:
        command = [str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self.port), *self.arguments]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    if probe.recv(4):
                        return
            except OSError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.01)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self) -> None:
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def freeze(self) -> None:
        """Return once the kernel has stopped all of it."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        while not all(told.rpartition(")")[2].split()[0] == "T" for told in _stats(tasks)):
            time.sleep(0.001)

    async def client(self) -> Client:
        client = Client()
        await client.connect([f"nats://{self.where}"], allow_reconnect=False, connect_timeout=5)
        return client


def _stats(tasks: Path) -> list[str]:
    return [(task / "stat").read_text() for task in tasks.iterdir()]


class Clock:
    """The server's clock of one pool as its planes read it: each step counts from the next message of the log on."""

    def __init__(self, base: int = 0) -> None:
        self.steps: list[tuple[int, int]] = [(0, base)]

    @property
    def offset(self) -> int:
        return self.steps[-1][1]

    def step(self, after: int, milliseconds: int) -> None:
        self.steps.append((after, self.offset + milliseconds))

    def restart(self) -> None:
        self.steps = [(0, self.offset)]

    def read(self, sequence: int, milliseconds: int) -> int:
        return milliseconds + next(offset for after, offset in reversed(self.steps) if sequence > after)


class NatsHarness:
    """Planes on a real server. Its clock is moved by moving what the planes read of it."""

    timeout = 1.0

    def __init__(
        self, server: Server, storage: str, *, rules: Rules = RULES, checkpoint_every: int = 8
    ) -> None:
        self.server = server
        self.storage = storage
        self.rules = rules
        self.checkpoint_every = checkpoint_every
        self.clocks: dict[str, Clock] = {}
        self.planes: list[NatsPlane] = []
        self.frozen = False
        self._base = 0
        self._client: Client | None = None

    def open(self, owner: Owner, *, pool: str) -> StatePlane:
        clock = self.clocks.setdefault(pool, Clock(self._base))
        plane = NatsPlane(
            self.server.url(f"?storage={self.storage}"), pool=pool, owner=owner, rules=self.rules,
            timeout=self.timeout, stamp=clock.read, checkpoint_every=self.checkpoint_every,
        )  # fmt: skip
        self.planes.append(plane)
        return plane

    async def client(self) -> Client:
        if self._client is None or not self._client.is_connected:
            self._client = await self.server.client()
        return self._client

    async def last(self, pool: str) -> int:
        """The number of the log's last message."""
        jetstream = (await self.client()).jetstream(timeout=5)
        info = await jetstream.stream_info(Names.of(pool).log)
        return int(info.state.last_seq)

    async def move_clock(self, seconds: float) -> None:
        self._base += round(seconds * 1000)
        for pool, clock in self.clocks.items():
            clock.step(await self.last(pool), round(seconds * 1000))

    async def restart(self, *, lose: bool) -> None:
        if not lose and self.storage == "memory":
            await self.begin_anew()
            return
        self.server.kill()
        if lose:
            self.server.wipe()
            for clock in self.clocks.values():
                clock.restart()
        self.server.start()

    async def begin_anew(self) -> None:
        """What a server in a cluster does that lost the tail of its log: the ends and leases before it are kept."""
        for pool in self.clocks:
            plane = next(one for one in self.planes if one._log._names == Names.of(pool))
            fold = await plane._log.level()
            assert fold.ledger is not None
            run, schema = f"{fold.life} lost {fold.epoch}", fold.writes()
            data = plane._log._begin_message(run, fold.epoch + 1, schema=schema, lose=False)
            await (await self.client()).jetstream(timeout=5).publish(Names.of(pool).subject, data)

    async def stop(self) -> None:
        self.server.kill()

    async def freeze(self) -> None:
        self.server.freeze()
        self.frozen = True

    async def thaw(self) -> None:
        if self.frozen:
            self.server.signal(signal.SIGCONT)
            self.frozen = False

    async def forget_history(self) -> None:
        for plane in self.planes:
            plane._log.forget()

    async def close(self) -> None:
        await self.thaw()
        for plane in self.planes:
            await plane.close()
        if self._client is not None:
            await self._client.close()
