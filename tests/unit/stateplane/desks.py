"""Desks on one memory plane, whose answers a test holds back or loses, in short real time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from stateplane.booking import (
    Amount,
    Booking,
    Cause,
    Change,
    Outcome,
    Owner,
    Rules,
    Version,
)
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore

RULES = Rules(lease=0.4, heartbeat=0.1, drain=1.0)
SMALL = Amount(100, 7)


class SlowPlane(MemoryPlane):
    """A memory plane whose answers a test holds back or loses after the plane has acted."""

    hold: asyncio.Event | None = None
    lose: bool = False
    mute: bool = False
    asked: list[str]

    def __init__(self, store: MemoryStore, *, owner: Owner) -> None:
        super().__init__(store, owner=owner)
        self.asked = []

    async def _late(self, name: str, outcome: Outcome) -> Outcome:
        self.asked.append(name)
        if self.hold is not None:
            await self.hold.wait()
        if self.lose:
            await asyncio.sleep(3600)
        return outcome

    async def book(self, booking: Booking) -> Outcome:
        return await self._late("book", await super().book(booking))

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        return await self._late("release", await super().release(booking_id, cause, term=term))

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        return await self._late("adjust", await super().adjust(booking_id, term=term, op=op, amount=amount))

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        async for change in super().changes(after):
            if self.mute:
                await asyncio.sleep(3600)
            yield change


class Pool:
    """Some desks on one store, each with its root task."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.planes: list[SlowPlane] = []
        self.tasks: dict[Desk, asyncio.Task[None]] = {}

    def desk(self, name: str, **more: Any) -> Desk:
        owner = Owner(name, f"{len(self.planes)}")
        plane = SlowPlane(self.store, owner=owner)
        self.planes.append(plane)
        return Desk(plane, owner, rules=RULES, timeout=0.05, rng=random.Random(7), **more)

    async def join(self, name: str, **more: Any) -> Desk:
        desk = self.desk(name, **more)
        assert await desk.start()
        self.run(desk)
        return desk

    def run(self, desk: Desk) -> None:
        self.tasks[desk] = asyncio.create_task(desk.run())

    async def stop(self, desk: Desk) -> None:
        task = self.tasks.pop(desk)
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def agree(self, *desks: Desk, within: float = 3.0) -> None:
        """Wait until the plane and all these views say the same."""

        def same() -> bool:
            standing = {
                one.id: plain(one) for one in self.store.ledger.snapshot(now=self.store.now()).bookings
            }
            return all(
                {id_: plain(b) for id_, b in desk.view.bookings().items()} == standing for desk in desks
            )

        await until(same, within)
        for desk in desks:
            assert dict(desk.view.loads()) == self.store.ledger.sums()


def plain(booking: Booking) -> Booking:
    return replace(booking, drain_left=None)


async def until(true: Callable[[], bool], within: float = 3.0) -> None:
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def pool_of(history: int = 65_536) -> AsyncIterator[Pool]:
    pool = Pool(MemoryStore(RULES, history=history))
    try:
        yield pool
    finally:
        failed = [task for task in pool.tasks.values() if task.done() and not task.cancelled()]
        for task in pool.tasks.values():
            task.cancel()
        await asyncio.gather(*pool.tasks.values(), return_exceptions=True)
        for task in failed:
            task.result()


def book(desk: Desk, id_: str = "", *, worker: str = "w1", amount: Amount = SMALL, key: str = "") -> str:
    id_ = id_ or desk.new_id()
    desk.book(id_, key=key, worker=worker, amount=amount, now=time.monotonic())
    return id_


class Lowest:
    """The least number of requests that a view ever said a worker carries."""

    def __init__(self, desk: Desk, worker: str = "w1") -> None:
        self.desk, self.worker = desk, worker
        self.requests = desk.view.load(worker).requests
        desk.view.listen(self._heard)

    def _heard(self, worker: str, requests: int, blocks: int, now: float) -> None:
        if worker == self.worker:
            self.requests = min(self.requests, requests)
