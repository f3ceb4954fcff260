"""How the server is reached: each connection is checked, given the scripts and told the epoch before it is used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - the driver's, of the same meaning

from stateplane.booking import SCHEMA
from stateplane.connecting import CONNECT_SECONDS, silence
from stateplane.errors import PlaneCorruptError, PlaneDisconnectedError, PlaneRefusedError
from stateplane.redis.address import Host, read_url, shown
from stateplane.redis.calls import Argument, Counts, ask, ask_all
from stateplane.redis.scripts import TYPES, Keys, Script
from stateplane.redis.sentinel import primary_of
from stateplane.redis.translation import is_foreign
from stateplane.schema import oldest_of

log = structlog.get_logger(__name__)

T = TypeVar("T")

_OLDEST = {"redis": (7, 0), "valkey": (7, 2)}


@dataclass(frozen=True, slots=True)
class Told:
    """What ``INFO`` says of a server, as far as it matters here."""

    primary: bool
    unguarded: bool
    """It has replicas, and accepts writes that none of them has."""


def _fields(info: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


def check_server(info: str, where: str) -> str:
    """The run id out of ``INFO server``. Raises PlaneRefusedError for a server that is too old."""
    told = _fields(info)
    kind = "valkey" if "valkey_version" in told else "redis"
    version = told.get(f"{kind}_version", "0")
    parts = version.split(".")
    found = tuple(int(part) if part.isdigit() else 0 for part in (*parts, "0")[:2])
    if found < _OLDEST[kind]:
        raise PlaneRefusedError(
            f"{where} is {kind.capitalize()} {version}; the plane needs Redis 7.0 or Valkey 7.2 or newer"
        )
    return told.get("run_id", "")


def read_replication(info: str) -> Told:
    """What ``INFO replication`` says; the last field is there only where writes need replicas."""
    told = _fields(info)
    replicas = told.get("connected_slaves", "0").strip()
    return Told(
        primary=told.get("role", "master").strip() == "master",
        unguarded=replicas not in ("", "0") and "min_slaves_good_slaves" not in told,
    )


class Link:
    """How to reach the server of one pool.

    Args:
        url: see ``stateplane.redis.address.read_url``.
        schema: the newest schema that this program reads, as the scripts do.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: Keys,
        scripts: dict[str, Script],
        lease_ms: int,
        timeout: float,
        password_file: Path | None,
        connect: float = CONNECT_SECONDS,
        schema: int = SCHEMA,
    ) -> None:
        self._address = read_url(url, password_file=password_file)
        self.where = self._address.where
        self.timeout = timeout
        self.connect = connect
        self._silence = silence(timeout)
        self.newest = schema
        self.written = oldest_of(schema)
        """The schema that is written in ``epoch``."""
        self.epoch = 0
        """The newest epoch that any connection was told."""
        self._keys = keys
        self._scripts = scripts
        self._lease_ms = lease_ms
        self._warned = ""

    async def open(self, counts: Counts) -> AbstractConnection:
        """A connection, ready for calls in ``epoch``, within ``connect`` seconds."""
        async with asyncio.timeout(self.connect):
            return await self._opened(counts)

    async def _opened(self, counts: Counts) -> AbstractConnection:
        connection = self._address.server(await self._host(), timeout=self._silence)
        try:
            run_id = check_server(await self._greet(connection), self.where)
            await self._soon(self._prepare(connection, counts, run_id))
            epoch, schema = await self._soon(self._begin(connection, run_id))
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self.epoch, self.written = epoch, schema
        counts.connects += 1
        return connection

    async def _soon(self, question: Awaitable[T]) -> T:
        """A silent server is not waited for any longer: the next connection finds out sooner that it is back."""
        async with asyncio.timeout(self._silence):
            return await question

    async def _greet(self, connection: AbstractConnection) -> str:
        try:
            async with asyncio.timeout(2 * self._silence):
                await connection.connect()  # type: ignore[no-untyped-call]
            info: bytes = await self._soon(ask(connection, "INFO", "server"))
        except (ConnectionError, OSError) as error:
            reset = "reset by peer" in str(error) or "closed by server" in str(error)
            if reset and self._address.tls:
                may = "want a" if self._address.certificate is None else "not trust our"
                raise PlaneDisconnectedError(
                    f"{self.where} closed the connection after the TLS handshake: it may {may} client certificate"
                ) from error
            raise
        return info.decode("utf-8", "replace")

    async def _host(self) -> Host:
        if not self._address.primary:
            return self._address.hosts[0]
        host = await self._asked_sentinels()
        self.where = f"{shown(host)} (the primary {self._address.primary})"
        return host

    async def _asked_sentinels(self) -> Host:
        async with asyncio.timeout(2 * self._silence):
            return await primary_of(self._address, timeout=self._silence)

    async def _prepare(self, connection: AbstractConnection, counts: Counts, run_id: str) -> None:
        """Check what the server is and whose the keys are, and give it the scripts."""
        scripts = [("SCRIPT", "LOAD", script.text) for script in self._scripts.values()]
        info, *replies = await ask_all(connection, [("INFO", "replication"), *self._questions(), *scripts])
        counts.scripts_loaded += len(scripts)
        told = read_replication(info.decode("utf-8", "replace"))
        if not told.primary:
            raise PlaneDisconnectedError(f"{self.where} is a replica, not the primary")
        counts.unguarded = int(told.unguarded)
        if told.unguarded and self._warned != run_id:
            self._warned = run_id
            log.warning(
                "the plane's server has replicas but takes writes that none of them has, a failover would lose them; "
                "set min-replicas-to-write 1 there",
                server=self.where,
            )
        self._check_types(replies[: len(self._keys.all)])

    def _questions(self) -> list[tuple[Argument, ...]]:
        return [("TYPE", key) for key in self._keys.all]

    def _check_types(self, found: list[bytes]) -> None:
        for key, raw, wanted in zip(self._keys.all, found, TYPES, strict=True):
            if raw not in (b"none", wanted.encode()):
                raise PlaneCorruptError(
                    key,
                    f"holds a {raw.decode('utf-8', 'replace')}, not our {wanted}: something else uses our keys",
                )

    async def explain(self, connection: AbstractConnection) -> None:
        """After a WRONGTYPE: raises PlaneCorruptError with the key that holds something else, if one still does."""
        self._check_types(await ask_all(connection, self._questions()))

    async def _begin(self, connection: AbstractConnection, run_id: str) -> tuple[int, int]:
        begin, keys = self._scripts["begin"].sha, self._keys.all
        try:
            told = await ask(
                connection, "EVALSHA", begin, len(keys), *keys, run_id, self.epoch, self._lease_ms
            )
        except ResponseError as error:
            if is_foreign(error):
                await self.explain(connection)
            raise
        epoch, schema = told
        return int(epoch), int(schema)

    async def load(self, connection: AbstractConnection, name: str) -> None:
        """Give the server one script."""
        await ask(connection, "SCRIPT", "LOAD", self._scripts[name].text)

    ask = staticmethod(ask)


__all__ = ["Link", "Told", "check_server", "read_replication"]
