"""What workers carry, seat by seat, as it is now and as it was at any pick that somebody still asks about.

A pick keeps no copy: what changes afterwards is written down beside the loads, and taken back when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, overload

from picker.core.choose import Candidate
from picker.core.load import NO_LOAD, Load
from picker.core.match import NO_OVERLAP, Overlap, Shares

LEAST_CHANGES: Final = 64
"""So many changes at least, and as many as there are seats, are written down before the loads are copied."""


class Carried(Protocol):
    """A load by any name. It never changes; another load is another value."""

    @property
    def prefill_tokens(self) -> float:
        """Prompt tokens still to be computed."""
        ...

    @property
    def blocks(self) -> float:
        """KV blocks, of the pool's block size."""
        ...

    @property
    def requests(self) -> float:
        """Requests."""
        ...


class Loads:
    """What is booked on each seat, and carried there beyond that, with a log of the changes since it was made.

    The log is bounded: where it is full, `put` answers with a copy that has an empty one, and this is never changed
    again. So a pick that is still asked about keeps this alone in memory, and to go back to it undoes few changes.
    """

    __slots__ = ("_changes", "booked", "unbooked")

    def __init__(self, booked: list[Carried], unbooked: list[Load]) -> None:
        self.booked, self.unbooked = booked, unbooked
        """For reading only."""
        self._changes: list[tuple[int, Carried, Load]] = []
        """Which seat, and what was there before."""

    @classmethod
    def of(cls, seats: int) -> Loads:
        """Nothing on so many seats."""
        return cls([NO_LOAD] * seats, [NO_LOAD] * seats)

    @property
    def changes(self) -> int:
        """How many there were: the moment, for `at`."""
        return len(self._changes)

    def put(self, seat: int, booked: Carried, unbooked: Load) -> Loads:
        """Another load on that seat. The answer is where the next one is to be put: this, or a copy to go on with."""
        changes = self._changes
        changes.append((seat, self.booked[seat], self.unbooked[seat]))
        self.booked[seat], self.unbooked[seat] = booked, unbooked
        if len(changes) <= max(LEAST_CHANGES, len(self.booked)):
            return self
        return Loads(self.booked[:], self.unbooked[:])

    def grown(self, more: int) -> Loads:
        """A copy to go on with that has so many more seats."""
        return Loads([*self.booked, *[NO_LOAD] * more], [*self.unbooked, *[NO_LOAD] * more])

    def at(self, moment: int) -> tuple[Sequence[Carried], Sequence[Load]]:
        """What was booked, and carried beyond that, after so many changes."""
        booked, unbooked = self.booked[:], self.unbooked[:]
        for seat, had, more in reversed(self._changes[moment:]):
            booked[seat], unbooked[seat] = had, more
        return booked, unbooked


class Weighed(Sequence[Candidate]):
    """The candidates of one pick as they were, each made only when somebody looks at it."""

    __slots__ = ("_limit", "_loads", "_moment", "_names", "_seats", "_shares")

    def __init__(
        self, seats: Sequence[int], names: Sequence[str], loads: Loads, shares: Shares, limit: int
    ) -> None:
        """The workers on these seats; ``names`` are by seat. The loads are taken as they are now."""
        self._seats, self._names, self._shares, self._limit = seats, names, shares, limit
        self._loads, self._moment = loads, loads.changes

    def __len__(self) -> int:
        return len(self._seats)

    @overload
    def __getitem__(self, at: int) -> Candidate: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, at: int | slice) -> Candidate | Sequence[Candidate]:
        if isinstance(at, slice):
            return list(self._candidates(self._seats[at]))
        return next(self._candidates([self._seats[at]]))

    def __iter__(self) -> Iterator[Candidate]:
        return self._candidates(self._seats)

    def _candidates(self, seats: Sequence[int]) -> Iterator[Candidate]:
        booked, unbooked = self._loads.at(self._moment)
        for seat in seats:
            yield candidate(
                self._names[seat], booked[seat], unbooked[seat], held(self._shares, seat), self._limit
            )


def candidate(name: str, booked: Carried, unbooked: Load, overlap: Overlap, limit: int) -> Candidate:
    """A worker with its load, by its own name."""
    load = Load(booked.prefill_tokens, booked.blocks, booked.requests)
    return Candidate(name, load, unbooked, overlap, limit)


def held(shares: Shares, seat: int) -> Overlap:
    """What the worker on that seat holds."""
    for mask, overlap in shares:
        if mask >> seat & 1:
            return overlap
    return NO_OVERLAP
