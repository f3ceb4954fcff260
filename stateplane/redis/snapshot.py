"""The whole picture at one version, read without holding the server up.

The bookings are read in pieces while others write. So: note the version before and after, and replay the changes
between. Every change carries the whole booking, so what was read too early or too late comes right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stateplane.booking import Booking, Cause, Member, Snapshot, Version
from stateplane.errors import PlaneUnavailableError, StatePlaneError
from stateplane.redis import codec
from stateplane.redis.calls import Argument, Counts
from stateplane.redis.link import Link
from stateplane.redis.scripts import Keys, read_scripts
from stateplane.redis.translation import DRIVER_ERRORS, translated

PIECE = 500
TRIES = 5
LONGEST = 10.0
"""Seconds for a whole snapshot with its connection; each piece of it has the deadline of a call."""


@dataclass(frozen=True, slots=True)
class _Mark:
    version: Version
    now: int
    lapses: dict[int, tuple[int, Cause]]
    members: tuple[Member, ...]


async def read_snapshot(
    link: Link, *, keys: Keys, epoch: int, common: Sequence[Argument], counts: Counts
) -> Snapshot:
    """Take a snapshot of that epoch over a connection of its own. Raises StatePlaneError."""
    try:
        async with asyncio.timeout(LONGEST):
            connection = await link.open(counts)
            try:
                reader = _Reader(link, connection, keys=keys, epoch=epoch, common=common)
                for _ in range(TRIES):
                    found = await reader.take()
                    if found is not None:
                        return found
                    counts.snapshot_retries += 1
            finally:
                await connection.disconnect(nowait=True)
    except StatePlaneError:
        raise
    except DRIVER_ERRORS as error:
        raise translated(error, link.where) from error
    raise PlaneUnavailableError(f"{link.where}: the changes ran away from {TRIES} attempts at a snapshot")


class _Reader:
    def __init__(
        self, link: Link, connection: Any, *, keys: Keys, epoch: int, common: Sequence[Argument]
    ) -> None:
        self._link = link
        self._connection = connection
        self._keys = keys
        self._epoch = epoch
        self._common = common
        self._sha = read_scripts(link.newest)["mark"].sha

    async def _ask(self, *command: Argument) -> Any:
        async with asyncio.timeout(self._link.timeout):
            return await self._link.ask(self._connection, *command)

    async def take(self) -> Snapshot | None:
        """One attempt; None if the history was cut while it ran."""
        before = await self._mark()
        records = await self._scan()
        for booking_id, record in records.items():
            if record.state == 0 and record.lease in before.lapses:
                deadline, cause = before.lapses[record.lease]
                records[booking_id] = _lapsed(record, deadline, cause)
        after = await self._mark()
        if not await self._replay(records, before.version, after.version):
            return None
        bookings = tuple(_shown(booking_id, record, after.now) for booking_id, record in records.items())
        return Snapshot(version=after.version, bookings=bookings, members=after.members)

    async def _mark(self) -> _Mark:
        keys = self._keys.all
        version, now, lapses, owners = await self._ask(
            "EVALSHA", self._sha, len(keys), *keys, self._epoch, *self._common
        )
        found = codec.lapses_of(lapses, self._keys["lapses"])
        members = codec.members_of(owners, self._epoch, self._keys["owners"])
        return _Mark(codec.version_of(version), int(now), found, members)

    async def _scan(self) -> dict[str, codec.Record]:
        key = self._keys["books"]
        records = {}
        cursor: Argument = b"0"
        while True:
            cursor, flat = await self._ask("HSCAN", key, cursor, "COUNT", PIECE)
            for raw_id, raw in zip(flat[::2], flat[1::2], strict=True):
                booking_id = codec.text_of(raw_id, key)
                records[booking_id] = codec.record_of(raw, booking_id, self._link.newest)
            if cursor == b"0":
                return records

    async def _replay(self, records: dict[str, codec.Record], after: Version, until: Version) -> bool:
        number = after.number
        while number < until.number:
            entries = await self._ask(
                "XRANGE",
                self._keys["stream"],
                f"({after.epoch}-{number}",
                f"{until.epoch}-{until.number}",
                "COUNT",
                PIECE,
            )
            if not entries:
                return False
            for entry_id, fields in entries:
                if codec.version_of(entry_id).number != number + 1:
                    return False
                number += 1
                _apply(records, fields, self._link.newest)
        return True


def _apply(records: dict[str, codec.Record], fields: Sequence[bytes], newest: int) -> None:
    kind, subject = fields[0][:1], codec.text_of(fields[1], "stream")
    told = dict(zip(fields[2::2], fields[3::2], strict=True))
    if kind == b"b":
        records[subject] = codec.record_of(told[b"r"], subject, newest)
    elif kind == b"g":
        records.pop(subject, None)
    elif kind == b"l":
        for booking_id, record in records.items():
            if record.state == 0 and record.owner == subject:
                records[booking_id] = _lapsed(record, int(told[b"u"]), Cause(told[b"c"].decode()))


def _lapsed(record: codec.Record, deadline: int, cause: Cause) -> codec.Record:
    superseded = record.superseded or record.outrun
    return msgspec.structs.replace(
        record, state=1, cause=cause.value, deadline=deadline, superseded=superseded
    )


def _shown(booking_id: str, record: codec.Record, now: int) -> Booking:
    return codec.booking_of(booking_id, record, max(0, record.deadline - now))
