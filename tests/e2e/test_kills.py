"""SIGKILL of a replica, of NATS, of Valkey, each under load: what a user of the gateway and an operator see."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from conftest import Up

from picker.sim.agreement import Observer
from picker.sim.load import Arrival, Client, Record

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

    up: Up
    session: aiohttp.ClientSession
    said: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def keep(self) -> None:
        while True:
            for replica in self.up.replicas():
                try:
                    async with self.session.get(f"http://{replica.admin}/status.json") as response:
                        self.said.setdefault(replica.name, []).append(await response.json())
                except aiohttp.ClientError:
                    continue
            await asyncio.sleep(0.1)

    def ever(self, names: Iterable[str], what: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether each of them said so at some time."""
        return all(any(what(page) for page in self.said.get(name, ())) for name in names)


async def load_around_a_kill(up: Up, pid: int) -> tuple[list[Record], float]:
    """Send load, SIGKILL the process in its midst; returns what clients saw, and the moment on their clock."""
    ports = up.ports
    load = asyncio.create_task(Client(ports["envoy"]).run(arrivals(ports["model"])))
    await asyncio.sleep(KILL_AT)
    os.kill(pid, signal.SIGKILL)
    return await load, KILL_AT


async def until_back(up: Up, pid: Callable[[dict[str, Any]], int], old: int) -> None:
    async with asyncio.timeout(20):
        while pid(up.ports) == old:
            await asyncio.sleep(0.1)


async def agree_while_held(up: Up, observer: Observer) -> None:
    """With long responses running, all replicas show the same bookings, and those are what the engines carry."""
    ports = up.ports
    text = "Traveller {}, tell me everything."
    bodies = [
        {"model": ports["model"], "messages": [{"role": "user", "content": text.format(number)}],
         "max_tokens": HELD_TOKENS, "ignore_eos": True}
        for number in range(HELD)
    ]  # fmt: skip
    held = asyncio.create_task(Client(ports["envoy"]).run([Arrival(0.0, body) for body in bodies]))
    await asyncio.sleep(1.0)
    agreement, truth = await asyncio.gather(
        observer.agree(up.replicas(), within=2.0), observer.truth(up.replicas(), up.workers(), within=10)
    )
    records = await held
    assert agreement.agreed, agreement.differences
    assert agreement.bookings >= 20
    assert truth.agreed, truth.differences
    assert all(record.complete for record in records)


def late_failures(records: list[Record], kill: float) -> list[Record]:
    return [record for record in records if not record.complete and record.sent > kill + 2.0]


async def test_a_killed_replica_costs_only_picks_in_progress_and_comes_back_to_the_same_view(
    up: Up, session: aiohttp.ClientSession, observer: Observer
) -> None:
    victim = up.ports["replicas"][0]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    records, kill = await load_around_a_kill(up, victim["pid"])
    await until_back(up, lambda ports: int(ports["replicas"][0]["pid"]), victim["pid"])
    watching.cancel()
    assert late_failures(records, kill) == []
    assert sum(not record.complete for record in records) <= 2
    others = [replica.name for replica in up.replicas() if replica.name != victim["name"]]
    assert watch.ever(
        others, lambda page: victim["name"] not in {member["name"] for member in page["members"]}
    )
    await agree_while_held(up, observer)


async def test_without_nats_requests_are_served_and_status_says_that_events_are_away(
    up: Up, session: aiohttp.ClientSession, observer: Observer
) -> None:
    pid = up.ports["nats"]["pid"]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    records, _ = await load_around_a_kill(up, pid)
    await until_back(up, lambda ports: int(ports["nats"]["pid"]), pid)
    names = [replica.name for replica in up.replicas()]
    async with asyncio.timeout(15):
        while not all(watch.said[name][-1]["events"]["state"] == "healthy" for name in names):
            await asyncio.sleep(0.1)
    watching.cancel()
    assert [record.fault for record in records if not record.complete] == []
    assert watch.ever(names, lambda page: page["events"]["state"] == "away")
    await agree_while_held(up, observer)


async def test_without_the_plane_requests_are_served_and_status_says_that_it_is_away(
    up: Up, session: aiohttp.ClientSession, observer: Observer
) -> None:
    pid = up.ports["plane"]["pid"]
    watch = Watch(up, session)
    watching = asyncio.create_task(watch.keep())
    records, _ = await load_around_a_kill(up, pid)
    await until_back(up, lambda ports: int(ports["plane"]["pid"]), pid)
    names = [replica.name for replica in up.replicas()]
    began = time.monotonic()
    async with asyncio.timeout(15):
        while not all(watch.said[name][-1]["plane"]["state"] == "healthy" for name in names):
            await asyncio.sleep(0.1)
    watching.cancel()
    assert [record.fault for record in records if not record.complete] == []
    assert watch.ever(names, lambda page: page["plane"]["state"] == "away"), time.monotonic() - began
    await agree_while_held(up, observer)
