"""Mutants of single bookings: sums, terms, tombstones, attempts."""

from __future__ import annotations

from typing import Any

from chaos.mutants.planting import exchange, exchange_lua
from stateplane.booking import NOTHING, Booking, Outcome, Status
from stateplane.ledger import ledger, placing
from stateplane.ledger.register import Register
from stateplane.tally import OnWorker, Tally


def release_doubled() -> None:
    """What is taken off a worker's sums in a view is taken off twice."""

    def make(rightly: Any) -> Any:
        def wrongly(self: Tally, booking: Booking) -> bool:
            changed: bool = rightly(self, booking)
            less, there = NOTHING - booking.amount, self._workers.setdefault(booking.worker, OnWorker())
            there.add(less.prefill_tokens, less.blocks, less.requests, own=False)
            return changed

        return wrongly

    exchange(Tally, "_take", make)


def end_kept_in_sums() -> None:
    """The plane's server forgets the blocks of what ends when it takes it off its own sums."""
    exchange_lua(
        "prelude",
        "  count(r[WORKER],0-r[TOKENS],0-r[BLOCKS],0-r[REQUESTS])",
        "  count(r[WORKER],0-r[TOKENS],0,0-r[REQUESTS])",
    )


def term_ignored() -> None:
    """An operation takes effect whatever term it belongs to and whoever sends it."""

    def make(rightly: Any) -> Any:
        def wrongly(register: Register, owner: Any, booking_id: str, *, term: int, op: int, at: int) -> Any:
            entry, refused = rightly(register, owner, booking_id, term=term, op=op, at=at)
            if refused.status is Status.STALE:
                return register.settled(register.entries[booking_id]), Outcome(Status.DONE)
            return entry, refused

        return wrongly

    exchange(ledger, "owned", make)


def no_tombstones() -> None:
    """The plane forgets what has ended at once."""
    exchange_lua("ending", "  call('HSET',tombs,id,till..' '..cause..' '..raw)", "")


def history_lost() -> None:
    """The plane knows nothing of the attempts before."""

    def make(rightly: Any) -> Any:
        def wrongly(register: Register, entry: Any, at: int, **how: bool) -> Any:
            register.attempts.pop(entry.booking.key, None)
            return rightly(register, entry, at, **how)

        return wrongly

    exchange(placing, "_rank", make)
