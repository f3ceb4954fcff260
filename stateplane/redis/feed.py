"""The plane's changes as they come, over a connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection

from stateplane.booking import Change, Gap, Version
from stateplane.errors import PlaneClosedError, StatePlaneError
from stateplane.redis import codec
from stateplane.redis.calls import Counts
from stateplane.redis.link import Link
from stateplane.redis.scripts import Keys
from stateplane.redis.translation import DRIVER_ERRORS, translated

BLOCK_MS = 1000
"""How long the server holds a read without news: after it the epoch is looked at."""
PIECE = 500
APART_SECONDS = 0.001
"""Least time between two reads: entries that come faster are read together, for each read costs both sides more than
what it brings."""
APART_ALONE_SECONDS = 0.005
"""The same where this replica is the only member: all that comes is its own, which it knows."""


class Feed:
    """One watcher."""

    def __init__(
        self,
        link: Link,
        *,
        keys: Keys,
        after: Version,
        counts: Counts,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """``alone`` says whether this replica is the only member, as far as is known."""
        self._alone = alone
        self._link = link
        self._keys = keys
        self._after = after
        self._counts = counts
        self._connection: AbstractConnection | None = None
        self._closed = False
        self._look = True

    async def run(self) -> AsyncIterator[Change]:
        """Every change; a ``Gap`` is the last. Raises PlaneUnavailableError when the connection breaks."""
        await self._guarded(self._open(), self._link.connect)
        loop = asyncio.get_running_loop()
        read_at = 0.0
        while True:
            apart = APART_ALONE_SECONDS if self._alone() else APART_SECONDS
            soon = apart - (loop.time() - read_at)
            if soon > 0:
                await asyncio.sleep(soon)
            # two questions at most, of which the server holds one: the first must not take of the other's time
            entries = await self._guarded(self._read(), BLOCK_MS / 1000 + 2 * self._link.timeout)
            read_at = loop.time()
            if entries is None:
                yield self._gap("the plane began a new epoch")
                return
            for entry_id, fields in entries:
                version = codec.version_of(entry_id)
                if version.epoch != self._after.epoch:
                    yield self._gap(f"the plane is in epoch {version.epoch}, not {self._after.epoch}")
                    return
                if version.number != self._after.number + 1:
                    yield self._gap(
                        f"changes {self._after.number + 1} to {version.number - 1} are no longer kept"
                    )
                    return
                self._after = version
                change = codec.change_of(entry_id, fields, self._link.newest, version)
                if change is not None:
                    yield change

    def _gap(self, reason: str) -> Gap:
        self._counts.gaps += 1
        return Gap(reason)

    async def _open(self) -> None:
        self._connection = await self._link.open(self._counts)

    async def _read(self) -> list[Any] | None:
        """The next entries; None when the epoch is another.

        Entries tell their epoch, and a new one begins with an entry: it is asked for only where none have come, for one
        that went backwards (an older picture was put in place) would never show.
        """
        if self._connection is None:
            raise PlaneClosedError("the plane was closed while its changes were watched")
        if self._look:
            meta = self._keys["meta"]
            epoch = codec.epoch_of(await self._link.ask(self._connection, "HGET", meta, "epoch"), meta)
            if epoch != self._after.epoch:
                return None
        after = f"{self._after.epoch}-{self._after.number}"
        command = ("XREAD", "COUNT", PIECE, "BLOCK", BLOCK_MS, "STREAMS", self._keys["stream"], after)
        reply = await self._link.ask(self._connection, *command)
        entries: list[Any] = reply[0][1] if reply else []
        self._look = not entries
        return entries

    async def _guarded(self, work: Any, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except StatePlaneError:
            raise
        except DRIVER_ERRORS as error:
            if self._closed:
                raise PlaneClosedError("the plane was closed while its changes were watched") from error
            raise translated(error, self._link.where) from error

    async def close(self) -> None:
        """Let ``run`` end with PlaneClosedError."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.disconnect(nowait=True)
            except DRIVER_ERRORS:
                self._counts.disconnects += 1
