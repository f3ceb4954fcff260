"""Keeps what a schema looks like: writes `tests/contract/fixtures/schema-N` for the present one, once.

    python tests/tools/fixtures.py

What is there already is never written again: a schema that was released does not change. A new one is a new folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402 - the tree is not on the path before

from stateplane.booking import SCHEMA, Amount, Booking, Cause, Owner, Rules, State  # noqa: E402
from stateplane.ledger import Ledger  # noqa: E402
from stateplane.nats import codec as nats  # noqa: E402
from stateplane.redis.plane import RedisPlane  # noqa: E402
from stateplane.redis.scripts import Keys  # noqa: E402
from stateplane.testing.world import watched  # noqa: E402
from tests.contract.stateplane import servers  # noqa: E402

FOLDER = ROOT / "tests/contract/fixtures" / f"schema-{SCHEMA}"
POOL = "ns/fixture"
RULES = Rules(superseded_drain=20.0)


def plain(value: object) -> Any:
    """As it stands in a fixture."""
    return json.loads(msgspec.json.encode(value))


def dumped(client: Any) -> dict[str, Any]:
    """Every key of the pool by its short name, bytes as hex."""
    keys = Keys(POOL)
    found: dict[str, Any] = {}
    for key in keys.all:
        name = key.rpartition(":")[2]
        kind = client.type(key)
        if kind == b"hash":
            found[name] = {field.hex(): value.hex() for field, value in client.hgetall(key).items()}
        elif kind == b"zset":
            found[name] = {one.hex(): score for one, score in client.zrange(key, 0, -1, withscores=True)}
        elif kind == b"stream":
            found[name] = [
                [entry.decode(), [part.hex() for pair in fields.items() for part in pair]]
                for entry, fields in client.xrange(key)
            ]
    return found


async def redis_fixture(folder: Path) -> dict[str, Any]:
    """A pool with a booking of every kind, and all its changes."""
    server = servers.valkey(folder)
    server.start()
    try:
        a, b = (
            RedisPlane(server.url, pool=POOL, owner=Owner(name, "1"), rules=RULES, timeout=5) for name in "ab"
        )
        for plane in (a, b):
            await plane.start({"digest": "0a1b"})
        begin = (await b.snapshot()).version
        await b.rebooked()
        await story(a, b)
        last = await b.snapshot()
        changes = await watched(b, begin, until=last.version)
        with server.client() as client:
            keys = dumped(client)
        for plane in (a, b):
            await plane.close()
    finally:
        server.kill()
    return {
        "schema": SCHEMA,
        "keys": keys,
        "bookings": sorted((plain(one) for one in last.bookings), key=lambda one: one["id"]),
        "changes": [[type(change).__name__, plain(change)] for change in changes],
    }


async def story(a: Any, b: Any) -> None:
    """What a pool may hold: active, outrun, moved, superseded, draining, lapsed, ended with and without proof."""

    def booking(booking_id: str, key: str = "", worker: str = "w2") -> Booking:
        return Booking(booking_id, key, worker, Owner("", ""), Amount(10, 10))

    await b.book(booking("active"))
    await b.adjust("active", term=1, op=1, amount=Amount(0, 12))
    await b.move("active", term=1, op=2, worker="w1", amount=Amount(0, 12))
    await b.book(booking("outrun ü|~", "key"))
    await b.book(booking("latest", "key"))
    await b.book(booking("older", "other"))
    await b.drain("older", term=1, op=1, cause=Cause.BROKEN, seconds=25.0)
    await a.book(booking("newer", "other"))
    await a.book(booking("lapsed"))
    await b.book(booking("ended"))
    await b.release("ended", Cause.ENDED)
    await b.book(booking("assumed"))
    await b.drain("assumed", term=1, op=1, cause=Cause.SILENT)
    await b.release("assumed", Cause.EVIDENCE, term=2)
    await b.release("never booked", Cause.LOGGED)
    await a.leave()


def nats_fixture() -> dict[str, Any]:
    """A command of every kind, a head, and a ledger as a checkpoint holds it."""
    owner, amount = Owner("a", "1"), Amount(10, 2)
    booking = Booking("1", "key", "w", owner, amount, attempt=2, term=3, op=4, state=State.DRAINING,
                      cause=Cause.BROKEN, superseded=True, drain_left=1.5, outrun=True)  # fmt: skip
    bodies: list[Any] = [
        nats.Begin("run", 5, True), nats.Join({"digest": "0a1b"}, 32), nats.Heartbeat({"digest": "0a1b"}, 32, 7, 9),
        nats.Reap(32), nats.Rebook(), nats.Leave(), nats.Book(booking), nats.Move("1", 1, 2, "w2", amount),
        nats.Adjust("1", 1, 2, amount), nats.Drain("1", 1, 2, Cause.SILENT, 2.5), nats.Reclaim("1"),
        nats.Release("1", Cause.EVIDENCE, 3), nats.Release("1", Cause.ENDED, None),
    ]  # fmt: skip
    times = nats.times_of(RULES)
    commands = [
        nats.Command(SCHEMA, "origin", n, 5, nats.owner_pair(owner), times, body)
        for n, body in enumerate(bodies)
    ]
    head = nats.Head(SCHEMA, "2026-01-01T00:00:00Z", 7, 1_700_000_000_000_000_000, "run", "id", 2)
    ledger = Ledger(RULES, now=1_000, epoch=5)
    ledger.join(owner, {"digest": "0a1b"}, now=1_000)
    for one in ("1", "2", "3", "4"):
        ledger.book(owner, Booking(one, "key", "w", owner, amount), now=1_100)
    ledger.drain(owner, "1", term=1, op=1, cause=Cause.BROKEN, now=1_200)
    ledger.release("2", Cause.ENDED, now=1_300)
    ledger.release("1", Cause.EVIDENCE, term=2, now=1_300)
    ledger.leave(owner, now=1_400)
    state = ledger.state()
    return {
        "schema": SCHEMA,
        "commands": [[nats.pack(one).hex(), plain(one)] for one in commands],
        "head": [nats.pack_head(head).hex(), plain(head)],
        "state": [nats.pack_state(state).hex(), plain(state)],
        "bookings": [plain(one) for one in ledger.snapshot(now=1_400).bookings],
    }


def write(name: str, fixture: dict[str, Any]) -> None:
    """One file; the one that is there stays."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text(json.dumps(fixture, indent=1, sort_keys=True) + "\n", "utf-8")
    sys.stdout.write(f"written: {FOLDER / name}\n")


def main() -> int:
    """Write what is missing."""
    if not (FOLDER / "redis.json").exists():
        with tempfile.TemporaryDirectory() as folder:
            write("redis.json", asyncio.run(redis_fixture(Path(folder))))
    if not (FOLDER / "nats.json").exists():
        write("nats.json", nats_fixture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
