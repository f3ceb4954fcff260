"""Messages of a replica that arrive after their successors: operations of a term that is over.

A network may deliver late what was given up long ago. The NATS plane only: there the replicas themselves decide what an
operation does, so that the suite can send one in a replica's name, and it is judged by them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from chaos.audit import POOL
from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, asked, life
from stateplane.booking import SCHEMA, Amount, Owner, Rules
from stateplane.errors import StatePlaneError
from stateplane.nats import codec
from stateplane.nats.address import read_url
from stateplane.nats.log import Log

REQUESTS = 7
"""What a late operation says of its booking: so many requests, which no true one is."""
OP = 1000
_TIMEOUT = aiohttp.ClientTimeout(total=3)


@dataclass(frozen=True, slots=True)
class LateOperations:
    """An adjustment of the term before, for each booking of a replica that has turned draining since."""

    target: str
    kind: str = field(default="late-operations", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"deliver operations of {self.target} that belong to a term before the present one"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once they stand in the plane's log; there is nothing to heal."""

        async def act() -> Evidence:
            found: list[Any] = []

            async def drained() -> bool:
                found[:] = await _drained(running, self.target)
                return bool(found)

            await asked(drained, what=f"a booking of {self.target} that drains in a newer term")
            return await _send(running, found)

        async def heal() -> Evidence:
            return {}

        return life(running, kind=self.kind, target=self.target, value={}, act=act, heal=heal)


def late_operations(target: str) -> LateOperations:
    """Operations of an older term of that replica's draining bookings; on the NATS plane only."""
    return LateOperations(target)


async def _drained(running: Running, replica: str) -> list[Any]:
    admin = next(each.admin for each in running.cluster.replicas if each.name == replica)
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as http,
            http.get(f"http://{admin}/bookings.json") as response,
        ):
            page = await response.json(content_type=None)
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from error
    epoch = page["version"]["epoch"]
    own = [{**each, "epoch": epoch} for each in page["bookings"] if each["owner"].startswith(f"{replica}/")]
    return [each for each in own if each["state"] == "draining" and each["term"] > 1]


async def _send(running: Running, bookings: list[Any]) -> Evidence:
    if running.resolve("plane") != "nats":
        raise InjectionError("operations can be delivered late on plane='nats' only")
    name, _, incarnation = bookings[0]["owner"].partition("/")
    log = Log(
        read_url(running.cluster.plane_url, password_file=None), pool=POOL, owner=Owner(name, incarnation),
        rules=Rules(), timeout=2.0, stamp=lambda _sequence, milliseconds: milliseconds, schema=SCHEMA,
    )  # fmt: skip
    try:
        for each in bookings:
            amount = Amount(each["prefill_tokens"], each["blocks"], REQUESTS)
            await log.tell(codec.Adjust(each["id"], each["term"] - 1, OP, amount), each["epoch"])
    except StatePlaneError as error:
        raise InjectionError(f"the late operations could not be written: {error}") from error
    finally:
        await log.close()
    return {"ids": [each["id"] for each in bookings], "requests": REQUESTS}
