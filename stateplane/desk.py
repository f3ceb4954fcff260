"""One replica's hand in the state plane: the pick path's side is synchronous and never raises, the rest is behind."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import structlog

from stateplane.booking import Amount, Booking, Candidate, Cause, Member, Owner, Rules, State, Terms, Version
from stateplane.breaker import Health
from stateplane.claims import Claims
from stateplane.connecting import CONNECT_SECONDS
from stateplane.hearing import Hearing
from stateplane.line import Counts as LineCounts
from stateplane.link import Link
from stateplane.plane import StatePlane
from stateplane.selecting import Counts as SelectCounts
from stateplane.selecting import Miss, Selecting, Selection
from stateplane.table import Counts as TableCounts
from stateplane.table import Table
from stateplane.view import View

log = structlog.get_logger(__name__)

Mode = Literal["isolated", "eventual", "atomic"]
IDS_MINTED = 64
"""Booking ids made at one time: asking the system for randomness costs more than all the rest of it."""
_ID = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class DeskStatus:
    """How this replica stands to the plane, for the status page."""

    mode: Mode
    state: Health
    """``healthy`` in mode isolated, which needs no plane."""
    since: float
    """Seconds it has been so."""
    reason: str
    """What the last failed call said; empty while healthy."""
    joined: bool
    """Whether this replica is a member of the plane's present epoch."""
    version: Version
    """The plane's version that the view has folded."""
    lag: float
    """Seconds for which the view has been known to be behind; 0 while it is level."""
    rate: float
    """New bookings per second of all replicas together."""
    staleness: float
    """Seconds from a pick to its sight in the views: as measured on own picks, and never less than ``lag``."""
    members: tuple[Member, ...]
    outbox: int
    """Bookings whose newest state the plane has yet to be told."""
    owing: int
    """Own bookings that have yet to be booked again in this epoch."""
    own: int
    foreign: int
    draining: int
    """Own and foreign ones that drain."""
    suspect: int
    """Draining ones past their deadline by this replica's clock; they count until the plane says gone."""
    kept: int
    """Bookings of an older epoch whose owner has not booked again yet."""


@dataclass(slots=True)
class Counts:
    """What a desk counts: its word on bookings, and its link to the plane."""

    bookings: TableCounts
    calls: LineCounts
    selects: SelectCounts
    strange: int = 0  # ids that no picker minted


