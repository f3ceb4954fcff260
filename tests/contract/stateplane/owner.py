"""A replica in a process of its own, to be frozen or killed: books on two workers, prints the ids, and lives on."""

from __future__ import annotations

import asyncio
import json
import sys

import structlog

from tests.contract.stateplane.replicas import Replica, eventually

BOOKED = 6


async def main(url: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    replica = Replica("dead", url)
    assert await replica.start()
    ids = [replica.book(f"w{n % 2}") for n in range(BOOKED)]
    await eventually(lambda: not replica.desk.status().outbox, within=5)
    await replica.plane.start({})  # behind all that was sent before
    assert set(ids) <= {one.id for one in (await replica.plane.snapshot()).bookings}
    sys.stdout.write(json.dumps(ids) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
