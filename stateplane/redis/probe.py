"""What a bench compares the plane on Redis with: bare commands on its connection, single slices, a polled feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from stateplane.booking import Change, Owner, Rules, Version
from stateplane.redis.feed import Feed
from stateplane.redis.plane import SLICE, RedisPlane
from stateplane.redis.translation import DRIVER_ERRORS, translated


class ProbedPlane(RedisPlane):
    """The plane as it is, with a view to the bare server beside it. Never used by a replica.

    Args:
        poll: seconds between two reads of the feed; 0: read as the product does, blocking until there is news.
        sliced: a heartbeat reaps its first slice only; `reap_slice` takes the others, one by one.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: str,
        owner: Owner,
        rules: Rules,
        timeout: float = 0.25,
        password_file: Path | None = None,
        poll: float = 0.0,
        sliced: bool = False,
    ) -> None:
        super().__init__(
            url, pool=pool, owner=owner, rules=rules, timeout=timeout, password_file=password_file
        )
        self._poll = poll
        self._sliced = sliced

    async def bare(self) -> None:
        """SET of 100 bytes over the connection of the plane's own calls, and through the same client code."""
        await self._wire.plain("SET", self._keys.tag + ":bare", b"x" * 100)

    async def reap_slice(self) -> tuple[int, bool]:
        """One slice of what is due: how many bookings went, and whether more is due."""
        reaped, more = await self._call("reap", SLICE)
        return int(reaped), bool(more)

    async def publish(self, told: bytes) -> None:
        """Tell every subscriber of this pool, bare: no booking, no version, nothing kept."""
        await self._wire.plain("PUBLISH", self._keys.tag + ":bare", told)

    async def subscribe(self) -> AsyncIterator[bytes]:
        """What is published in this pool; the first item is empty and says that the subscription stands."""
        connection = await self._link.open(self.counts)
        try:
            confirmed = await self._link.ask(connection, "SUBSCRIBE", self._keys.tag + ":bare")
            yield confirmed[1][:0]
            while True:
                message: list[Any] = await connection.read_response(disable_decoding=True)
                yield message[2]
        except DRIVER_ERRORS as error:
            raise translated(error, self._link.where) from error
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.disconnect(nowait=True)

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        """As the product's feed, or polled."""
        if not self._poll:
            async for change in super().changes(after):
                yield change
            return
        feed = _PolledFeed(self._link, keys=self._keys, after=after, counts=self.counts)
        feed.pause = self._poll
        try:
            async for change in feed.run():
                yield change
        finally:
            await feed.close()

    async def _reap_on(self) -> int:
        return 0 if self._sliced else await super()._reap_on()


class _PolledFeed(Feed):
    """Waits before each read, so that one read brings what has gathered."""

    pause = 0.0

    async def _read(self) -> list[Any] | None:
        await asyncio.sleep(self.pause)
        return await super()._read()


__all__ = ["ProbedPlane"]
