"""A pool under test: what its replicas say that workers carry, and what the engines truly carry."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from picker.sim import programs
from picker.sim.cluster import BLOCK_SIZE, Cluster
from picker.sim.programs import Replica

LEASE_SECONDS, HEARTBEAT_SECONDS = 3.0, 1.0
REPORTED_SECONDS, BLIND_SECONDS = 6.0, 15.0
"""After its owner's SIGKILL, load that no engine carries may be seen for so long, where the worker reports or not."""
SLACK_SECONDS = 4.0
"""Added to every bound on time: the whole pool shares two busy cores with whatever else runs there."""
SHOWN = 6

Row = Mapping[str, Any]
Rows = Mapping[str, Row]
Carried = Counter[tuple[str, str]]
"""(worker, booking id) -> requests."""


def carried_by_rows(rows: Rows) -> Carried:
    """Where bookings say that requests are; what a move left behind stands under the id that the worker knows."""
    found: Carried = Counter()
    for id_, row in rows.items():
        found[row["worker"], id_.partition("~")[0]] += row["requests"]
    return +found


def difference(name: str, rows: Rows, carried: Carried) -> list[str]:
    """Where a replica's bookings and the engines differ, a line each."""
    booked = carried_by_rows(rows)
    lines = [
        f"{name} books {count} x {what}, which the engine does not carry"
        for what, count in (booked - carried).items()
    ]
    lines += [
        f"{name} misses {count} x {what}, which the engine carries"
        for what, count in (carried - booked).items()
    ]
    return lines


