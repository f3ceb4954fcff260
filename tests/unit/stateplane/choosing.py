"""Desks in mode atomic on one memory store, whose choices a test can hold back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from stateplane.booking import Amount, Booking, Candidate, Outcome, Owner, Rules, Terms
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore

RULES = Rules(lease=0.6, heartbeat=0.1, drain=1.0)
TERMS = Terms(per_token=1.0, per_block=0.0, per_request=0.0)
SMALL = Amount(100, 7)


class ChoosingPlane(MemoryPlane):
    """A memory plane whose choices can be held back, before or after the plane has acted, or fail."""

    before: asyncio.Event | None = None
    after: asyncio.Event | None = None
    fails: Exception | None = None
    asked: int = 0
    landed: int = 0

    async def select(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Outcome:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        if self.before is not None:
            # as on a wire: what is on its way lands, whether somebody still waits for it or not
            return await asyncio.shield(self._late(self.before, booking, candidates, terms))
        outcome = await super().select(booking, candidates, terms)
        self.landed += 1
        if self.after is not None:
            await self.after.wait()
        return outcome

    def _late(
        self, held: asyncio.Event, booking: Booking, candidates: Sequence[Candidate], terms: Terms
    ) -> asyncio.Task[Outcome]:
        async def land() -> Outcome:
            await held.wait()
            outcome = await MemoryPlane.select(self, booking, candidates, terms)
            self.landed += 1
            return outcome

        return asyncio.create_task(land())


@asynccontextmanager
async def joined(store: MemoryStore, name: str, **more: Any) -> AsyncIterator[tuple[Desk, ChoosingPlane]]:
    """One desk in mode atomic with its root task; it leaves nobody behind."""
    owner = Owner(name, "1")
    plane = ChoosingPlane(store, owner=owner, timeout=0.2)
    given: dict[str, Any] = {"mode": "atomic", "budget": 5.0} | more
    desk = Desk(plane, owner, rules=RULES, timeout=0.2, rng=random.Random(7), **given)
    assert await desk.start()
    task = asyncio.create_task(desk.run())
    try:
        yield desk, plane
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def pool(
    names: str, **more: Any
) -> AsyncIterator[tuple[MemoryStore, list[tuple[Desk, ChoosingPlane]]]]:
    """One desk per letter, each of which knows that all have joined."""
    store = MemoryStore(RULES)
    async with AsyncExitStack() as stack:
        desks = [await stack.enter_async_context(joined(store, name, **more)) for name in names]
        await until(lambda: all(len(desk.members) == len(names) for desk, _ in desks))
        yield store, desks


def offered(*workers: str, most: int = 0) -> list[Candidate]:
    return [Candidate(worker, 0.0, SMALL, most) for worker in workers]


def standing(store: MemoryStore) -> dict[str, str]:
    """Id -> worker of what the plane holds."""
    return {one.id: one.worker for one in store.ledger.snapshot(now=store.now()).bookings}


async def until(true: Callable[[], bool], within: float = 5.0) -> None:
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)
