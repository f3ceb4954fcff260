"""What one worker is believed to hold, looked at alone: the long way to what masks tell of all at once."""

from __future__ import annotations

from collections.abc import Sequence

from picker.core.believed import Seats
from picker.core.predicted import Predicted


def reach(
    predicted: Predicted, seats: Seats, worker: str, hashes: Sequence[int], *, held: int = 0, now: float
) -> int:
    """How many leading blocks the worker holds or is about to hold: ``held`` by the index, or more."""
    slot, runs = seats.slot(worker), predicted.runs(hashes, now)
    return max([held, *(length for mask, length in runs if slot is not None and mask >> slot & 1)])
