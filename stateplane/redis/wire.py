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
from stateplane.redis.calls import Argument, Counts, Head, packed
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
    command: bytes
    """As it is written."""
    reply: asyncio.Future[Any] | _Place


class _Together:
    """Calls that were asked for together: one future for all of them."""

    __slots__ = ("all_in", "answers", "due")

    def __init__(self, number: int) -> None:
        self.answers: list[Any] = [None] * number
        self.due = number
        self.all_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, at: int, answer: Any) -> None:
        """The answer to one of them, an error or not."""
        self.answers[at] = answer
        self.due -= 1
        if not self.due and not self.all_in.done():
            self.all_in.set_result(None)


class _Place:
    """One of them, settled as a future is."""

    __slots__ = ("_at", "_settled", "_together")

    def __init__(self, together: _Together, at: int) -> None:
        self._together, self._at, self._settled = together, at, False

    def done(self) -> bool:
        """Whether it has its answer, or nobody waits for it any more."""
        return self._settled or self._together.all_in.done()

    def set_result(self, answer: Any) -> None:
        """It was answered."""
        self._settled = True
        self._together.settle(self._at, answer)

    def set_exception(self, error: StatePlaneError) -> None:
        """It failed."""
        self.set_result(error)


class Wire:
    """Script calls over one connection. Calls that arrive while others are under way go together in one write.

    A call waits ``link.timeout`` at most until it is written, and as long again for its answer. When one gets no answer
    in that time the connection is given up, for the replies after it would belong to others, and what waits fails with
    it; the next call opens another. That takes ``link.connect`` at most, and goes on when the calls that wait for it
    have failed meanwhile, each after ``link.timeout``.
    """

    def __init__(
        self,
        link: Link,
        *,
        keys: Keys,
        scripts: dict[str, Script],
        common: Sequence[Argument],
        counts: Counts,
    ) -> None:
        """``common`` is what every script is given between the epoch and its own arguments."""
        self.link = link
        self.counts = counts
        self._keys = keys
        self._scripts = scripts
        self._common = common
        self._heads: dict[str, Head] = {}
        """By script, of ``_epoch``."""
        self._epoch = 0
        self._connection: AbstractConnection | None = None
        self._stale = False
        self._waiting: deque[_Call] = deque()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def call(self, script: str, epoch: int, *arguments: Argument) -> Any:
        """Run a script in that epoch. Raises StatePlaneError."""
        return await self._submit(script, self._command(script, epoch, arguments))

    async def plain(self, *command: Argument) -> Any:
        """Run a command of the server, among the script calls and like them. Raises StatePlaneError."""
        return await self._submit("", packed(command))

    async def call_all(self, epoch: int, calls: Sequence[tuple[str, Sequence[Argument]]]) -> list[Any]:
        """Run several scripts with their arguments in one write. Gives each one's reply, or its StatePlaneError."""
        if self._closed:
            return [PlaneClosedError("the plane was closed before this call")] * len(calls)
        if len(self._waiting) + len(calls) > WAITING:
            full = PlaneUnavailableError(f"{WAITING} calls to {self.link.where} are waiting already")
            return [full] * len(calls)
        together = _Together(len(calls))
        for at, (script, arguments) in enumerate(calls):
            self._waiting.append(_Call(script, self._command(script, epoch, arguments), _Place(together, at)))
        self.counts.calls += len(calls)
        self._serve_on()
        within = self._patience
        try:
            async with asyncio.timeout(within):
                await together.all_in
        except TimeoutError:
            late = PlaneTimeoutError(f"{self.link.where} gave no answer within {within:g} s")
            self.counts.timeouts += together.due
            return [late if answer is None else answer for answer in together.answers]
        return together.answers

    async def renew(self) -> int:
        """Open a new connection and give the epoch that it was told."""
        self._stale = True
        await self._submit("", packed(("PING",)), within=self.link.connect + self.link.timeout)
        return self.link.epoch

    def _command(self, script: str, epoch: int, arguments: Sequence[Argument]) -> bytes:
        if epoch != self._epoch:
            self._epoch, self._heads = epoch, {}
        head = self._heads.get(script)
        if head is None:
            keys = self._keys.all
            head = self._heads[script] = Head(
                "EVALSHA", self._scripts[script].sha, len(keys), *keys, epoch, *self._common
            )
        return head.packed(arguments)

    async def _submit(self, script: str, command: bytes, *, within: float = 0.0) -> Any:
        within = within or self._patience
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        if len(self._waiting) >= WAITING:
            raise PlaneUnavailableError(f"{WAITING} calls to {self.link.where} are waiting already")
        self.counts.calls += 1
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(script, command, reply))
        self._serve_on()
        try:
            async with asyncio.timeout(within):
                return await reply
        except TimeoutError as error:
            self.counts.timeouts += 1
            raise PlaneTimeoutError(f"{self.link.where} gave no answer within {within:g} s") from error

    @property
    def _patience(self) -> float:
        """Seconds for a call: to be written after those under way and answered, or until there is a connection."""
        connected = self._connection is not None and self._connection.is_connected and not self._stale
        return self.link.timeout * (2 if connected else 1)

    def _serve_on(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="plane calls")
        self._wanted.set()

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
            connection = await self._connected()
            batch = [call for call in batch if not call.reply.done()]
            if batch:
                async with asyncio.timeout(self.link.timeout):
                    await self._answered(connection, batch)
        except StatePlaneError as error:
            await self._give_up(batch, error)
        except DRIVER_ERRORS as error:
            await self._give_up(batch, translated(error, self.link.where))
        except BaseException:
            await self._give_up(
                batch, PlaneDisconnectedError(f"the connection to {self.link.where} was given up")
            )
            raise

    async def _answered(self, connection: AbstractConnection, batch: Sequence[_Call]) -> None:
        lost = await self._exchange(connection, batch)
        if lost:
            await self._reload(connection, lost)

    async def _connected(self) -> AbstractConnection:
        if self._stale:
            await self._drop()
        if self._connection is None or not self._connection.is_connected:
            self._connection = await self.link.open(self.counts)
            self._stale = False
        return self._connection

    async def _exchange(self, connection: AbstractConnection, batch: Sequence[_Call]) -> list[_Call]:
        """Write all, read all; what comes back are the calls whose script the server does not know."""
        self.counts.batches += 1
        data = b"".join([call.command for call in batch])
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
                # it is silent: what waits behind these would only wait for as long again
                batch = (*batch, *self._waiting)
                self._waiting.clear()
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