@dataclass
class Pool:
    """A cluster, and how to look at it."""

    cluster: Cluster
    http: aiohttp.ClientSession
    replicas: list[Replica]
    frozen: set[str] = field(default_factory=set)

    @property
    def workers(self) -> list[str]:
        """Addresses of the engines."""
        return [worker.address for worker in self.cluster.workers]

    # looks

    async def get(self, url: str) -> Any:
        async with self.http.get(f"http://{url}") as response:
            return await response.json(content_type=None)

    async def get_text(self, url: str) -> str:
        async with self.http.get(f"http://{url}") as response:
            return await response.text()

    async def rows(self, replica: Replica) -> Rows:
        """The bookings of one replica's view, by id."""
        page = await self.get(f"{replica.admin}/bookings.json")
        return {row["id"]: row for row in page["bookings"]}

    async def views(self, replicas: Iterable[Replica] | None = None) -> dict[str, Rows]:
        """The bookings of every replica's view."""
        asked = list(self.replicas if replicas is None else replicas)
        shown = await asyncio.gather(*(self.rows(replica) for replica in asked))
        return {replica.name: rows for replica, rows in zip(asked, shown, strict=True)}

    async def status(self, replica: Replica) -> Any:
        return await self.get(f"{replica.admin}/status.json")

    async def carried(self) -> Carried:
        """What the engines carry, by their own word."""
        found: Carried = Counter()
        loads = await asyncio.gather(*(self.get(f"{worker}/debug/load") for worker in self.workers))
        for worker, load in zip(self.workers, loads, strict=True):
            for row in load["requests"]:
                found[worker, row["booking"]] += 1
        return found

    async def untruths(
        self, replicas: Iterable[Replica] | None = None, *, ids: Iterable[str] = ()
    ) -> list[str]:
        """Where the replicas' bookings differ from what the engines carry. ``ids``: look at these bookings only."""
        carried, views = await asyncio.gather(self.carried(), self.views(replicas))
        wanted = set(ids)
        if wanted:
            carried = Counter({what: count for what, count in carried.items() if what[1] in wanted})
            views = {
                name: {id_: row for id_, row in rows.items() if id_.partition("~")[0] in wanted}
                for name, rows in views.items()
            }
        return [line for name, rows in views.items() for line in difference(name, rows, carried)]

    # waits

    async def until(
        self, look: Callable[[], Awaitable[Sequence[str]]], *, seconds: float, what: str, holds: int = 1
    ) -> float:
        """Look until nothing is complained about, so many times in a row; returns the seconds it took.

        AssertionError, with the last complaints, when that does not come about in time.
        """
        begun, row, last = time.monotonic(), 0, ""
        while True:
            try:
                complaints = list(await look())
            except (aiohttp.ClientError, TimeoutError) as error:
                complaints = [f"no answer: {error!r}"]
            row = 0 if complaints else row + 1
            took = time.monotonic() - begun
            if row >= holds:
                return took
            last = "\n  ".join(complaints[:SHOWN]) or last
            assert took < seconds, f"{what}: not within {seconds:g} s:\n  {last}"
            await asyncio.sleep(0.05)

    async def until_true(
        self, seconds: float, replicas: Iterable[Replica] | None = None, **more: Any
    ) -> float:
        """Wait until every replica's bookings are what the engines carry."""
        asked = None if replicas is None else list(replicas)
        return await self.until(
            lambda: self.untruths(asked, **more),
            seconds=seconds,
            what="bookings equal what engines carry",
            holds=2,
        )

    async def stays_true(self, seconds: float, replicas: Iterable[Replica] | None = None) -> None:
        """For so long, nothing may be booked that no engine carries, nor the other way round: nothing begins or ends."""
        asked = None if replicas is None else list(replicas)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            complaints = await self.untruths(asked)
            assert not complaints, "\n  ".join(complaints[:SHOWN])
            await asyncio.sleep(0.1)

    async def until_quiet(self, seconds: float = 45.0) -> float:
        """Wait until no engine carries anything, no replica books anything, and every sum is zero."""

        async def look() -> list[str]:
            carried, views = await asyncio.gather(self.carried(), self.views())
            lines = [f"the engines carry {dict(carried)}"] if carried else []
            lines += [f"{name} books {dict(rows)}" for name, rows in views.items() if rows]
            for page in await asyncio.gather(*(self.status(replica) for replica in self.replicas)):
                for worker in page["workers"]:
                    if any(worker["booked"].values()):
                        lines.append(f"{page['replica']['name']} sums {worker['booked']} on {worker['name']}")
                if page["plane"]["state"] != "healthy" or page["plane"]["owing"] or page["plane"]["kept"]:
                    lines.append(f"{page['replica']['name']} stands so to the plane: {page['plane']}")
            return lines

        return await self.until(look, seconds=seconds, what="nothing is carried and nothing is booked")

    # faults

    def pid(self, name: str) -> int:
        return self.cluster.children[name].pid

    async def freeze(self, name: str) -> None:
        """SIGSTOP; returns once all of it stands still."""
        self.frozen.add(name)
        await self.cluster.kill(name, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid(name)}/task")
        while not all(_state(task) == "T" for task in tasks.iterdir()):
            await asyncio.sleep(0.001)

    async def thaw(self, name: str) -> None:
        """SIGCONT."""
        self.frozen.discard(name)
        await self.cluster.kill(name, signal.SIGCONT)

    async def make_whole(self) -> None:
        """Everything runs and nothing is left of what was before."""
        for name in tuple(self.frozen):
            await self.thaw(name)
        for name in self.cluster.children.names():
            if not self.cluster.children[name].alive and not name.startswith("extra-"):
                await self.cluster.restart(name)
        await self.cluster.until_envoy_sees(len(self.cluster.replicas))
        await self.until_quiet()

    @asynccontextmanager
    async def another(self, name: str, count: int, **settings: str) -> AsyncIterator[Pool]:
        """Further replicas over the same workers and the same plane, as a pool of that name; none of Envoy's."""
        addresses = programs.free_addresses(3 * count)
        replicas = [
            Replica(f"extra-{name}-{n}", next(addresses), next(addresses), next(addresses))
            for n in range(count)
        ]
        cluster = self.cluster
        made = [
            programs.replica(
                replica,
                [peer for peer in replicas if peer is not replica],
                plane_url=cluster.plane_url,
                nats_url="",
                workers_file=cluster.workers_file,
                settings={"PICKER_BLOCK_SIZE": str(BLOCK_SIZE), "PICKER_POOL_NAME": name, **settings},
            )
            for replica in replicas
        ]
        try:
            await asyncio.gather(*(cluster.children.start(program) for program in made))
            yield Pool(cluster, self.http, replicas)
        finally:
            for replica in replicas:
                if replica.name in cluster.children.names():
                    await cluster.kill(replica.name)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
