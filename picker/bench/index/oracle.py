"""The index against the naive definition: of each worker the longest prefix whose every block it holds.

Workers store pieces of prompts, drop blocks anywhere in the middle, store them again, move them between tiers, are
cleared, leave and join. What each announces is kept prefix-closed, as a bridge keeps it: what follows a missing block
is withdrawn, and announced again when the block returns. The oracle never sees what was announced; it looks at what
the workers hold.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from picker.bench.index.population import names
from picker.core.index import Overlap, PrefixIndex

TIERS = 2


@dataclass(slots=True)
class Tree:
    """All prompts there are: each block is a node under the block before it."""

    hashes: list[int] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)
    kids: list[list[int]] = field(default_factory=list)

    def new(self, parent: int | None, rng: random.Random) -> int:
        """One more block."""
        self.hashes.append(rng.getrandbits(64))
        self.parents.append(parent)
        self.kids.append([])
        node = len(self.hashes) - 1
        if parent is not None:
            self.kids[parent].append(node)
        return node

    def path(self, node: int) -> list[int]:
        """The prompt that ends with that block."""
        found, at = [], node
        while True:
            found.append(at)
            parent = self.parents[at]
            if parent is None:
                return found[::-1]
            at = parent


class Holder:
    """What one worker holds, and the part of it that is announced."""

    def __init__(self, name: str, tree: Tree, index: PrefixIndex) -> None:
        self.name = name
        self.held: dict[int, int] = {}
        """Node -> bits of the tiers it lies on."""
        self._announced: dict[int, int] = {}
        self._tree, self._index = tree, index
        index.add(name)

    def store(self, nodes: Sequence[int], tier: int) -> None:
        """These blocks are on that tier now, in any order, their prompt's beginning held or not."""
        for node in nodes:
            self.held[node] = self.held.get(node, 0) | 1 << tier
        self._tell(nodes)

    def remove(self, nodes: Sequence[int], tier: int) -> None:
        """These are no longer there; what follows them stays held."""
        for node in nodes:
            left = self.held.get(node, 0) & ~(1 << tier)
            if left:
                self.held[node] = left
            else:
                self.held.pop(node, None)
        self._tell(nodes)

    def clear(self) -> None:
        """It holds nothing."""
        self.held.clear()
        self._announced.clear()
        self._index.clear(self.name)

    def leave_and_join(self) -> None:
        """It was out of the pool for a moment."""
        self.held.clear()
        self._announced.clear()
        self._index.drop(self.name)
        self._index.add(self.name)

    def overlap(self, nodes: Sequence[int]) -> Overlap:
        """The naive definition."""
        counts = [0] * 3
        for node in nodes:
            tiers = self.held.get(node)
            if not tiers:
                break
            counts[(tiers & -tiers).bit_length() - 1] += 1
        return Overlap(*counts)

    def _tell(self, changed: Sequence[int]) -> None:
        """Announce and withdraw what a change decides: the blocks themselves and what follows them."""
        stored: list[list[int]] = [[] for _ in range(TIERS)]
        removed: list[list[int]] = [[] for _ in range(TIERS)]
        waiting = list(changed)
        while waiting:
            node = waiting.pop()
            parent = self._tree.parents[node]
            linked = parent is None or parent in self._announced
            new, old = self.held.get(node, 0) if linked else 0, self._announced.get(node, 0)
            if new == old:
                continue
            for tier in range(TIERS):
                if (new & ~old) >> tier & 1:
                    stored[tier].append(self._tree.hashes[node])
                elif (old & ~new) >> tier & 1:
                    removed[tier].append(self._tree.hashes[node])
            if new:
                self._announced[node] = new
            else:
                del self._announced[node]
            if not (new and old):
                waiting.extend(self._tree.kids[node])
        for tier in range(TIERS):
            if stored[tier]:
                self._index.store(self.name, stored[tier], tier)
        for tier in range(TIERS):
            if removed[tier]:
                self._index.remove(self.name, removed[tier], tier)


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of world."""

    name: str
    workers: int
    long: int
    """About so many blocks have the longest prompts; 0: short ones that branch much."""


SHAPES = (
    Shape("short prompts, 6 workers", 6, 0),
    Shape("long prompts, 6 workers", 6, 300),
    Shape("long prompts, 130 workers", 130, 300),
)


def check(shape: Shape, queries: int, seed: int) -> dict[str, object]:
    """Play one world until so many queries were asked; how many answers were wrong in any worker's any tier."""
    rng = random.Random(seed)
    index, tree = PrefixIndex(), Tree()
    holders = [Holder(name, tree, index) for name in names(shape.workers)]
    for _ in range(3):
        node = tree.new(None, rng)
        for _ in range(rng.randrange(shape.long // 2, shape.long) if shape.long else 0):
            node = tree.new(node, rng)
    asked = wrong = removals = 0
    while asked < queries:
        for _ in range(3):
            removals += _step(tree, rng.choice(holders), shape, rng)
        index.sweep(rng.randrange(64))
        nodes = tree.path(rng.randrange(len(tree.hashes)))
        hashes = [tree.hashes[node] for node in nodes]
        if rng.random() < 0.5:
            hashes.append(rng.getrandbits(64))
        match, want = index.match(hashes), [holder.overlap(nodes) for holder in holders]
        asked += 1
        right = match.best == max(overlap.total for overlap in want) and want == [
            match.overlap(holder.name) for holder in holders
        ]
        wrong += not right
    entries_right = len(index) == sum(index.count(holder.name) for holder in holders)
    return {
        "shape": shape.name,
        "queries": asked,
        "wrong": wrong + (not entries_right),
        "mid_chain_removals": removals,
    }


def _step(tree: Tree, holder: Holder, shape: Shape, rng: random.Random) -> int:
    """One thing happens at a worker; 1 if it lost blocks from the middle of what it holds."""
    act = rng.random()
    if act < 0.55 or not holder.held:
        if rng.random() < 0.4:
            node = rng.randrange(len(tree.hashes))
        else:
            at = rng.randrange(len(tree.hashes)) if not shape.long or rng.random() < 0.3 else -1
            node = tree.new(len(tree.hashes) - 1 if at < 0 else at, rng)
        while rng.random() < 0.5:
            node = tree.new(node, rng)
        path = tree.path(node)
        since = rng.randrange(len(path)) if rng.random() < 0.3 else 0
        holder.store(path[since : since + 400], rng.randrange(TIERS) if rng.random() < 0.4 else 0)
        return 0
    if act < 0.96:
        lost = rng.sample(sorted(holder.held), min(len(holder.held), rng.choice((1, 1, 2, 5))))
        for tier in range(TIERS) if rng.random() < 0.6 else (rng.randrange(TIERS),):
            holder.remove(lost, tier)
        return int(any(kid in holder.held for node in lost for kid in tree.kids[node]))
    if act < 0.985:
        holder.clear()
    else:
        holder.leave_and_join()
    return 0
