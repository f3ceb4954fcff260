"""SIGKILL of a replica, of NATS, of Valkey, each under load: what a user of the gateway and an operator see."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from picker.sim.agreement import Observer
from picker.sim.load import Arrival, Client, Record
from picker.sim.ports import Ports
from picker.sim.processes import until

RATE = 15.0
LOAD_SECONDS = 12.0
KILL_AT = 3.0
HELD, HELD_TOKENS = 24, 500


def arrivals(model: str) -> list[Arrival]:
    """Steady short requests, a few prefixes shared."""
    found = []
    for number in range(int(RATE * LOAD_SECONDS)):
        text = f"Story {number % 12}. " + "the harbor was quiet that morning " * 20
        body = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 20,
            "ignore_eos": True,
        }
        found.append(Arrival(number / RATE, body))
    return found


@dataclass
class Watch:
    """What the replicas' status pages said while it was kept."""

    up: Ports
    session: aiohttp.ClientSession
    said: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def keep(self) -> None:
        while True:
            for replica in self.up.replicas:
                try:
                    async with self.session.get(f"http://{replica.admin}/status.json") as response:
                        self.said.setdefault(replica.name, []).append(await response.json())
                except aiohttp.ClientError:
                    continue
            await asyncio.sleep(0.1)

    def now(self, names: Iterable[str], part: str) -> set[str]:
        """The states of a part that the last pages name."""
        return {self.said[name][-1][part]["state"] for name in names}

    def lives(self, name: str) -> set[str]:
        """The incarnations of a replica, as the last page of each says; empty where not all have said one."""
        if len(self.said) < len(self.up.replicas):
            return set()
        return set[str]().union(*(lives_of(name, pages[-1]) for pages in self.said.values()))

    def ever(self, names: Iterable[str], what: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether each of them said so at some time."""
        return all(any(what(page) for page in self.said.get(name, ())) for name in names)


def lives_of(name: str, page: dict[str, Any]) -> set[str]:
    """The incarnations under which a member of that name is in the pool."""
    return {member["incarnation"] for member in page["members"] if member["name"] == name}


async def load_around_a_kill(up: Ports, pid: int) -> tuple[list[Record], float]:
    """Send load, SIGKILL the process in its midst; returns what clients saw, and the moment on their clock."""
    load = asyncio.create_task(Client(up.envoy).run(arrivals(up.model)))
    await asyncio.sleep(KILL_AT)
    os.kill(pid, signal.SIGKILL)
    return await load, KILL_AT


async def until_back(up: Ports, name: str, old: int) -> None:
    await until(lambda: up.pids()[name] != old, seconds=20, what=f"{name} comes back")


async def agree_while_held(up: Ports, observer: Observer) -> None:
    """With long responses running, all replicas show the same bookings, and those are what the engines carry."""
    text = "Traveller {}, tell me everything."
    bodies = [
        {"model": up.model, "messages": [{"role": "user", "content": text.format(number)}],
         "max_tokens": HELD_TOKENS, "ignore_eos": True}
        for number in range(HELD)
    ]  # fmt: skip
    held = asyncio.create_task(Client(up.envoy).run([Arrival(0.0, body) for body in bodies]))
    await asyncio.sleep(1.0)
    agreement, truth = await asyncio.gather(
        observer.agree(up.replicas, within=2.0), observer.truth(up.replicas, up.workers, within=10)
    )
    records = await held
    assert agreement.agreed, agreement.differences
    assert agreement.bookings >= 20
    assert truth.agreed, truth.differences
    assert all(record.complete for record in records)


def late_failures(records: list[Record], kill: float) -> list[Record]:
    return [record for record in records if not record.complete and record.sent > kill + 2.0]


async def test_a_killed_replica_costs_only_picks_in_progress_and_comes_back_to_the_same_view(
    up: Ports, session: aiohttp.ClientSession, observer: Observer
) -> None:
    victim = up.replicas[0].name
    pid = up.pids()[victim]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    await until(lambda: watch.lives(victim) != set(), seconds=10, what="a life of the victim is seen")
    (killed,) = watch.lives(victim)
    records, kill = await load_around_a_kill(up, pid)
    await until_back(up, victim, pid)
    watching.cancel()
    assert late_failures(records, kill) == []
    assert sum(not record.complete for record in records) <= 2
    others = [replica.name for replica in up.replicas if replica.name != victim]
    # it is back so soon that its name may never be missed: the life that was killed is
    assert watch.ever(others, lambda page: killed not in lives_of(victim, page))
    await agree_while_held(up, observer)


async def test_without_nats_requests_are_served_and_status_says_that_events_are_away(
    up: Ports, session: aiohttp.ClientSession, observer: Observer
) -> None:
    pid = up.pids()["nats"]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    records, _ = await load_around_a_kill(up, pid)
    await until_back(up, "nats", pid)
    names = [replica.name for replica in up.replicas]
    await until(
        lambda: watch.now(names, "events") == {"healthy"}, seconds=15, what="events healthy everywhere"
    )
    watching.cancel()
    assert [record.fault for record in records if not record.complete] == []
    assert watch.ever(names, lambda page: page["events"]["state"] == "away")
    await agree_while_held(up, observer)


async def test_without_the_plane_requests_are_served_and_status_says_that_it_is_away(
    up: Ports, session: aiohttp.ClientSession, observer: Observer
) -> None:
    pid = up.pids()["plane"]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    records, _ = await load_around_a_kill(up, pid)
    await until_back(up, "plane", pid)
    names = [replica.name for replica in up.replicas]
    await until(lambda: watch.now(names, "plane") == {"healthy"}, seconds=15, what="plane healthy everywhere")
    watching.cancel()
    assert [record.fault for record in records if not record.complete] == []
    assert watch.ever(names, lambda page: page["plane"]["state"] == "away")
    await agree_while_held(up, observer)
