"""Streams that are over, as far as they are remembered: late frames on them mean different things."""

from __future__ import annotations

from enum import Enum, auto


class How(Enum):
    """How a stream came to its end."""

    LEFT = auto()
    """We ended it before the peer did: what comes late is ignored."""
    RESET = auto()
    """The peer reset it: it must send no more."""
    ENDED = auto()
    """Both sides ended it: nothing can come."""


class Past:
    """The streams that were over last, at least ``most`` of them and at most twice as many."""

    __slots__ = ("_most", "_new", "_old")

    def __init__(self, most: int) -> None:
        self._most = most
        self._new: dict[int, How] = {}
        self._old: dict[int, How] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def note(self, stream: int, how: How) -> None:
        """A stream is over."""
        self._new[stream] = how
        if len(self._new) >= self._most:
            self._old, self._new = self._new, {}

    def how(self, stream: int) -> How | None:
        """How it ended; None where that is forgotten, or never was."""
        return self._new.get(stream) or self._old.get(stream)
