"""Empties the outbox: many bookings at once, the calls of one booking one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from stateplane.calls import Call
from stateplane.claims import Claims
from stateplane.errors import StatePlaneError
from stateplane.hearing import Hearing
from stateplane.line import Line
from stateplane.plane import StatePlane
from stateplane.table import Table

log = structlog.get_logger(__name__)


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
        self._told = told
        self._sending = 0
        self._landed = asyncio.Event()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Until cancelled."""
        while True:
            await self.gate.wait()
            await self._outbox.filled()
            await self._launch(tasks)
            if self._table.unsaid and not self._outbox:
                self._hearing.sweep(self._clock())

    async def flush(self) -> None:
        """Until nothing waits any more, or the gate closes."""
        async with asyncio.TaskGroup() as tasks:
            while (self._outbox or self._sending) and self.gate.is_set():
                await self._launch(tasks)
                if not self._outbox:
                    await self._landing()

    async def _launch(self, tasks: asyncio.TaskGroup) -> None:
        if self._sending >= self._parallel:
            await self._landing()
        elif self.gate.is_set() and (booking_id := self._outbox.take()) is not None:
            self._sending += 1
            tasks.create_task(self._tell(booking_id))

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
            self._line.counts.invalid += 1
            self._claims.refused(booking_id)
            reason = str(error)
            log.error("booking refused by its values", call=type(call).__name__, reason=reason)  # noqa: TRY400 - no trace needed
            return False
        finally:
            if not answered:
                self._claims.unanswered(booking_id, call, self._clock())
        self._claims.answered(booking_id, call, outcome, self._clock())
        return True
