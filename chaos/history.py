"""The history of a run: every call, fault and look, in the order it happened. Append-only JSON lines.

One record a line: ``{"t": seconds, "process": who, "f": what, "type": ..., "value": {...}}``, with these types:
``invoke`` begins something; ``ok`` and ``fail`` say how it ended for certain; ``info`` says that nobody can tell (what
timed out may have been carried out all the same) or notes something that has no end of its own.
``t`` is the machine's monotonic clock, so it never steps, and never falls from one line to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, get_args

import orjson

Type = Literal["invoke", "ok", "fail", "info"]
TYPES: tuple[Type, ...] = get_args(Type)
SCHEMA = 1


class HistoryError(Exception):
    """A history that cannot be believed: says the file, the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line."""

    t: float
    process: str
    f: str
    type: Type
    value: Mapping[str, Any]


class Writer:
    """Appends records; ``with`` closes the file. A record is in the file (not on the disk) when ``write`` returns."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.file = file
        self.records = 0
        self._clock = clock
        self._last = 0.0
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out: BinaryIO = file.open("xb", buffering=1 << 16)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, process: str, f: str, type_: Type, **value: Any) -> float:
        """Append one record and return its time."""
        t = self._last = max(self._last, self._clock())
        line = {"t": round(t, 6), "process": process, "f": f, "type": type_, "value": value}
        self._out.write(orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS) + b"\n")
        self.records += 1
        return t

    def close(self) -> None:
        """Write out what is buffered."""
        self._out.close()


def read(file: Path) -> list[Record]:
    """All records of a file. Raises HistoryError for one that is cut short or not a history."""
    try:
        with file.open("rb") as lines:
            return list(parse(lines, name=str(file)))
    except OSError as error:
        raise HistoryError(f"{file} cannot be read: {error}") from error


def parse(lines: Iterable[bytes], *, name: str = "history") -> Iterator[Record]:
    """Records of lines, each checked. Raises HistoryError."""
    last, open_calls, number = 0.0, dict[str, str](), 0
    for number, line in enumerate(lines, 1):
        record = _record(line, f"{name}:{number}")
        if record.t < last:
            raise HistoryError(f"{name}:{number}: time falls from {last} to {record.t}")
        _paired(record, open_calls, f"{name}:{number}")
        last = record.t
        yield record
    if not number:
        raise HistoryError(f"{name} is empty")


def _record(line: bytes, where: str) -> Record:
    if not line.endswith(b"\n"):
        raise HistoryError(f"{where}: the line is cut short")
    try:
        row = orjson.loads(line)
        record = Record(row["t"], row["process"], row["f"], row["type"], row["value"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise HistoryError(f"{where}: no record: {error!r}") from error
    good = isinstance(record.t, int | float) and isinstance(record.process, str) and isinstance(record.f, str)
    if not good or record.type not in TYPES or not isinstance(record.value, dict):
        raise HistoryError(f"{where}: a field has the wrong kind of value")
    return record


def _paired(record: Record, open_calls: dict[str, str], where: str) -> None:
    """A call of a client begins once and ends at most once."""
    if record.f != "call":
        return
    state = open_calls.get(record.process)
    if record.type == "invoke":
        if state is not None:
            raise HistoryError(f"{where}: {record.process} begins a second time")
        open_calls[record.process] = "open"
    else:
        if state != "open":
            raise HistoryError(f"{where}: {record.process} ends without having begun, or twice")
        open_calls[record.process] = "ended"
