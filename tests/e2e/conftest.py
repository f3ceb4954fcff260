"""A whole local cluster, started as a user starts it: `picker up`, and what its ports file says."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from picker.sim.agreement import Observer
from picker.sim.ports import Ports


@dataclass(frozen=True, slots=True)
class Up:
    """A running `picker up`."""

    process: subprocess.Popen[bytes]
    ports: Ports
    log: Path


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
        yield Up(process, Ports(file), log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def start_up(tmp_path: Path) -> Callable[..., AbstractContextManager[Up]]:
    """Starts a cluster of one's own: ``with start_up("--replicas", "1") as running``."""
    return partial(picker_up, tmp_path)


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """Three replicas, four engines, Valkey, NATS, Envoy; one for all tests, each leaves it whole."""
    with picker_up(
        tmp_path_factory.mktemp("up"), "--replicas", "3", "--workers", "4", "--plane", "redis"
    ) as running:
        yield running.ports


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.fixture
def observer(session: aiohttp.ClientSession) -> Observer:
    """Asks replicas and engines what they hold."""
    return Observer(session)
