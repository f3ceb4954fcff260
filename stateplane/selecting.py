"""The atomic choice: the plane chooses among a few workers by its exact sums and books there, in one round trip.

It stands on a request's path, so it has a budget, a bound on the calls in flight and a breaker of its own. Past any of
them the caller chooses on its view. Whatever a call leaves behind that was not answered in time is ended here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from stateplane.booking import NOTHING, Booking, Candidate, Cause, Outcome, Status, Terms
from stateplane.breaker import Breaker, Health
from stateplane.claims import Claims
from stateplane.errors import StatePlaneError
from stateplane.line import Line
from stateplane.plane import StatePlane
from stateplane.table import Table

log = structlog.get_logger(__name__)

LATE_MOST = 5
"""So many calls over the budget in a row, and the plane is not asked for a while."""
REST_SECONDS = 0.25
"""After so long one call finds out whether the plane answers in time again."""
LAST_TURNS = 4
"""Turns of the event loop after the budget in which an answer that has arrived is still taken: the socket, the line to
the plane and the call want one each. A process that was stalled finds its timers and its answers due at once.
"""
UNTOLD_MOST = 64
"""With more own bookings than this untold, the plane's sums lack too much to be called exact."""


class Miss(StrEnum):
    """Why the plane made no choice."""

    AWAY = "away"  # it does not answer, or this replica is no member of its epoch
    REBUILDING = "rebuilding"  # some member has yet to book again what the plane lost
    BEHIND = "behind"  # too many of our own bookings wait to be told
    BUSY = "busy"  # as many calls as allowed are in flight
    RESTING = "resting"  # calls came back too late time and again
    LATE = "late"  # no answer within the budget
    FAILED = "failed"  # the call failed, or its answer was of no use
    FULL = "full"  # every worker offered is at its limit


@dataclass(frozen=True, slots=True)
class Selection:
    """What became of an atomic choice: ``booking`` where the plane chose, else ``miss`` says why not."""

    booking: Booking | None = None
    miss: Miss | None = None


@dataclass(slots=True)
class Counts:
    """What became of the atomic choices of one replica."""

    chosen: int = 0
    abandoned: int = 0  # the client left while the plane was asked
    missed: dict[str, int] = field(default_factory=lambda: {str(miss): 0 for miss in Miss})


class Selecting:
    """Asks for atomic choices, and keeps the table right about what they booked.

    ``ready`` says why the plane's sums cannot be trusted now, or None. ``budget``: seconds for one choice, ``most``:
    calls in flight at one time.
    """

    def __init__(
        self,
        plane: StatePlane,
        table: Table,
        line: Line,
        *,
        ready: Callable[[], Miss | None],
        clock: Callable[[], float],
        budget: float,
        most: int,
    ) -> None:
        self.counts = Counts()
        self._plane, self._table, self._line = plane, table, line
        self._claims = Claims(table)
        self._ready = ready
        self._clock = clock
        self._budget = budget
        self._most = most
        self._breaker = Breaker(now=clock(), failures=LATE_MOST, slow=budget, state=Health.HEALTHY)
        self._probed_at = float("-inf")

    async def select(
        self, booking_id: str, *, key: str, candidates: Sequence[Candidate], terms: Terms
    ) -> Selection:
        """Let the plane choose and book. Without a choice nothing stays booked under this id, and it is used up.

        Cancelling it leaves nothing booked either.
        """
        miss = self._refusal()
        if miss is None:
            return await self._ask(
                Booking(booking_id, key, "", self._table.owner, NOTHING), candidates, terms
            )
        return self._missed(miss)

    def _refusal(self) -> Miss | None:
        if len(self._table.awaited) >= self._most:
            return Miss.BUSY
        miss = self._ready()
        if miss is not None:
            return miss
        if len(self._table.outbox) > UNTOLD_MOST:
            return Miss.BEHIND
        now = self._clock()
        if self._breaker.state is Health.AWAY:
            if now - self._probed_at < REST_SECONDS:
                return Miss.RESTING
            self._probed_at = now
        return None

    async def _ask(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Selection:
        began = self._clock()
        self._table.awaited[booking.id] = began
        outcome: Outcome | None = None
        call = asyncio.ensure_future(self._line.ask(self._plane.select(booking, candidates, terms)))
        try:
            if not await self._in_time(call):
                return self._late(f"no choice within {self._budget:g} s")
            outcome = call.result()
        except StatePlaneError:
            return self._missed(Miss.FAILED)
        except ValueError as error:
            self._line.counts.invalid += 1
            log.error("choice refused by its values", reason=str(error))  # noqa: TRY400 - no trace needed
            return self._missed(Miss.FAILED)
        except asyncio.CancelledError:
            self.counts.abandoned += 1
            raise
        finally:
            call.add_done_callback(_heard)
            call.cancel()
            del self._table.awaited[booking.id]
            if outcome is None:  # whether it was booked is not known
                self._claims.end(booking.id, Cause.REFUSED, self._clock())
        self._breaker.answered(self._clock(), self._clock() - began)
        return self._answered(booking.id, outcome, began)

    async def _in_time(self, call: asyncio.Future[Outcome]) -> bool:
        """Wait for an answer within the budget; False: there is none."""
        await asyncio.wait((call,), timeout=self._budget)
        for _ in range(LAST_TURNS):
            if call.done():
                break
            await asyncio.sleep(0)
        return call.done()

    def _answered(self, booking_id: str, outcome: Outcome, began: float) -> Selection:
        if outcome.status is Status.FULL:
            return self._missed(Miss.FULL)
        chosen = outcome.booking
        if (
            outcome.status not in (Status.DONE, Status.SAME)
            or chosen is None
            or chosen.owner != self._table.owner
        ):
            self._claims.end(booking_id, Cause.REFUSED, self._clock())
            return self._missed(Miss.FAILED)
        self.counts.chosen += 1
        self._claims.selected(chosen, outcome, began=began, now=self._clock())
        return Selection(booking=chosen)

    def _late(self, reason: str) -> Selection:
        now = self._clock()
        if self._breaker.failed(now, reason) and self._breaker.state is Health.AWAY:
            self._probed_at = now
        return self._missed(Miss.LATE)

    def _missed(self, miss: Miss) -> Selection:
        self.counts.missed[miss] += 1
        return Selection(miss=miss)


def _heard(call: asyncio.Future[Outcome]) -> None:
    """A call that nobody waits for any more: what became of it is told by the end of its id."""
    if not call.cancelled():
        call.exception()
