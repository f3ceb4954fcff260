"""Real desks over real planes, as replicas have them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from stateplane.backends import open_plane
from stateplane.booking import NOTHING, Amount, Booking, Owner, Rules
from stateplane.desk import Desk
from stateplane.plane import StatePlane

POOL = "ns/desks"
RULES = Rules(lease=3.0, heartbeat=1.0, drain=30.0)
ONE = Amount(100, 10)


class Replica:
    """One replica's desk with its tasks; `die` ends it as SIGKILL would: nothing is said any more."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        incarnation: str = "1",
        pool: str = POOL,
        rules: Rules = RULES,
        timeout: float = 0.5,
    ) -> None:
        self.owner = Owner(name, incarnation)
        self.plane: StatePlane = open_plane(url, pool=pool, owner=self.owner, rules=rules, timeout=timeout)
        self.desk = Desk(self.plane, self.owner, rules=rules, timeout=timeout)
        self._running: asyncio.Task[None] | None = None

    async def start(self, within: float = 5.0) -> bool:
        joined = await self.desk.start(within)
        self._running = asyncio.create_task(self.desk.run())
        return joined

    def book(self, worker: str = "w1", *, amount: Amount = ONE, key: str = "") -> str:
        booking_id = self.desk.new_id()
        self.desk.book(booking_id, key=key, worker=worker, amount=amount, now=time.monotonic())
        return booking_id

    def picture(self) -> dict[str, tuple[str, str, str, Amount]]:
        """What the view holds, without what differs between replicas for a moment."""
        return {one.id: _told(one) for one in self.desk.view.bookings().values()}

    async def die(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        await self.plane.close()

    async def leave(self) -> None:
        await self.desk.leave()
        await self.die()


def _told(one: Booking) -> tuple[str, str, str, Amount]:
    return one.worker, str(one.owner), one.state.value, one.amount


async def eventually(what: Callable[[], bool], *, within: float, step: float = 0.02) -> float:
    """Wait until it holds; the seconds that it took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < within, f"not within {within} s"
        await asyncio.sleep(step)
    return time.monotonic() - began


def agree(replicas: Iterable[Replica]) -> bool:
    """Whether all views hold the same, and sums that fit."""
    pictures = [replica.picture() for replica in replicas]
    return all(one == pictures[0] for one in pictures) and all(exact(replica) for replica in replicas)


def exact(replica: Replica) -> bool:
    """Whether the view's sums equal the sum of its bookings."""
    counted: dict[str, Amount] = {}
    for one in replica.desk.view.bookings().values():
        counted[one.worker] = counted.get(one.worker, NOTHING) + one.amount
    return dict(replica.desk.view.loads()) == {w: a for w, a in counted.items() if a != NOTHING}


async def close(replicas: Iterable[Replica]) -> None:
    """End them all."""
    for replica in replicas:
        await replica.die()
