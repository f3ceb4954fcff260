"""One engine block: where it lies in a prompt, and how many copies of it lie on each tier."""

from __future__ import annotations

from array import array
from typing import Final

from picker.events.records import TIERS

EMPTY: Final = array("I")


class Node:
    """
    One engine block. ``own`` is our hash where a block of the pool ends here; ``base`` the last one at or
    before here.
    """

    __slots__ = ("alone", "base", "copies", "held_children", "key", "linked", "mask", "media", "opaque", "own",
                 "parent", "placed", "seed", "since", "tail", "tail_media", "tokens")  # fmt: skip

    def __init__(
        self,
        key: int,
        parent: int | None,
        tokens: array[int],
        *,
        now: float,
        opaque: bool = False,
        media: tuple[int, ...] = (),
        alone: int | None = None,
    ) -> None:
        self.key = key
        self.parent = parent
        self.tokens: array[int] = tokens
        """Its own tokens until it is placed; empty after."""
        self.media = media
        """Media in it, until it is placed."""
        self.alone = alone
        """Its own hash, unchained, where the source gave it instead of tokens."""
        self.copies = [0] * TIERS
        self.held_children = 0
        self.placed = False
        self.opaque = opaque
        """Nothing may match it, nor what follows it."""
        self.linked = False
        self.mask = 0
        self.own: int | None = None
        self.base: int | None = None
        self.tail: array[int] = EMPTY
        """Tokens since the last block of the pool ended, and the media among them."""
        self.tail_media: tuple[int, ...] = ()
        self.seed = 0
        self.since = now

    @property
    def held(self) -> bool:
        """Whether the engine holds a copy on any tier."""
        return any(self.copies)

    @property
    def tiers(self) -> int:
        """Bit mask of the tiers with a copy."""
        return sum(1 << tier for tier, copies in enumerate(self.copies) if copies)
