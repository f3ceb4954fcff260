"""Asks the plane's server itself what it holds, past every replica: its sums, and what its bookings add up to.

With the suite's own eyes: no script of a replica runs, so that one that adds up wrongly cannot answer for itself. On
Redis sums and records are read in one transaction. On NATS there is the log alone, and it is folded anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from picker.sim.cluster import Cluster
from picker.sim.programs import POOL_NAME, POOL_NAMESPACE
from stateplane.booking import NOTHING, SCHEMA, Amount, Booking, Owner, Rules
from stateplane.errors import StatePlaneError
from stateplane.nats.address import read_url
from stateplane.nats.log import Log
from stateplane.redis.codec import Record
from stateplane.redis.scripts import Keys

POOL = f"{POOL_NAMESPACE}/{POOL_NAME}"
NEWEST = SCHEMA + 1
"""The suite starts replicas of the next version too; who reads theirs reads ours."""
SECONDS = 5.0
"""Longest wait for the server."""
Page = dict[str, Any]


class AuditError(Exception):
    """The plane's server could not be asked. Says why."""


async def audit(cluster: Cluster) -> Page:
    """``{"sums": {worker: [tokens, blocks, requests]}, "booked": the same added up, "ids": [...]}``.

    Raises AuditError.
    """
    read = _on_redis if cluster.layout.plane == "redis" else _on_nats
    try:
        async with asyncio.timeout(SECONDS):
            return await read(cluster)
    except (OSError, TimeoutError, RedisError, StatePlaneError, msgspec.MsgspecError, ValueError) as error:
        raise AuditError(f"{type(error).__name__}: {error}"[:300]) from error


async def _on_redis(cluster: Cluster) -> Page:
    host, _, port = cluster.plane_address.rpartition(":")
    keys = Keys(POOL)
    async with (
        Redis(host=host, port=int(port), socket_timeout=SECONDS, socket_connect_timeout=SECONDS) as server,
        server.pipeline(transaction=True) as both,
    ):
        both.hgetall(keys["sums"])
        both.hgetall(keys["books"])
        sums, books = await both.execute()
    told = {worker.decode(): [int(number) for number in raw.split()] for worker, raw in sums.items()}
    records = {id_.decode(): msgspec.msgpack.decode(raw, type=Record) for id_, raw in books.items()}
    each = ((one.worker, Amount(one.tokens, one.blocks, one.requests)) for one in records.values())
    return {"sums": told, "booked": _added(each), "ids": sorted(records)}


async def _on_nats(cluster: Cluster) -> Page:
    owner = Owner("audit", "of-the-suite")
    log = Log(
        read_url(cluster.plane_url, password_file=None), pool=POOL, owner=owner, rules=Rules(), timeout=SECONDS / 2,
        stamp=lambda _sequence, milliseconds: milliseconds, schema=NEWEST,
    )  # fmt: skip
    try:
        ledger = await log.replayed()
    finally:
        await log.close()
    bookings: list[Booking] = [entry.booking for entry in ledger.entries.values()]
    told = {worker: _row(amount) for worker, amount in ledger.sums().items()}
    return {
        "sums": told,
        "booked": _added((one.worker, one.amount) for one in bookings),
        "ids": sorted(one.id for one in bookings),
    }


def _added(bookings: Iterable[tuple[str, Amount]]) -> Mapping[str, list[int]]:
    found: dict[str, Amount] = {}
    for worker, amount in bookings:
        found[worker] = found.get(worker, NOTHING) + amount
    return {worker: _row(amount) for worker, amount in found.items() if amount != NOTHING}


def _row(amount: Amount) -> list[int]:
    return [amount.prefill_tokens, amount.blocks, amount.requests]
