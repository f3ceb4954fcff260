"""Mutants of sums."""

from __future__ import annotations

from stateplane.booking import NOTHING, Booking
from stateplane.tally import Tally


def release_doubled() -> None:
    """What is taken off a worker's sums is taken off twice."""
    rightly = Tally._take  # noqa: SLF001 - a mutant breaks what is inside

    def wrongly(self: Tally, booking: Booking) -> None:
        rightly(self, booking)
        loads = self._loads
        loads[booking.worker] = loads.get(booking.worker, NOTHING) - booking.amount

    setattr(Tally, "_take", wrongly)  # noqa: B010 - a plain assignment to a method is none that a type allows
