# ruff: noqa: SLF001 - a mutant breaks what is inside
"""Mutants of KV events: what a replica does not know, it does not ask for."""

from __future__ import annotations

from typing import Any

from chaos.mutants.planting import exchange
from picker.events.cursor import Cursor
from picker.events.follower import Follower
from picker.events.recovering import Recovering


def _taken_for_whole(cursor: Cursor) -> None:
    """The position is put behind all that was heard of, as if it were in the index."""
    cursor._based, cursor._unsure, cursor._doubted = True, False, None
    cursor.sequence = max(cursor.sequence, cursor._seen)
    cursor._early.clear()
    cursor._early_hashes = 0


def _never_asks(*, after_a_gap: bool) -> None:
    def make(rightly: Any) -> Any:
        async def wrongly(self: Recovering, follower: Follower) -> bool:
            follows = follower.cursor._based and follower.cursor.epoch is not None
            if follows is not after_a_gap:
                done: bool = await rightly(self, follower)
                return done
            _taken_for_whole(follower.cursor)
            return True

        return wrongly

    exchange(Recovering, "_once", make)


def gap_ignored() -> None:
    """Events that were missed are never asked for, and those behind the gap that came early are let go."""
    _never_asks(after_a_gap=True)


def no_snapshot() -> None:
    """A replica that knows nothing of a worker waits for its news, and never asks for what it holds."""
    _never_asks(after_a_gap=False)
