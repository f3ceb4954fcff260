"""What a bridge announces: blocks by sequence hash and tier, and the changes of it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from picker.events.records import TIERS

_BITS: Final = 20
_ONE: Final = tuple(1 << (_BITS * tier) for tier in range(TIERS))
_FIELD: Final = tuple(((1 << _BITS) - 1) << (_BITS * tier) for tier in range(TIERS))


@dataclass(frozen=True, slots=True)
class Change:
    """Blocks of one tier that are announced or withdrawn; ``cleared`` withdraws everything."""

    kind: Literal["stored", "removed", "cleared"]
    tier: int = 0
    hashes: tuple[int, ...] = ()


class Announced:
    """
    Which blocks are announced on which tiers, counted: a block may be held under several engine hashes.

    Changes gather until ``collect`` takes them; neighbours of one kind and tier become one.
    """

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._run: list[int] = []
        self._kind: tuple[Literal["stored", "removed"], int] = ("stored", 0)
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._count)

    def put(self, block: int, tier: int) -> None:
        """One more reason to announce the block on that tier."""
        before = self._count.get(block, 0)
        self._count[block] = before + _ONE[tier]
        if not before & _FIELD[tier]:
            self._note("stored", tier, block)

    def take(self, block: int, tier: int) -> None:
        """One reason less."""
        left = self._count[block] - _ONE[tier]
        if left:
            self._count[block] = left
        else:
            del self._count[block]
        if not left & _FIELD[tier]:
            self._note("removed", tier, block)

    def clear(self) -> None:
        """Nothing is announced any more."""
        self._count.clear()
        self._run = []
        self._changes = [Change("cleared")]

    def collect(self) -> list[Change]:
        """The changes since the last call, in their order."""
        self._flush()
        changes, self._changes = self._changes, []
        return changes

    def tier(self, tier: int) -> list[int]:
        """
        The blocks announced on one tier; a block comes after those before it in its prompt, as far as they
        share its tier.
        """
        field = _FIELD[tier]
        return [block for block, count in self._count.items() if count & field]

    def _note(self, kind: Literal["stored", "removed"], tier: int, block: int) -> None:
        if self._kind != (kind, tier):
            self._flush()
            self._kind = (kind, tier)
        self._run.append(block)

    def _flush(self) -> None:
        if self._run:
            self._changes.append(Change(self._kind[0], self._kind[1], tuple(self._run)))
            self._run = []