class Desk:
    """Book, adjust, move, drain, reclaim and end bookings: seen at once in `view`, told to the plane behind the scenes.

    The plane may be away at any time, also at the start: then this replica goes on with what it knows, and tells the
    plane the newest state of each booking when it returns. All methods that are not coroutines belong to the event
    loop's thread, wait for nothing and raise nothing.

    Args:
        plane: of this owner and pool; the caller closes it after `leave`.
        owner: this life of this replica.
        mode: ``isolated`` never uses the plane at all; ``atomic`` is ``eventual`` with `select` besides.
        info: what to say of this replica to the others; `publish` changes it.
        clock: monotonic seconds.
        capacity: most bookings whose newest state waits for the plane.
        parallel: most calls in flight.
        timeout: deadline of a call in seconds.
        connect: the same of joining, which takes a connection first.
        budget: deadline of an atomic choice in seconds.
        selects: most atomic choices asked for at one time.
    """

    def __init__(
        self,
        plane: StatePlane,
        owner: Owner,
        *,
        rules: Rules | None = None,
        mode: Mode = "eventual",
        info: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        capacity: int = 10_000,
        parallel: int = 64,
        timeout: float = 0.25,
        connect: float = CONNECT_SECONDS,
        budget: float = 0.02,
        selects: int = 64,
        rng: random.Random | None = None,
    ) -> None:
        rules = rules or Rules()
        self.owner = owner
        self.mode: Mode = mode
        self.view = View(lease=rules.lease + rules.heartbeat, owner=owner)
        self._clock = clock
        self._began = clock()
        self._shared = mode != "isolated"
        self._table = Table(owner, self.view, rules=rules, capacity=capacity, shared=self._shared)
        self._claims = Claims(self._table)
        self._hearing = Hearing(self._table)
        self._link = Link(
            plane, self._table, rules=rules, info=info or {}, clock=clock,
            parallel=parallel, timeout=timeout, connect=connect, rng=rng or random.Random(),
        )  # fmt: skip
        self._rules = rules
        self._minted: list[str] = []
        self._selecting = Selecting(
            plane, self._table, self._link.line, ready=self._inexact, clock=clock, budget=budget, most=selects
        )
        self.counts = Counts(self._table.counts, self._link.line.counts, self._selecting.counts)

    # the pick path

    def new_id(self) -> str:
        """A booking id: 96 random bits in 16 characters that any header and any key may hold."""
        if not self._minted:
            minted = secrets.token_urlsafe(12 * IDS_MINTED)
            self._minted = [minted[at : at + 16] for at in range(0, len(minted), 16)]
        return self._minted.pop()

    def book(self, booking_id: str, *, key: str, worker: str, amount: Amount, now: float) -> Booking:
        """Let it count from here on, and tell the plane. The same id again changes nothing and gives what stands."""
        return self._claims.book(booking_id, key=key, worker=worker, amount=amount, now=now)

    async def select(
        self, booking_id: str, *, key: str, candidates: Sequence[Candidate], terms: Terms
    ) -> Selection:
        """Let the plane choose the cheapest candidate by its exact sums and book there, within the budget.

        What it booked counts from here on. Where it made no choice, nothing stays booked and the id is used up: an
        answer that comes too late finds it ended. Cancelling leaves nothing booked. Never raises anything else.
        """
        return await self._selecting.select(booking_id, key=key, candidates=candidates, terms=terms)

    def adjust(self, booking_id: str, amount: Amount) -> None:
        """It occupies so much now (prefill ended, decode grew)."""
        self._claims.adjust(booking_id, amount, self._clock())

    def serve(self, booking_id: str, worker: str, amount: Amount) -> None:
        """That worker served. Another one than booked: it moves, and ``<id>~n`` drains on the first one."""
        self._claims.serve(booking_id, worker, amount, self._clock())

    def end(self, booking_id: str, cause: Cause) -> None:
        """Its end is proven."""
        self._claims.end(booking_id, cause, self._clock())

    def lose(self, booking_id: str, cause: Cause, *, seconds: float | None = None) -> None:
        """Neither its end nor its life is proven: it drains, for ``seconds`` (default: the pool's rule) at most."""
        self._claims.lose(booking_id, cause, self._clock(), seconds)

    def alive(self, booking_ids: Iterable[str]) -> None:
        """These run: draining ones of ours are reclaimed, of others adopted; the plane decides who was first."""
        self._claims.alive([one for one in booking_ids if self._known_shape(one)], self._clock())

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        """The access log named the end of a booking, whoever owns it, also before its book was heard of."""
        if self._known_shape(booking_id):
            self._claims.end(booking_id, cause, self._clock())

    def owns(self, booking_id: str) -> bool:
        """Whether this replica speaks for that booking."""
        return booking_id in self._table.claims

    def _known_shape(self, booking_id: str) -> bool:
        if _ID.fullmatch(booking_id):
            return True
        self.counts.strange += 1
        return False

    # the replica's life

    async def start(self, within: float = 2.0) -> bool:
        """Try to join for at most ``within`` seconds; True: the view equals the plane. False: `run` goes on trying."""
        if not self._shared:
            return True
        return await self._link.start(within)

    async def run(self) -> None:
        """The root task: heartbeats, the feed, the outbox. Ends when it is cancelled only; after `leave` it idles."""
        if self._shared:
            await self._link.run()
        else:
            await self._tick()

    async def leave(self, within: float = 2.0) -> None:
        """Tell the plane what is left to tell, hand own bookings over as draining, end the lease. Never raises."""
        if self._shared:
            await self._link.leave(within)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._rules.heartbeat)
            self._hearing.sweep(self._clock())

    def publish(self, **info: str) -> None:
        """Say this of this replica from the next heartbeat on."""
        self._link.info.update(info)

    # what is told of it

    @property
    def members(self) -> tuple[Member, ...]:
        """Every replica that the plane knows, this one included; empty before the first heartbeat."""
        return self._link.members

    @property
    def joined(self) -> bool:
        """Whether the view has folded a picture of the plane's present epoch; always True in mode isolated."""
        return not self._shared or self._link.joined

    @property
    def degraded(self) -> bool:
        """Whether picks are made on a view that may be missing what the others do."""
        return self._shared and (not self._link.joined or self._link.away)

    def unseen(self, now: float) -> float:
        """How many requests others have probably placed that the view does not show: rate x lag; 0 while level."""
        lag = self._link.lag(now) if self._shared else 0.0
        return self._table.pace.rate(now - lag) * lag if lag else 0.0

    def _inexact(self) -> Miss | None:
        """Why the plane's sums cannot be asked for, or lack something."""
        if self.degraded or not self._shared:
            return Miss.AWAY
        return Miss.REBUILDING if self._link.rebuilding else None

    def status(self) -> DeskStatus:
        """A picture of the moment; costs O(bookings)."""
        now = self._clock()
        bookings = self.view.bookings().values()
        own = sum(booking.owner == self.owner for booking in bookings)
        breaker = self._link.line.breaker
        lag = self._link.lag(now) if self._shared else 0.0
        return DeskStatus(
            mode=self.mode,
            state=breaker.state if self._shared else Health.HEALTHY,
            since=now - (breaker.since if self._shared else self._began),
            reason=breaker.reason if self._shared else "",
            joined=self.joined,
            version=self.view.version,
            lag=lag,
            rate=self._table.pace.rate(now - lag),
            staleness=max(lag, self._table.pace.staleness),
            members=self.members,
            outbox=len(self._table.outbox),
            owing=self._table.owing,
            own=own,
            foreign=len(bookings) - own,
            draining=sum(booking.state is State.DRAINING for booking in bookings),
            suspect=len(self.view.suspects(now)),
            kept=len(self.view.kept()),
        )


__all__ = ["Desk", "DeskStatus", "Mode"]
