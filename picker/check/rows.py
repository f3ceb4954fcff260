"""The outcome of each check, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What became of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, and is worth a look."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be checked, or does not apply."""


@dataclass(frozen=True, slots=True)
class Row:
    """One check."""

    check: str
    where: str
    """A replica, an address or a name; empty: all of them."""
    state: State
    reason: str
    remedy: str = ""
    """What to do; empty where nothing needs to be done."""


def ok(check: str, where: str, reason: str) -> Row:
    """It holds."""
    return Row(check, where, State.OK, reason)


def warning(check: str, where: str, reason: str, remedy: str = "") -> Row:
    """It holds, but."""
    return Row(check, where, State.WARNING, reason, remedy)


def failed(check: str, where: str, reason: str, remedy: str = "") -> Row:
    """It does not hold."""
    return Row(check, where, State.FAILED, reason, remedy)


def skipped(check: str, where: str, reason: str, remedy: str = "") -> Row:
    """Nobody knows."""
    return Row(check, where, State.SKIPPED, reason, remedy)


def exit_status(rows: Iterable[Row]) -> int:
    """0 where nothing failed."""
    return int(any(row.state is State.FAILED for row in rows))


def as_json(rows: Sequence[Row]) -> Mapping[str, Any]:
    """All rows, and how many there are of each state."""
    return {
        "ok": not exit_status(rows),
        "states": {str(state): sum(row.state is state for row in rows) for state in State},
        "checks": [asdict(row) | {"state": str(row.state)} for row in rows],
    }


def table(rows: Sequence[Row]) -> Iterable[str]:
    """One line a row, remedies below those that need one, and a last line that sums up."""
    checks = max((len(row.check) for row in rows), default=0)
    places = max((len(row.where) for row in rows), default=0)
    for row in rows:
        yield f"{row.state:<8} {row.check:<{checks}}  {row.where:<{places}}  {row.reason}".rstrip()
        if row.remedy and row.state is not State.OK:
            yield f"{'':<8} -> {row.remedy}"
    counts = (f"{sum(row.state is state for row in rows)} {state}" for state in State)
    yield f"{len(rows)} checks: {', '.join(counts)}"
