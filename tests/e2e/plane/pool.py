"""A pool under test: what its replicas say that workers carry, and what the engines truly carry."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from picker.sim import programs
from picker.sim.cluster import BLOCK_SIZE, Cluster
from picker.sim.load import Arrival, Client, Record
from picker.sim.model import MODEL
from picker.sim.programs import Replica
from tests.e2e.plane.gateway import DECODE_SECONDS, Attempt

LEASE_SECONDS, HEARTBEAT_SECONDS = 3.0, 1.0
REPORTED_SECONDS, BLIND_SECONDS = 6.0, 15.0
"""After its owner's SIGKILL, load that no engine carries may be seen for so long, where the worker reports or not."""
SLACK_SECONDS = 4.0
"""Added to every bound on time: the whole pool shares two busy cores with whatever else runs there."""
SOON = 2.0 + SLACK_SECONDS
"""For what happens at once, or with the next heartbeat."""
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

    async def counted(
        self, name: str, label: str = "", *, replicas: Iterable[Replica] | None = None
    ) -> float:
        """The sum of a counter over the replicas."""
        total = 0.0
        for replica in self.replicas if replicas is None else replicas:
            async with self.http.get(f"http://{replica.admin}/metrics") as response:
                lines = (await response.text()).splitlines()
            total += sum(
                float(line.rpartition(" ")[2])
                for line in lines
                if line.startswith((f"{name} ", f"{name}{{")) and label in line
            )
        return total

    async def slow_picks(self, seconds: float) -> float:
        """How many picks took longer, over all replicas."""
        name = "endpoint_picker_decision_duration_seconds"
        within = await self.counted(f"{name}_bucket", f'le="{seconds}"')
        return await self.counted(f"{name}_count") - within

    async def until_logged(self) -> None:
        """Send requests through Envoy until every replica lets go of streams, trusting the access log."""

        async def look() -> list[str]:
            await self.ask(0.05)
            pages = [await self.status(replica) for replica in self.replicas]
            return [page["replica"]["name"] for page in pages if page["replica"]["stream_hold"] != "headers"]

        await self.until(look, seconds=20.0, what="every replica trusts the access log")

    async def ask(self, *seconds: float, spread: float = 0.0) -> list[Record]:
        """Requests through Envoy, each with an answer that takes so long; one every ``spread`` seconds."""
        arrivals = [
            Arrival(
                number * spread,
                {
                    "model": MODEL,
                    "messages": [{"role": "user", "content": f"{uuid.uuid4()} how deep is the harbor"}],
                    "max_tokens": max(1, round(each / DECODE_SECONDS)),
                    "ignore_eos": True,
                },
            )
            for number, each in enumerate(seconds)
        ]
        return await Client(self.cluster.envoy_url, timeout=120.0).run(arrivals)

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

    async def sums_untrue(self, replicas: Iterable[Replica] | None = None) -> list[str]:
        """Where a replica books another number of requests on an engine than it carries, whichever they are."""
        carried, views = await asyncio.gather(self.carried(), self.views(replicas))
        lines = []
        for name, rows in views.items():
            for worker in self.workers:
                booked = sum(row["requests"] for row in rows.values() if row["worker"] == worker)
                truly = sum(count for (where, _), count in carried.items() if where == worker)
                if booked != truly:
                    lines.append(f"{name} books {booked} on {worker}, which carries {truly}")
        return lines

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
        self, seconds: float, *, replicas: Iterable[Replica] | None = None, **more: Any
    ) -> float:
        """Wait until every replica's bookings are what the engines carry."""
        asked = None if replicas is None else list(replicas)
        return await self.until(
            lambda: self.untruths(asked, **more),
            seconds=seconds,
            what="bookings equal what engines carry",
            holds=2,
        )

    async def until_known(self, worker: str) -> None:
        """Wait until every replica has taken a new worker in."""

        async def look() -> list[str]:
            pages = [await self.status(replica) for replica in self.replicas]
            return [
                page["replica"]["name"]
                for page in pages
                if worker not in {one["name"] for one in page["workers"]}
            ]

        await self.until(look, seconds=5.0 + SLACK_SECONDS, what=f"{worker} is known everywhere")

    async def until_seen(self, *attempts: Attempt, replicas: Iterable[Replica] | None = None) -> None:
        """Wait until every replica shows these bookings."""
        asked = None if replicas is None else list(replicas)

        async def look() -> list[str]:
            return [
                f"{name} misses {one.booking}"
                for name, rows in (await self.views(asked)).items()
                for one in attempts
                if one.booking not in rows
            ]

        await self.until(look, seconds=SOON, what="the bookings are seen everywhere")

    async def until_shown(
        self,
        one: Attempt,
        /,
        *,
        replicas: Iterable[Replica] | None = None,
        seconds: float = SOON,
        **wanted: object,
    ) -> None:
        """Wait until every replica shows this booking with these values."""
        asked = None if replicas is None else list(replicas)

        async def look() -> list[str]:
            views = await self.views(asked)
            told = {name: rows.get(one.booking, {}) for name, rows in views.items()}
            return [f"{name} shows {row}" for name, row in told.items() if not wanted.items() <= row.items()]

        await self.until(look, seconds=seconds, what=f"{one.booking} is shown with {wanted}")

    async def until_owned(
        self, one: Attempt, owner: str, *, replicas: Iterable[Replica] | None = None, seconds: float
    ) -> None:
        """Wait until every replica shows this booking as an active one of that replica."""
        asked = None if replicas is None else list(replicas)

        async def look() -> list[str]:
            views = await self.views(asked)
            told = {
                name: rows.get(one.booking, {"state": "gone", "owner": ""}) for name, rows in views.items()
            }
            return [
                f"{name} shows {row}"
                for name, row in told.items()
                if row["state"] != "active" or row["owner"].partition("/")[0] != owner
            ]

        await self.until(look, seconds=seconds, what=f"{one.booking} is {owner}'s")

    async def until_gone(
        self, *attempts: Attempt, replicas: Iterable[Replica] | None = None, seconds: float
    ) -> float:
        """Wait until no replica shows these bookings, nor anything that moves left behind; returns how long it took."""
        asked, ids = None if replicas is None else list(replicas), {one.booking for one in attempts}

        async def look() -> list[str]:
            return [
                f"{name} shows {row}"
                for name, rows in (await self.views(asked)).items()
                for id_, row in rows.items()
                if id_.partition("~")[0] in ids
            ]

        return await self.until(look, seconds=seconds, what="the bookings are gone")

    async def shown(self, one: Attempt, *, replicas: Iterable[Replica] | None = None) -> list[Row]:
        """How each replica shows a booking."""
        return [rows[one.booking] for rows in (await self.views(replicas)).values()]

    async def stays_true(self, seconds: float, *, replicas: Iterable[Replica] | None = None) -> None:
        """For so long, bookings and what engines carry may not differ; while nothing begins and nothing ends."""
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
        await self.until(lambda: _moving(tasks), seconds=10.0, what=f"{name} stands still")

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


async def _moving(tasks: Path) -> list[str]:
    return [task.name for task in tasks.iterdir() if _state(task) != "T"]  # noqa: ASYNC240 - no disk behind it


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
