"""Connections to the server, and calls that share one of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis
import structlog
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from stateplane.booking import SCHEMA
from stateplane.errors import (
    PlaneClosedError,
    PlaneDisconnectedError,
    PlaneRefusedError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.redis.scripts import Keys, Script
from stateplane.redis.translation import DRIVER_ERRORS, translated

log = structlog.get_logger(__name__)

BATCH = 128
"""Most calls that are written together."""
WAITING = 8192
"""Most calls that wait for the connection; past it they fail at once."""

_OLDEST = {"redis": (7, 0), "valkey": (7, 2)}

Argument = str | bytes | int | float


@dataclass(slots=True)
class Counts:
    """What happened to this plane's calls."""

    calls: int = 0
    batches: int = 0
    connects: int = 0
    timeouts: int = 0
    disconnects: int = 0
    refused: int = 0
    epochs: int = 0
    scripts_loaded: int = 0
    gaps: int = 0
    snapshots: int = 0
    snapshot_retries: int = 0
    reaped: int = 0
    lapsed: int = 0
    rebased: int = 0


def _packed(command: tuple[Argument, ...]) -> bytes:
    """By the C packer: the driver's own, in Python, costs a call of this many arguments a third of its client time."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub knows tuples of one item only
    return packed


def check_server(info: str, where: str) -> str:
    """The run id out of ``INFO server``. Raises PlaneRefusedError for a server that is too old."""
    told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    kind = "valkey" if "valkey_version" in told else "redis"
    version = told.get(f"{kind}_version", "0")
    parts = version.split(".")
    found = tuple(int(part) if part.isdigit() else 0 for part in (*parts, "0")[:2])
    if found < _OLDEST[kind]:
        raise PlaneRefusedError(
            f"{where} is {kind.capitalize()} {version}; the plane needs Redis 7.0 or Valkey 7.2 or newer"
        )
    return told.get("run_id", "")


class Link:
    """How to reach the server: each connection is checked and told the epoch before it is used."""

    def __init__(
        self,
        url: str,
        *,
        keys: Keys,
        scripts: dict[str, Script],
        lease_ms: int,
        timeout: float,
        password_file: Path | None,
    ) -> None:
        try:
            self._settings: dict[str, Any] = dict(parse_url(url))
        except ValueError:
            # the cause would quote a part of the URL, which may be the password's
            scheme = url.partition("://")[0]
            raise PlaneRefusedError(
                f"the plane's URL ({scheme}://...) cannot be read: a part of it is malformed"
            ) from None
        self._class: type[AbstractConnection] = self._settings.pop("connection_class", Connection)
        self._settings.pop("max_connections", None)
        self.where = f"{self._settings.get('host', 'localhost')}:{self._settings.get('port', 6379)}"
        self.timeout = timeout
        self.epoch = 0
        """The newest epoch that any connection was told."""
        self._keys = keys
        self._scripts = scripts
        self._lease_ms = lease_ms
        self._password_file = password_file

    async def open(self, counts: Counts) -> AbstractConnection:
        """A connection, ready for calls in ``epoch``; the caller sets the deadline."""
        connection = self._class(**self._settings_now())
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            info = await self.ask(connection, "INFO", "server")
            run_id = check_server(info.decode("utf-8", "replace"), self.where)
            for name in self._scripts:
                await self.load(connection, name)
            counts.scripts_loaded += len(self._scripts)
            begin = self._scripts["begin"].sha
            keys = self._keys.all
            told = await self.ask(
                connection, "EVALSHA", begin, len(keys), *keys, run_id, self.epoch, SCHEMA, self._lease_ms
            )
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self.epoch = int(told)
        counts.connects += 1
        return connection

    def _settings_now(self) -> dict[str, Any]:
        settings = self._settings | {
            "socket_timeout": None,
            "socket_connect_timeout": self.timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "health_check_interval": 0,
        }
        if self._password_file is not None:
            try:
                settings["password"] = self._password_file.read_text("utf-8").strip()
            except (OSError, UnicodeError) as error:
                raise PlaneRefusedError(
                    f"the plane's password file {self._password_file} cannot be read: {error}"
                ) from error
        return settings

    async def load(self, connection: AbstractConnection, name: str) -> None:
        """Give the server one script."""
        await self.ask(connection, "SCRIPT", "LOAD", self._scripts[name].text)

    @staticmethod
    async def ask(connection: AbstractConnection, *command: Argument) -> Any:
        """One command, one reply as it came."""
        await connection.send_packed_command(_packed(command), check_health=False)
        return await connection.read_response(disable_decoding=True)


@dataclass(slots=True)
class _Call:
    script: str
    command: tuple[Argument, ...]
    reply: asyncio.Future[Any]


class Wire:
    """Script calls over one connection. Calls that arrive while others are under way go together in one write.

    Each call is answered or failed within ``link.timeout``. When one gets no answer in that time the connection is
    given up, for the replies after it would belong to others; the next call opens another.
    """

    def __init__(self, link: Link, *, keys: Keys, scripts: dict[str, Script], counts: Counts) -> None:
        self.link = link
        self.counts = counts
        self._keys = keys
        self._scripts = scripts
        self._connection: AbstractConnection | None = None
        self._stale = False
        self._waiting: deque[_Call] = deque()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def call(self, script: str, *arguments: Argument) -> Any:
        """Run a script. Raises StatePlaneError."""
        command = ("EVALSHA", self._scripts[script].sha, len(self._keys.all), *self._keys.all, *arguments)
        return await self._submit(_Call(script, command, asyncio.get_running_loop().create_future()))

    async def plain(self, *command: Argument) -> Any:
        """Run a command of the server, among the script calls and like them. Raises StatePlaneError."""
        return await self._submit(_Call("", command, asyncio.get_running_loop().create_future()))

    async def renew(self) -> int:
        """Open a new connection and give the epoch that it was told."""
        self._stale = True
        await self.plain("PING")
        return self.link.epoch

    async def _submit(self, call: _Call) -> Any:
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        if len(self._waiting) >= WAITING:
            raise PlaneUnavailableError(f"{WAITING} calls to {self.link.where} are waiting already")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="plane calls")
        self.counts.calls += 1
        self._waiting.append(call)
        self._wanted.set()
        try:
            async with asyncio.timeout(self.link.timeout):
                return await call.reply
        except TimeoutError as error:
            self.counts.timeouts += 1
            raise PlaneTimeoutError(
                f"{self.link.where} gave no answer within {self.link.timeout} s"
            ) from error

    async def _serve(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                await self._serve_batch(self._next_batch())

    def _next_batch(self) -> list[_Call]:
        batch: list[_Call] = []
        while self._waiting and len(batch) < BATCH:
            call = self._waiting.popleft()
            if not call.reply.done():
                batch.append(call)
        return batch

    async def _serve_batch(self, batch: list[_Call]) -> None:
        if not batch:
            return
        try:
            async with asyncio.timeout(self.link.timeout):
                connection = await self._connected()
                lost = await self._exchange(connection, batch)
                if lost:
                    await self._reload(connection, lost)
        except StatePlaneError as error:
            await self._give_up(batch, error)
        except DRIVER_ERRORS as error:
            await self._give_up(batch, translated(error, self.link.where))
        except BaseException:
            await self._give_up(
                batch, PlaneDisconnectedError(f"the connection to {self.link.where} was given up")
            )
            raise

    async def _connected(self) -> AbstractConnection:
        if self._stale:
            self._stale = False
            await self._drop()
        if self._connection is None or not self._connection.is_connected:
            self._connection = await self.link.open(self.counts)
        return self._connection

    async def _exchange(self, connection: AbstractConnection, batch: Sequence[_Call]) -> list[_Call]:
        """Write all, read all; what comes back are the calls whose script the server does not know."""
        self.counts.batches += 1
        packed = b"".join([_packed(call.command) for call in batch])
        await connection.send_packed_command(packed, check_health=False)
        lost = []
        for call in batch:
            try:
                reply = await connection.read_response(disable_decoding=True)
            except ResponseError as error:
                if str(error).startswith("NOSCRIPT") or type(error).__name__ == "NoScriptError":
                    lost.append(call)
                    continue
                self._fail(call, translated(error, self.link.where))
                continue
            if not call.reply.done():
                call.reply.set_result(reply)
        return lost

    async def _reload(self, connection: AbstractConnection, lost: list[_Call]) -> None:
        for name in {call.script for call in lost}:
            await self.link.load(connection, name)
            self.counts.scripts_loaded += 1
        for call in await self._exchange(connection, lost):
            self._fail(call, PlaneUnavailableError(f"{self.link.where} forgot a script twice"))

    def _fail(self, call: _Call, error: StatePlaneError) -> None:
        if isinstance(error, PlaneDisconnectedError):
            self._stale = True
        if not call.reply.done():
            call.reply.set_exception(error)

    async def _give_up(self, batch: Sequence[_Call], error: StatePlaneError) -> None:
        match error:
            case PlaneTimeoutError():
                self.counts.timeouts += 1
            case PlaneRefusedError():
                self.counts.refused += 1
            case _:
                self.counts.disconnects += 1
        await self._drop()
        for call in batch:
            if not call.reply.done():
                call.reply.set_exception(error)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.disconnect(nowait=True)
            except DRIVER_ERRORS as error:
                log.debug("a connection to the plane did not close cleanly", error=repr(error))

    async def close(self) -> None:
        """Fail what waits, close the connection."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._waiting:
            self._fail(self._waiting.popleft(), PlaneClosedError("the plane was closed"))
        await self._drop()
