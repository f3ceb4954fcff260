"""A response's bytes on their way past the reading that wants to see them: whatever it does, the response goes on."""

from __future__ import annotations

from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.seam import Responded, ResponseReading

MAX_KEPT = 1024 * 1024
"""Most bytes of one response that a reading may hold back."""


class Passage:
    """One reading at work. What it raises ends it, what it holds back is paid, what it may not change stays."""

    __slots__ = ("_budget", "_changed", "_counts", "_kept", "_reading", "rewrites")

    def __init__(self, reading: ResponseReading, *, budget: Budget, counts: Counts) -> None:
        self._reading: ResponseReading | None = reading
        self._budget = budget
        self._counts = counts
        self._kept = 0
        self._changed = False
        self.rewrites = False
        """Whether it may still ask for other bytes than came."""
        self._look()

    def begin(self, response: Responded) -> None:
        """Response headers were seen."""
        if self._reading is None:
            return
        self._counts.responses_read += 1
        try:
            self._reading.begin(response)
        except Exception:  # noqa: BLE001 - whatever a reading does, the response goes on
            self._failed()
            return
        self._look()

    def piece(self, data: bytes, *, end: bool) -> bytes:
        """What goes on instead of ``data``."""
        if self._reading is None:
            return data
        try:
            told = self._reading.piece(data, end=end)
            changed = data if told is None or not self.rewrites else _bytes(told)
        except Exception:  # noqa: BLE001 - whatever a reading does, the response goes on
            self._failed()
            return data
        if not self._changed and changed is not data and changed != data:
            self._changed = True
            self._counts.responses_rewritten += 1
        if end:
            self.drop()
        elif not self._hold(data, changed):
            self._counts.reading_overruns += 1
            changed += self.finish()
        return changed

    def finish(self) -> bytes:
        """End the reading before the response's end; returns what it held back."""
        if self._reading is None:
            return b""
        return self.piece(b"", end=True)

    def drop(self) -> None:
        """End the reading: nothing of the response goes past it any more."""
        self._reading = None
        self.rewrites = False
        self._budget.give(self._kept)
        self._kept = 0

    def _look(self) -> None:
        try:
            self.rewrites = bool(self._reading is not None and self._reading.rewrites)
        except Exception:  # noqa: BLE001 - whatever a reading does, the response goes on
            self._failed()

    def _hold(self, data: bytes, changed: bytes) -> bool:
        """Pay for what is held back: all that came since something last went on. False where that is too much."""
        if changed:
            self._budget.give(self._kept)
            self._kept = 0
            return True
        if self._kept + len(data) > MAX_KEPT or not self._budget.take(len(data), paid=self._kept):
            return False
        self._kept += len(data)
        return True

    def _failed(self) -> None:
        self._counts.reading_errors += 1
        self._counts.response_tails_lost += bool(self._kept)
        self.drop()


def _bytes(told: object) -> bytes:
    if not isinstance(told, bytes):
        raise TypeError(f"a reading must return bytes or None, not {type(told).__name__}")
    return told
