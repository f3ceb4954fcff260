"""Do the replicas agree? Compares what they show on `/bookings.json`, with each other and with the engines' word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from picker.sim.programs import Replica, Worker


@dataclass(frozen=True, slots=True)
class Held:
    """A booking as a replica shows it."""

    worker: str
    prefill_tokens: int
    blocks: int
    requests: int
    state: str = "active"

    def __str__(self) -> str:
        amounts = f"{self.prefill_tokens} prefill tokens, {self.blocks} blocks, {self.requests} requests"
        return f"says {self.state} on {self.worker}, {amounts}"


Shown = Mapping[str, Held]
"""Booking id -> what it holds."""

SHOWN_DIFFERENCES = 5
_TIMEOUT = aiohttp.ClientTimeout(total=1.0)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The outcome of one comparison."""

    agreed: bool
    """Whether all replicas that were asked showed the same bookings at one moment."""
    seconds: float
    """How long it took until they did, or how long they were watched."""
    bookings: int
    """The bookings held, by the replica that showed fewest."""
    differences: tuple[str, ...] = ()
    """Where they differed at the end, for people."""


def read_bookings(page: Mapping[str, Any]) -> Shown:
    """Read a `/bookings.json` page: what each booking holds, by id."""
    shown: dict[str, Held] = {}
    for row in page["bookings"]:
        amount = row.get("amount", row)
        shown[row["id"]] = Held(
            worker=row["worker"],
            prefill_tokens=int(amount["prefill_tokens"]),
            blocks=int(amount["blocks"]),
            requests=int(amount["requests"]),
            state=row["state"],
        )
    return shown


def differences(views: Mapping[str, Shown]) -> list[str]:
    """How the replicas' pages differ, a line each; empty where they are equal."""
    ids = sorted({id_ for shown in views.values() for id_ in shown})
    lines: list[str] = []
    for id_ in ids:
        held = {name: shown.get(id_) for name, shown in views.items()}
        if len(set(held.values())) > 1:
            told = (f"{name} {what or 'does not know it'}" for name, what in held.items())
            lines.append(f"{id_}: " + ", ".join(told))
    return lines


def carried_by(worker: str, load: Mapping[str, Any]) -> dict[str, str]:
    """Booking id -> worker, of one engine's `/debug/load` page; a request without a booking stands under its own id."""
    return {row["booking"] or f"request {row['id']}": worker for row in load["requests"]}


def untruths(name: str, shown: Shown, carried: Mapping[str, str]) -> list[str]:
    """Where a replica's bookings differ from what the engines carry, a line each.

    A draining booking that no engine carries is none: nobody has seen its end, so it counts until its deadline.
    """
    lines = [
        f"{name} books {id_} on {held.worker}, which carries it no more"
        for id_, held in shown.items()
        if held.requests and held.state == "active" and id_ not in carried
    ]
    for id_, worker in carried.items():
        if id_ not in shown:
            lines.append(f"{worker} carries {id_}, which {name} does not know")
        elif shown[id_].worker != worker:
            lines.append(f"{worker} carries {id_}, which {name} books on {shown[id_].worker}")
    return lines


class Observer:
    """Asks replicas and engines what they hold."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def bookings(self, replica: Replica) -> Shown:
        """What one replica shows. Raises aiohttp's errors and TimeoutError."""
        return read_bookings(await self._get(f"http://{replica.admin}/bookings.json"))

    async def views(self, replicas: Iterable[Replica]) -> dict[str, Shown]:
        """What each replica shows, asked at the same time."""
        asked = list(replicas)
        shown = await asyncio.gather(*(self.bookings(replica) for replica in asked))
        return {replica.name: each for replica, each in zip(asked, shown, strict=True)}

    async def carried(self, workers: Iterable[Worker]) -> dict[str, str]:
        """Booking id -> worker, of everything that the engines truly carry, waiting requests included."""
        asked = [worker.address for worker in workers]
        loads = await asyncio.gather(*(self._get(f"http://{address}/debug/load") for address in asked))
        return {
            id_: where
            for address, load in zip(asked, loads, strict=True)
            for id_, where in carried_by(address, load).items()
        }

    async def agree(self, replicas: Sequence[Replica], *, within: float = 2.0) -> Agreement:
        """Watch the replicas until they show the same bookings, for ``within`` seconds at most."""

        async def look() -> tuple[list[str], int]:
            views = await self.views(replicas)
            return differences(views), _fewest(views)

        return await _watch(look, within)

    async def truth(
        self, replicas: Sequence[Replica], workers: Sequence[Worker], *, within: float
    ) -> Agreement:
        """Watch until every replica books what the engines carry, each request on its own engine (see `untruths`)."""

        async def look() -> tuple[list[str], int]:
            carried, views = await asyncio.gather(self.carried(workers), self.views(replicas))
            lines = [line for name, shown in views.items() for line in untruths(name, shown, carried)]
            return lines, _fewest(views)

        return await _watch(look, within)

    async def _get(self, url: str) -> Any:
        async with self._session.get(url, timeout=_TIMEOUT) as response:
            response.raise_for_status()
            return await response.json()


def _fewest(views: Mapping[str, Shown]) -> int:
    return min((len(shown) for shown in views.values()), default=0)


async def _watch(look: Callable[[], Awaitable[tuple[list[str], int]]], within: float) -> Agreement:
    begun = time.monotonic()
    while True:
        try:
            lines, fewest = await look()
        except (aiohttp.ClientError, OSError, TimeoutError, KeyError, ValueError) as error:
            lines, fewest = [f"a replica or an engine does not say what it holds: {error!r}"], 0
        seconds = time.monotonic() - begun
        if not lines or seconds >= within:
            return Agreement(not lines, seconds, fewest, tuple(lines[:SHOWN_DIFFERENCES]))
        await asyncio.sleep(0.05)
