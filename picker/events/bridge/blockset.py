"""
What one rank of an engine holds, told in our own hashes. Pure: events in, changes out, ``now`` is given.

The engine speaks of blocks by hashes of its own. Each becomes a `_Node`: its place in a prompt (the
parent), our sequence hash, and how many copies lie on each tier; engines announce every copy, stored and
removed alike. What is announced is **prefix-closed**: a block, while it and every block before it are held
on some tier. So a block whose parent went is withdrawn with all that follow it, and announced again when
the parent returns.

- A node without copies stays while a child of it is held: the child needs it to return.
- A block whose parent is not known is **parked**: its tokens are kept, bounded in number and time, until
  the parent comes. It never hangs on the root: that would be a wrong prefix.
- Engine blocks smaller than the pool's are joined: the pool's block is announced while all its parts are
  held, on the tier that all of them share, else on the lowest of their best. An engine block size that does
  not divide the pool's is refused.
- Of several KV groups the first of full attention counts: the others hold the same prompts in part.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from picker.core.blocks import chain_seed, extend_hashes
from picker.events.bridge.changes import Announced, Change
from picker.events.bridge.dialect import Cleared, EngineEvent, Removed, Stored
from picker.events.records import TIERS

MAX_BLOCKS: Final = 4_000_000
MAX_PARKED: Final = 65_536
PARKED_SECONDS: Final = 60.0
_FULL: Final = frozenset({"full_attention", "mla_attention"})
_EMPTY: Final = array("I")


@dataclass(slots=True)
class Counts:
    """What was applied and what could not be used."""

    stored: int = 0
    removed: int = 0
    clears: int = 0
    parked: int = 0
    parked_dropped: int = 0
    """Parked blocks given up: too many, or their parent did not come in time."""
    unknown_removed: int = 0
    unknown_located: int = 0
    """Blocks said to lie on a tier, without tokens, that are not known."""
    over_limit: int = 0
    """Blocks not taken in because there are too many."""
    other_groups: int = 0
    other_sizes: int = 0
    """Stores whose block size is not this engine's: partial blocks."""
    refused: int = 0
    """Stores of an engine whose block size does not divide the pool's."""
    conflicts: int = 0
    """Stores that name another parent for a block than it had."""


class _Node:
    """
    One engine block. ``own`` is our hash where a block of the pool ends here; ``base`` the last one at or
    before here.
    """

    __slots__ = ("base", "copies", "held_children", "key", "linked", "mask", "opaque", "own", "parent", "placed",
                 "seed", "since", "tail", "tokens")  # fmt: skip

    def __init__(self, key: int, parent: int | None, tokens: array[int], *, opaque: bool, now: float) -> None:
        self.key = key
        self.parent = parent
        self.tokens: array[int] = tokens
        """Its own tokens until it is placed; empty after."""
        self.copies = [0] * TIERS
        self.held_children = 0
        self.placed = False
        self.opaque = opaque
        self.linked = False
        self.mask = 0
        self.own: int | None = None
        self.base: int | None = None
        self.tail: array[int] = _EMPTY
        """Tokens since the last block of the pool ended."""
        self.seed = 0
        self.since = now

    @property
    def held(self) -> bool:
        return any(self.copies)

    @property
    def tiers(self) -> int:
        """Bit mask of the tiers with a copy."""
        return sum(1 << tier for tier, copies in enumerate(self.copies) if copies)


