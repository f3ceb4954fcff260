"""A whole local cluster, started as a user starts it: `picker up`, and what its ports file says."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from picker.sim.agreement import Observer
from picker.sim.programs import Replica, Worker


def lives(pid: int) -> bool:
    """Whether a process of that id runs (a zombie does not)."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@dataclass(frozen=True, slots=True)
class Up:
    """A running `picker up`."""

    process: subprocess.Popen[bytes]
    file: Path
    log: Path

    @property
    def ports(self) -> dict[str, Any]:
        """The ports file as it is now."""
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    @property
    def pids(self) -> list[int]:
        """Every process that the ports file names."""
        ports = self.ports
        named = [*ports["replicas"], *ports["workers"], ports["plane"], ports["nats"]]
        return [each["pid"] for each in named if each["pid"]]

    def replicas(self) -> list[Replica]:
        """The replicas of the ports file."""
        return [
            Replica(each["name"], each["extproc"], each["health"], each["admin"])
            for each in self.ports["replicas"]
        ]

    def workers(self) -> list[Worker]:
        """The engines of the ports file."""
        return [Worker(each["name"], each["address"], "", "", "", "") for each in self.ports["workers"]]


@contextmanager
def picker_up(folder: Path, *arguments: str) -> Iterator[Up]:
    """`picker up` until the block is left; it must be ready within 60 s."""
    file, log = folder / "ports.json", folder / "up.log"
    argv = [
        sys.executable,
        "-m",
        "picker",
        "up",
        "--ports-file",
        str(file),
        "--logs",
        str(folder / "logs"),
        *arguments,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield Up(process, file, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Three replicas, four engines, Valkey, NATS, Envoy; one for all tests, each leaves it whole."""
    with picker_up(
        tmp_path_factory.mktemp("up"), "--replicas", "3", "--workers", "4", "--plane", "redis"
    ) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
def observer(session: aiohttp.ClientSession) -> Observer:
    """Asks replicas and engines what they hold."""
    return Observer(session)
