"""The plane on Redis or Valkey: the seam's calls as script calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stateplane import checks
from stateplane.booking import (
    PROVEN,
    SCHEMA,
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Change,
    Outcome,
    Owner,
    Rules,
    Snapshot,
    Status,
    Terms,
    Version,
)
from stateplane.calls import Adjust, Book, Call, Drain, Move, Reclaim, Release
from stateplane.connecting import CONNECT_SECONDS
from stateplane.errors import PlaneClosedError, PlaneEpochError, StatePlaneError
from stateplane.redis import codec
from stateplane.redis.calls import Argument, Counts
from stateplane.redis.feed import Feed
from stateplane.redis.link import Link
from stateplane.redis.scripts import Keys, common_arguments, read_scripts
from stateplane.redis.snapshot import read_snapshot
from stateplane.redis.wire import Wire
from stateplane.schema import MEMBER_KEY
from stateplane.servingtime import milliseconds

SLICE = 32
"""Bookings reaped in one script: about half a millisecond of the server's time."""


class RedisPlane:
    """One owner's hand in a pool's bookings on a server; keeps the promises of ``stateplane.plane``.

    ``schema``: the newest one that this program reads, which members are told; it reads the one before too.
    """

    capabilities = frozenset({"select"})

    def __init__(
        self,
        url: str,
        *,
        pool: str,
        owner: Owner,
        rules: Rules,
        timeout: float = 0.25,
        connect: float = CONNECT_SECONDS,
        password_file: Path | None = None,
        schema: int = SCHEMA,
    ) -> None:
        self.owner = checks.owner(owner)
        self.counts = Counts()
        self._rules = rules
        self._keys = Keys(pool)
        scripts = read_scripts(schema)
        self._link = Link(
            url,
            keys=self._keys,
            scripts=scripts,
            lease_ms=milliseconds(rules.lease),
            timeout=timeout,
            connect=connect,
            password_file=password_file,
            schema=schema,
        )
        self._token = codec.owner_token(owner)
        self._common = common_arguments(self._token, rules)
        self._wire = Wire(
            self._link, keys=self._keys, scripts=scripts, common=self._common, counts=self.counts
        )
        self._epoch = 0
        self._feeds: set[Feed] = set()
        self._members = 0
        """As of the last heartbeat."""
        self._closed = False

    async def _call(self, script: str, *arguments: Argument) -> Any:
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        if not self._epoch:
            raise PlaneEpochError("the plane was not started: join it first")
        try:
            return await self._wire.call(script, self._epoch, *arguments)
        except PlaneEpochError:
            self.counts.epochs += 1
            raise

    async def _operate(self, script: str, booking_id: str, *arguments: Argument) -> Outcome:
        return codec.outcome_of(
            booking_id, await self._call(script, booking_id, *arguments), self._link.newest
        )

    async def together(self, calls: Sequence[Call]) -> list[Outcome | StatePlaneError | ValueError]:
        """Several operations in one write: each one's outcome, or what its own method would raise."""
        if not self._epoch and not self._closed:
            return [PlaneEpochError("the plane was not started: join it first")] * len(calls)
        answers: list[Any] = []
        asked: list[tuple[str, Sequence[Argument]]] = []
        for call in calls:
            try:
                script, *arguments = self._operation(call)
            except (StatePlaneError, ValueError) as error:
                answers.append(error)
                continue
            answers.append(None)
            asked.append((script, arguments))
        replies = iter(await self._wire.call_all(self._epoch, asked)) if asked else iter(())
        return [
            self._outcome(call, next(replies)) if answer is None else answer
            for call, answer in zip(calls, answers, strict=True)
        ]

    def _outcome(self, call: Call, reply: Any) -> Outcome | StatePlaneError:
        if isinstance(reply, StatePlaneError):
            self.counts.epochs += isinstance(reply, PlaneEpochError)
            return reply
        booking_id = call.booking.id if isinstance(call, Book) else call.id
        try:
            return codec.outcome_of(booking_id, reply, self._link.newest)
        except StatePlaneError as error:
            return error

    def _operation(self, call: Call) -> tuple[str, str, *tuple[Argument, ...]]:
        """The script of a call and its arguments, checked. Raises ValueError."""
        match call:
            case Book(booking):
                checks.booking(booking)
                left = -1 if booking.drain_left is None else milliseconds(booking.drain_left)
                return "book", booking.id, self._pack(booking), left
            case Adjust(booking_id, term, op, amount):
                checks.operation(booking_id, op)
                checks.amount(amount)
                return "adjust", booking_id, term, op, amount.prefill_tokens, amount.blocks, amount.requests
            case Release(booking_id, cause, term):
                checks.name(booking_id, "booking id")
                checks.end_cause(cause, term)
                return "release", booking_id, cause.value, int(cause in PROVEN), term or 0
            case Drain(booking_id, term, op, cause, seconds):
                checks.operation(booking_id, op)
                checks.drain_cause(cause)
                return (
                    "drain", booking_id, term, op, cause.value, -1 if seconds is None else milliseconds(seconds),
                )  # fmt: skip
            case Move(booking_id, term, op, worker, amount):
                checks.operation(booking_id, op)
                checks.name(worker, "worker")
                checks.amount(amount)
                numbers = (amount.prefill_tokens, amount.blocks, amount.requests)
                return "move", booking_id, term, op, worker, *numbers
            case Reclaim(booking_id):
                checks.name(booking_id, "booking id")
                return "reclaim", booking_id

    def _pack(self, booking: Booking) -> bytes:
        return codec.pack(booking, self._token, self._link.written)

    async def start(self, info: Mapping[str, str]) -> Beat:
        """Connect anew, learn or begin the epoch, join as a member."""
        checks.info(info)
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        self._epoch = await self._wire.renew()
        return await self._beat(info, joining=True)

    async def book(self, booking: Booking) -> Outcome:
        """Book on ``booking.worker``."""
        return await self._operate(*self._operation(Book(booking)))

    async def select(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Outcome:
        """Choose by the exact sums and book in one step."""
        checks.name(booking.id, "booking id")
        checks.choice(candidates, terms)
        offered, weights = codec.pack_choice(candidates, terms)
        return await self._operate("select", booking.id, self._pack(booking), offered, weights)

    async def move(self, booking_id: str, *, term: int, op: int, worker: str, amount: Amount) -> Outcome:
        """Another endpoint served."""
        return await self._operate(*self._operation(Move(booking_id, term, op, worker, amount)))

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        """Set what it occupies."""
        return await self._operate(*self._operation(Adjust(booking_id, term, op, amount)))

    async def drain(
        self, booking_id: str, *, term: int, op: int, cause: Cause, seconds: float | None = None
    ) -> Outcome:
        """Count it on for a while only."""
        return await self._operate(*self._operation(Drain(booking_id, term, op, cause, seconds)))

    async def reclaim(self, booking_id: str) -> Outcome:
        """Proof of life."""
        return await self._operate(*self._operation(Reclaim(booking_id)))

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        """End it."""
        return await self._operate(*self._operation(Release(booking_id, cause, term)))

    async def rebooked(self) -> Outcome:
        """All our live bookings stand in this epoch."""
        status, version = await self._call("rebooked")
        return Outcome(Status(status.decode()), version=codec.version_of(version))

    async def beat(self, info: Mapping[str, str]) -> Beat:
        """Renew our lease, lapse the silent, reap what is due slice by slice."""
        checks.info(info)
        return await self._beat(info, joining=False)

    async def _beat(self, info: Mapping[str, str], *, joining: bool) -> Beat:
        told = msgspec.json.encode({**info, MEMBER_KEY: str(self._link.newest)})
        reply = await self._call("beat", told, SLICE, int(joining))
        version, lapsed, reaped, more, rebased, returned, owners, schema = reply
        self.counts.schema = self._link.written = schema
        reaped += await self._reap_on() if more else 0
        self.counts.reaped += reaped
        self.counts.lapsed += len(lapsed)
        self.counts.rebased += rebased
        key = self._keys["owners"]
        members = codec.members_of(owners, self._epoch, key)
        self._members = len(members)
        return Beat(
            version=codec.version_of(version),
            members=members,
            lapsed=tuple(codec.owner_of(codec.text_of(token, key), key) for token in lapsed),
            reaped=reaped,
            rebased=bool(rebased),
            returned=bool(returned),
        )

    async def _reap_on(self) -> int:
        """Reap for half a heartbeat at most: others' calls go between the slices, and the next beat goes on."""
        reaped = 0
        until = asyncio.get_running_loop().time() + self._rules.heartbeat / 2
        more = 1
        while more and asyncio.get_running_loop().time() < until:
            done, more = await self._call("reap", SLICE)
            reaped += done
        return reaped

    async def snapshot(self) -> Snapshot:
        """The whole picture, read in pieces on a connection of its own."""
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")
        if not self._epoch:
            raise PlaneEpochError("the plane was not started: join it first")
        self.counts.snapshots += 1
        return await read_snapshot(
            self._link, keys=self._keys, epoch=self._epoch, common=self._common, counts=self.counts
        )

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        """Every change after that version, over a connection of its own."""
        feed = Feed(
            self._link, keys=self._keys, after=after, counts=self.counts, alone=lambda: self._members == 1
        )
        self._feeds.add(feed)
        try:
            async for change in feed.run():
                yield change
        finally:
            self._feeds.discard(feed)
            await feed.close()

    async def sums(self) -> Mapping[str, Amount]:
        """The plane's own sums."""
        return codec.amounts_of(await self._call("sums"), self._keys["sums"])

    async def leave(self) -> None:
        """Hand our bookings over and end the lease."""
        try:
            await self._call("leave")
        except StatePlaneError:
            self.counts.disconnects += 1

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for feed in list(self._feeds):
            await feed.close()
        await self._wire.close()
