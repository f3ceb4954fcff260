"""Workers by what they carry: those that carry the same make one group, and the groups are kept in order of load.

So a pick compares groups, not workers. Two workers of one group differ in price only by what they hold of the prompt;
two that hold the same of it differ by the *standings* of their groups, the price of their loads without any request.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from picker.core.match import bits

Part = tuple[float, float, float]
"""What is added up of a load before a request comes into it: tokens, blocks, the price's part for requests."""

ROUNDING: Final = 1e-12
"""Two orders of adding up one price differ by less than this share of it: a handful of roundings of 1.1e-16 each."""

LOOKS: Final = 8
"""So many of the least loaded groups are looked through for workers of a mask, then these are looked at themselves."""


class Group:
    """The workers, by their seats, that carry the same, as the idle ones do."""

    __slots__ = ("mask", "part", "standing")

    def __init__(self, part: Part, standing: float) -> None:
        self.part, self.standing, self.mask = part, standing, 0
        """``standing`` is about the price of a request of nothing."""


class Groups:
    """The groups of the workers on some seats. ``common`` is about what a request adds to the price of each."""

    __slots__ = ("_by_part", "_of", "_order", "_standings", "taken")

    def __init__(self, seats: int) -> None:
        self._by_part: dict[Part, Group] = {}
        self._of: list[Group | None] = [None] * seats
        self._order: list[Group] = []
        self._standings: list[float] = []
        """Of each group in that order: rising."""
        self.taken = 0
        """Mask of the seats with a worker that is in a group; for reading only."""

    @property
    def least(self) -> float:
        """How the first group stands; there must be one."""
        return self._standings[0]

    def grow(self, more: int) -> None:
        """So many more seats."""
        self._of += [None] * more

    def of(self, seat: int) -> Group | None:
        """The group that the worker on that seat is in."""
        return self._of[seat]

    def join(self, seat: int, part: Part, standing: float) -> None:
        """The worker on that seat, who is in no group, carries that much."""
        group = self._by_part.get(part)
        if group is None:
            group = self._by_part[part] = Group(part, standing)
            at = bisect_right(self._standings, standing)
            self._standings.insert(at, standing)
            self._order.insert(at, group)
        bit = 1 << seat
        group.mask |= bit
        self.taken |= bit
        self._of[seat] = group

    def leave(self, seat: int, group: Group) -> None:
        """The worker on that seat is in its group no longer."""
        bit = 1 << seat
        group.mask ^= bit
        self.taken ^= bit
        self._of[seat] = None
        if group.mask:
            return
        del self._by_part[group.part]
        at = bisect_left(self._standings, group.standing)
        while self._order[at] is not group:
            at += 1
        del self._standings[at], self._order[at]

    def all_of(self, mask: int) -> Iterable[Group]:
        """The groups of those of the mask; all of them are in one."""
        if not mask & (mask - 1):
            alone = self._of[mask.bit_length() - 1] if mask else None
            return () if alone is None else (alone,)
        return {group for group in map(self._of.__getitem__, bits(mask)) if group is not None}

    def near(self, mask: int, common: float) -> Iterable[Group]:
        """The groups of those of the mask that carry the least, and what comes so near that roundings decide."""
        if not mask & (mask - 1):
            return self.all_of(mask)
        order, standings = self._order, self._standings
        for at in range(min(LOOKS, len(order))):
            group = order[at]
            if group.mask & mask:
                reach = _reach(group, common)
                if at + 1 == len(order) or standings[at + 1] > reach:
                    return (group,)
                return [one for one in order[at : bisect_right(standings, reach, lo=at)] if one.mask & mask]
        return self.all_of(mask)

    def first(self, mask: int, common: float, most: int) -> Iterator[Group]:
        """The groups of the ``most`` of the mask that carry the least, and what comes near the last of them."""
        reach = inf
        for group in self._order:
            if group.standing > reach:
                return
            here = group.mask & mask
            if here:
                yield group
                most -= here.bit_count()
                if most <= 0 and reach == inf:
                    reach = _reach(group, common)


def _reach(group: Group, common: float) -> float:
    """What stands beyond that costs more than the group, however the price is added up."""
    return group.standing + ROUNDING * (group.standing + common + 1.0)
