"""Calls that share one connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from stateplane.errors import (
    PlaneClosedError,
    PlaneCorruptError,
    PlaneDisconnectedError,
    PlaneRefusedError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.redis.calls import Argument, Counts, packed
from stateplane.redis.link import Link
from stateplane.redis.scripts import Keys, Script
from stateplane.redis.translation import DRIVER_ERRORS, is_foreign, translated

log = structlog.get_logger(__name__)

BATCH = 128
"""Most calls that are written together."""
WAITING = 8192
"""Most calls that wait for the connection; past it they fail at once."""


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
        data = b"".join([packed(call.command) for call in batch])
        await connection.send_packed_command(data, check_health=False)
        lost, foreign = [], []
        for call in batch:
            try:
                reply = await connection.read_response(disable_decoding=True)
            except ResponseError as error:
                if str(error).startswith("NOSCRIPT") or type(error).__name__ == "NoScriptError":
                    lost.append(call)
                elif is_foreign(error):
                    foreign.append(call)
                else:
                    self._fail(call, translated(error, self.link.where))
                continue
            if not call.reply.done():
                call.reply.set_result(reply)
        if foreign:
            await self._explain(connection, foreign)
        return lost

    async def _explain(self, connection: AbstractConnection, foreign: Sequence[_Call]) -> None:
        """They met a key of somebody else: say which."""
        fault = PlaneCorruptError(self.link.where, "a key there held a value of another type for a moment")
        try:
            await self.link.explain(connection)
        except PlaneCorruptError as error:
            fault = error
        for call in foreign:
            self._fail(call, fault)

    async def _reload(self, connection: AbstractConnection, lost: list[_Call]) -> None:
        for name in {call.script for call in lost}:
            await self.link.load(connection, name)
            self.counts.scripts_loaded += 1
        for call in await self._exchange(connection, lost):
            self._fail(call, PlaneUnavailableError(f"{self.link.where} forgot a script twice"))

    def _fail(self, call: _Call, error: StatePlaneError) -> None:
        if isinstance(error, PlaneDisconnectedError):
            self._stale = True
        self.counts.corrupt += isinstance(error, PlaneCorruptError)
        if not call.reply.done():
            call.reply.set_exception(error)

    async def _give_up(self, batch: Sequence[_Call], error: StatePlaneError) -> None:
        match error:
            case PlaneTimeoutError():
                self.counts.timeouts += 1
            case PlaneRefusedError():
                self.counts.refused += 1
            case PlaneCorruptError():
                self.counts.corrupt += 1
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
