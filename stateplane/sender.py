"""Empties the outbox: many bookings at once, the calls of one booking one after the other.

To a plane that takes calls together all that waits goes in one write, and what comes meanwhile in the next one: at a
thousand picks a second that costs a fraction of a task and two timers for each call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import zip_longest

import structlog

from stateplane.booking import Outcome
from stateplane.calls import Call, Together
from stateplane.claims import Claims
from stateplane.errors import StatePlaneError
from stateplane.hearing import Hearing
from stateplane.line import Line
from stateplane.plane import StatePlane
from stateplane.table import Table

log = structlog.get_logger(__name__)

APART_SECONDS, APART_CALLS = 0.0015, 4
"""Least time between two writes once one has taken so many calls along: each wakes the server, which costs both sides
more than a call does. Where few come, none waits."""


class Sender:
    """Tells the plane about each booking in the outbox until it agrees or does not answer, while ``gate`` is set.

    ``told`` is awaited after each booking: it may have been the last one owed.
    """

    def __init__(
        self,
        plane: StatePlane,
        table: Table,
        line: Line,
        *,
        clock: Callable[[], float],
        parallel: int,
        told: Callable[[], Awaitable[None]],
    ) -> None:
        self.gate = asyncio.Event()
        self._plane = plane
        self._table = table
        self._outbox = table.outbox
        self._hearing = Hearing(table)
        self._claims = Claims(table)
        self._line = line
        self._clock = clock
        self._parallel = parallel
        self._together: Together | None = plane if isinstance(plane, Together) else None
        self._told = told
        self._sending = 0
        self._flushing = False
        """Whether nothing is to wait any more."""
        self._next_at = 0.0
        """When calls may go together again, by the event loop's clock."""
        self._landed = asyncio.Event()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Until cancelled."""
        while True:
            await self.gate.wait()
            await self._outbox.filled()
            if self._together is not None:
                await self._outbox.gathered()
            await self._launch(tasks)
            if self._table.unsaid and not self._outbox:
                self._hearing.sweep(self._clock())

    async def flush(self) -> None:
        """Until nothing waits any more, or the gate closes."""
        self._flushing = True
        async with asyncio.TaskGroup() as tasks:
            while (self._outbox or self._sending) and self.gate.is_set():
                await self._launch(tasks)
                if not self._outbox:
                    await self._landing()

    async def _launch(self, tasks: asyncio.TaskGroup) -> None:
        if self._together is not None:
            await self._launch_all(tasks, self._together)
        elif self._sending >= self._parallel:
            await self._landing()
        elif self.gate.is_set() and (booking_id := self._outbox.take()) is not None:
            self._sending += 1
            tasks.create_task(self._tell(booking_id))

    async def _launch_all(self, tasks: asyncio.TaskGroup, plane: Together) -> None:
        loop = asyncio.get_running_loop()
        if self._sending:
            await self._landing()
        if (soon := self._next_at - loop.time()) > 0:
            await asyncio.sleep(soon)
        if not self._sending and self.gate.is_set() and (begun := self._begun()):
            self._sending = len(begun)
            self._next_at = loop.time() + APART_SECONDS if len(begun) >= APART_CALLS else 0.0
            tasks.create_task(self._tell_all(begun, plane))

    def _begun(self) -> list[tuple[str, Call]]:
        """The calls to make about what has waited longest."""
        now = self._clock()
        begun: list[tuple[str, Call]] = []
        for booking_id in self._outbox.due(math.inf if self._flushing else now, self._parallel):
            call = self._claims.begin(booking_id, now)
            if call is not None:
                begun.append((booking_id, call))
        return begun

    async def _tell_all(self, begun: Sequence[tuple[str, Call]], plane: Together) -> None:
        answers: Sequence[Outcome | Exception] = ()
        try:
            calls = [call for _, call in begun]
            answers = await self._line.ask_all(plane.together(calls), len(calls))
        finally:
            now = self._clock()
            for (booking_id, call), answer in zip_longest(begun, answers):
                self._answered(booking_id, call, answer, now)
            self._sending = 0
            self._landed.set()
        with suppress(StatePlaneError):
            await self._told()

    def _answered(self, booking_id: str, call: Call, answer: Outcome | Exception | None, now: float) -> None:
        """What a call was answered; None or an error of the plane: nothing."""
        if isinstance(answer, Outcome):
            self._claims.answered(booking_id, call, answer, now)
            return
        if isinstance(answer, ValueError):
            self._refused(booking_id, call, answer)
        self._claims.unanswered(booking_id, call, now)

    def _refused(self, booking_id: str, call: Call, error: ValueError) -> None:
        self._line.counts.invalid += 1
        self._claims.refused(booking_id)
        log.error("booking refused by its values", call=type(call).__name__, reason=str(error))

    async def _landing(self) -> None:
        """Wait until a call in flight has come back."""
        self._landed.clear()
        if self._sending:
            await self._landed.wait()

    async def _tell(self, booking_id: str) -> None:
        try:
            while (call := self._claims.begin(booking_id, self._clock())) is not None:
                if not await self._call(booking_id, call):
                    return
            with suppress(StatePlaneError):
                await self._told()
        finally:
            self._sending -= 1
            self._landed.set()

    async def _call(self, booking_id: str, call: Call) -> bool:
        answered = False
        try:
            outcome = await self._line.ask(call.on(self._plane))
            answered = True
        except StatePlaneError:
            return False
        except ValueError as error:
            self._refused(booking_id, call, error)
            return False
        finally:
            if not answered:
                self._claims.unanswered(booking_id, call, self._clock())
        self._claims.answered(booking_id, call, outcome, self._clock())
        return True
