"""The floor that a plane is compared with: the same server's cheapest exchange, and its bare publish and subscribe."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Protocol

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from picker.bench.servers import Server
from stateplane.backends import open_plane
from stateplane.booking import Owner, Rules
from stateplane.plane import StatePlane
from stateplane.redis.probe import ProbedPlane

TIMEOUT = 2.0
"""Deadline of a bench's calls: on a busy machine a late answer is a figure, no failure."""


class Bare(Protocol):
    """One server without a plane on it."""

    async def bare(self) -> None:
        """One cheapest exchange: SET on Redis, request and reply between two clients on NATS."""
        ...

    async def publish(self, told: bytes) -> None:
        """Tell every subscriber."""
        ...

    def subscribe(self) -> AsyncIterator[bytes]:
        """What is published; the first item is empty and says that the subscription stands."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class NatsBare:
    """Core NATS: two clients in this process, one of which answers the other."""

    def __init__(self, asking: Client, answering: Client, subject: str) -> None:
        self._asking, self._answering, self._subject = asking, answering, subject

    @classmethod
    async def open(cls, address: str) -> NatsBare:
        """Connect both clients."""
        url = f"nats://{address}"
        asking, answering = await nats.connect(url), await nats.connect(url)
        subject = f"bench.{secrets.token_hex(4)}"

        async def answer(message: Msg) -> None:
            await message.respond(message.data)

        await answering.subscribe(subject, cb=answer)
        await answering.flush()
        return cls(asking, answering, subject)

    async def bare(self) -> None:
        """Request and reply, 100 bytes each way."""
        await self._asking.request(self._subject, b"x" * 100, timeout=TIMEOUT)

    async def publish(self, told: bytes) -> None:
        """Tell every subscriber, and let it be written at once."""
        await self._asking.publish("bench.hop", told)
        await self._asking.flush()

    async def subscribe(self) -> AsyncIterator[bytes]:
        """What is published, handed over as it arrives."""
        heard: asyncio.Queue[bytes] = asyncio.Queue(maxsize=65_536)

        async def hear(message: Msg) -> None:
            heard.put_nowait(message.data)

        await self._answering.subscribe("bench.hop", cb=hear)
        await self._answering.flush()
        yield b""
        while True:
            yield await heard.get()

    async def close(self) -> None:
        """Close both."""
        await self._asking.close()
        await self._answering.close()


async def open_beside(server: Server, pool: str, owner: Owner) -> tuple[StatePlane, Bare]:
    """The plane on a server, started, and the floor beside it; on Redis both share one connection."""
    if server.url.startswith("redis"):
        probe = probed(server, pool, owner, Rules())
        await probe.start({})
        return probe, probe
    plane = plane_on(server, pool, owner, Rules())
    await plane.start({})
    return plane, await NatsBare.open(server.address)


async def open_bare(server: Server, pool: str, owner: Owner) -> Bare:
    """The floor of a server, without bookings."""
    return (
        (await open_beside(server, pool, owner))[1]
        if server.url.startswith("redis")
        else await NatsBare.open(server.address)
    )


def probed(server: Server, pool: str, owner: Owner, rules: Rules, *, sliced: bool = False) -> ProbedPlane:
    """The plane on Redis with a view to the bare server."""
    return ProbedPlane(server.url, pool=pool, owner=owner, rules=rules, timeout=TIMEOUT, sliced=sliced)


def plane_on(server: Server, pool: str, owner: Owner, rules: Rules) -> StatePlane:
    """The product's plane on that server."""
    return open_plane(server.url, pool=pool, owner=owner, rules=rules, timeout=TIMEOUT)