class BlockSet:
    """
    The blocks of one rank.

    Args:
        block_size: tokens per block of the pool.
        max_blocks: most engine blocks known at one time.
        max_parked: most blocks waiting for their parent.
        parked_seconds: for how long.

    """

    def __init__(
        self,
        block_size: int,
        *,
        max_blocks: int = MAX_BLOCKS,
        max_parked: int = MAX_PARKED,
        parked_seconds: float = PARKED_SECONDS,
    ) -> None:
        self.counts = Counts()
        self.announced = Announced()
        self.engine_block_size: int | None = None
        self.refusal = ""
        """Why this engine's blocks cannot be used, in plain words; empty when they can."""
        self.incomplete = False
        """Blocks that the engine holds were given up: what is announced is true, but not all."""
        self._block_size = block_size
        self._max_blocks = max_blocks
        self._max_parked = max_parked
        self._parked_seconds = parked_seconds
        self._nodes: dict[int, _Node] = {}
        self._children: dict[int, set[int]] = {}
        self._parked: OrderedDict[int, None] = OrderedDict()
        self._group: int | None = None

    def __len__(self) -> int:
        """How many engine blocks are known, held or remembered for a child's sake."""
        return len(self._nodes)

    @property
    def parked(self) -> int:
        """How many blocks wait for their parent."""
        return len(self._parked)

    def apply(self, event: EngineEvent, now: float) -> list[Change]:
        """Take one event; what changed of what is announced, in order. ``now`` is in monotonic seconds."""
        if isinstance(event, Cleared):
            self.counts.clears += 1
            self.clear()
        elif isinstance(event, Removed):
            if self._of_other_group(event.group):
                self.counts.other_groups += 1
            else:
                for key in event.hashes:
                    self._remove(key, event.tier)
        elif self._usable(event):
            self._store(event, now)
        return self.announced.collect()

    def clear(self) -> None:
        """The engine holds nothing: all is forgotten but its block size."""
        self._nodes.clear()
        self._children.clear()
        self._parked.clear()
        self.incomplete = False
        self.announced.clear()

    def expire(self, now: float) -> None:
        """Give up parked blocks whose parent did not come in time. They were never announced."""
        while self._parked:
            key = next(iter(self._parked))
            if now - self._nodes[key].since < self._parked_seconds:
                return
            self._give_up(key)

    def _usable(self, event: Stored) -> bool:
        """Whether a store counts here; learns the engine's block size and its group of full attention."""
        if (event.kind is not None and event.kind not in _FULL) or self._of_other_group(event.group):
            self.counts.other_groups += 1
            return False
        if event.tokens is None:
            return True
        if self.engine_block_size is None and event.tier == 0:
            self.engine_block_size = event.block_size
            self._group = event.group
            if self._block_size % event.block_size:
                self.refusal = (
                    f"the engine's block size {event.block_size} does not divide "
                    f"the pool's PICKER_BLOCK_SIZE {self._block_size}"
                )
        if self.refusal:
            self.counts.refused += 1
            return False
        if event.block_size != self.engine_block_size:
            self.counts.other_sizes += 1
            return False
        return True

    def _of_other_group(self, group: int | None) -> bool:
        return group is not None and self._group is not None and group != self._group

    def _store(self, event: Stored, now: float) -> None:
        if event.tokens is None:
            for key in event.hashes:
                self._locate(key, event.tier)
            return
        parent, size = event.parent, event.block_size
        seed = chain_seed(event.lora, event.salt) if parent is None else 0
        for number, key in enumerate(event.hashes):
            node = self._nodes.get(key)
            if node is None:
                if len(self._nodes) >= self._max_blocks:
                    self.counts.over_limit += len(event.hashes) - number
                    self.incomplete = True
                    break
                tokens = event.tokens[number * size : (number + 1) * size]
                opaque = bool(event.opaque) and event.opaque[number]
                node = self._new(_Node(key, parent, tokens, opaque=opaque, now=now), seed)
            elif node.parent != parent:
                self.counts.conflicts += 1
            self._add_copy(node, event.tier)
            parent = key
        while len(self._parked) > self._max_parked:
            self._give_up(next(iter(self._parked)))

    def _locate(self, key: int, tier: int) -> None:
        """A copy of a known block, told without its tokens."""
        node = self._nodes.get(key)
        if node is None:
            self.counts.unknown_located += 1
        else:
            self._add_copy(node, tier)

    def _new(self, node: _Node, seed: int) -> _Node:
        self._nodes[node.key] = node
        node.held_children = sum(self._nodes[child].held for child in self._children.get(node.key, ()))
        if node.parent is None:
            node.seed = seed
            self._place(node, None)
        else:
            self._children.setdefault(node.parent, set()).add(node.key)
            parent = self._nodes.get(node.parent)
            if parent is not None and parent.placed:
                self._place(node, parent)
            else:
                self._parked[node.key] = None
                self.counts.parked += 1
        return node

    def _place(self, first: _Node, before: _Node | None) -> None:
        """Give a node, and the parked ones that waited for it, their place and hash."""
        waiting = [(first, before)]
        while waiting:
            node, parent = waiting.pop()
            if parent is not None:
                node.seed, node.base, node.tail = parent.seed, parent.base, parent.tail
                node.opaque = node.opaque or parent.opaque
            tail = node.tail + node.tokens
            if len(tail) == self._block_size:
                node.own = node.base = extend_hashes(node.base, tail, self._block_size, seed=node.seed)[0]
                tail = _EMPTY
            node.tail, node.tokens, node.placed = tail, _EMPTY, True
            self._parked.pop(node.key, None)
            waiting.extend((child, node) for child in self._kids(node) if not child.placed)

    def _add_copy(self, node: _Node, tier: int) -> None:
        self.counts.stored += 1
        held = node.held
        node.copies[tier] += 1
        if not held:
            self._count_held(node, 1)
        if node.copies[tier] == 1:
            self._refresh(node)

    def _remove(self, key: int, tier: int) -> None:
        node = self._nodes.get(key)
        if node is None or not node.copies[tier]:
            self.counts.unknown_removed += 1
            return
        self.counts.removed += 1
        node.copies[tier] -= 1
        if node.copies[tier]:
            return
        if not node.held:
            self._count_held(node, -1)
        self._refresh(node)
        if not node.held:
            self._prune(node)

    def _count_held(self, node: _Node, by: int) -> None:
        parent = self._nodes.get(node.parent) if node.parent is not None else None
        if parent is not None:
            parent.held_children += by

    def _prune(self, node: _Node | None) -> None:
        """Forget a node that is not held and that no held child needs, then its parent likewise."""
        while node is not None and not node.held and not node.held_children:
            del self._nodes[node.key]
            self._parked.pop(node.key, None)
            if node.parent is None:
                return
            siblings = self._children.get(node.parent)
            if siblings is not None:
                siblings.discard(node.key)
                if not siblings:
                    del self._children[node.parent]
            node = self._nodes.get(node.parent)

    def _give_up(self, key: int) -> None:
        """
        Forget a parked block although the engine holds it; what follows it stays parked in its own right.
        """
        node = self._nodes[key]
        self._parked.pop(key)
        self.counts.parked_dropped += 1
        if node.held:
            self.incomplete = True
            self._count_held(node, -1)
            node.copies = [0] * TIERS
        node.held_children = 0
        self._prune(node)

    def _refresh(self, start: _Node) -> None:
        """
        Announce or withdraw what a change at this node decides: itself, and of what follows it as much as
        is concerned.
        """
        waiting = [start]
        while waiting:
            node = waiting.pop()
            linked = node.placed and not node.opaque and node.held and self._parent_linked(node)
            turned, node.linked = linked != node.linked, linked
            if node.own is not None:
                self._announce(node, self._pool_tiers(node) if linked else 0)
                if not turned:
                    continue
            waiting.extend(self._kids(node))

    def _parent_linked(self, node: _Node) -> bool:
        if node.parent is None:
            return True
        parent = self._nodes.get(node.parent)
        return parent is not None and parent.linked

    def _pool_tiers(self, node: _Node) -> int:
        """The tiers on which the pool's block that ends at this linked node is held."""
        if self.engine_block_size == self._block_size:
            return node.tiers
        shared, lowest = (1 << TIERS) - 1, 0
        for part in self._parts(node):
            tiers = part.tiers
            shared &= tiers
            lowest = max(lowest, (tiers & -tiers).bit_length() - 1)
        return shared or 1 << lowest

    def _parts(self, node: _Node) -> Iterator[_Node]:
        yield node
        for _ in range(self._block_size // (self.engine_block_size or self._block_size) - 1):
            assert node.parent is not None, (
                "a linked node that ends a block has all the block's parts before it"
            )
            node = self._nodes[node.parent]
            yield node

    def _announce(self, node: _Node, mask: int) -> None:
        assert node.own is not None
        for tier in range(TIERS):
            bit = 1 << tier
            if (mask ^ node.mask) & bit:
                change: Callable[[int, int], None] = self.announced.put if mask & bit else self.announced.take
                change(node.own, tier)
        node.mask = mask

    def _kids(self, node: _Node) -> Iterator[_Node]:
        for key in self._children.get(node.key, ()):
            kid = self._nodes.get(key)
            if kid is not None:
                yield kid
