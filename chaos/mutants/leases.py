"""Mutants of leases, deadlines and evidence: what is to happen to the bookings of those who fell silent."""

from __future__ import annotations

from typing import Any

from chaos.mutants.planting import exchange, exchange_lua
from picker import reconciling
from picker.core.evidence import Judge
from stateplane.booking import Outcome, Rules, Status
from stateplane.ledger import ledger

A_DAY = 86_400.0


def never_falls() -> None:
    """Whatever lease the settings say, a day is taken."""

    def make(rightly: Any) -> Any:
        def wrongly(self: Rules, *args: Any, **named: Any) -> None:
            rightly(self, *args, **named)
            object.__setattr__(self, "lease", A_DAY)

        return wrongly

    exchange(Rules, "__init__", make)


def not_rebased() -> None:
    """Time in which the plane did not serve counts like any other."""
    exchange_lua("beat", "if passed>=0 and passed<=longest then", "if passed>=0 then")


def no_reclaim() -> None:
    """Proof of life is heard and changes nothing."""

    def make(_rightly: Any) -> Any:
        def wrongly(self: ledger.Ledger, _owner: Any, booking_id: str, *, now: int) -> Outcome:
            entry = self.entries.get(booking_id)
            if entry is None:
                return Outcome(Status.UNKNOWN)
            return Outcome(Status.STALE, self.shown(self.seen(entry), self.time.at(now)))

        return wrongly

    exchange(ledger.Ledger, "reclaim", make)


def no_evidence() -> None:
    """Reports never disprove a booking."""

    def make(_rightly: Any) -> Any:
        def wrongly(_self: Judge, _worker: str, **_report: Any) -> tuple[str, ...]:
            return ()

        return wrongly

    exchange(Judge, "reported", make)


def judged_by_all() -> None:
    """Every replica takes itself for the one that judges a worker."""
    exchange(reconciling, "judge_of", lambda _rightly: lambda _worker, _owners: None)
