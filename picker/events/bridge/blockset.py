"""
What one rank of an engine holds, told in our own hashes. Pure: events in, changes out, ``now`` is given.

The engine speaks of blocks by hashes of its own. Each becomes a `Node` of a `Tree`: its place in a prompt
(the parent), our sequence hash, and how many copies lie on each tier; engines announce every copy, stored
and removed alike. What is announced is **prefix-closed**: a block, while it and every block before it are
held on some tier. So a block whose parent went is withdrawn with all that follow it, and announced again
when the parent returns.

- A block whose parent is not known is **parked**, bounded in number and time, until the parent comes.
- Engine blocks smaller than the pool's are joined: the pool's block is announced while all its parts are
  held, on the tier that all of them share, else on the lowest of their best. An engine block size that does
  not divide the pool's is refused.
- Of several KV groups the first of full attention counts: the others hold the same prompts in part.
- Engines whose hashes are not chained (SGLang before 0.5.7) use one hash for equal blocks of different
  prompts. Which of them a removal means cannot be told; so from the second place on such a block, and what
  follows it, is withdrawn until its last copy is gone.
- An engine that says again what it holds (vLLM's ``kv_cache_report_mode`` "full") makes counting copies
  impossible; then a block goes with its first removal: too little is claimed, never too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from picker.core.blocks import chain_seed
from picker.events.bridge.changes import Announced, Change
from picker.events.bridge.engine_events import Cleared, EngineEvent, Removed, Stored
from picker.events.bridge.node import EMPTY, Node
from picker.events.bridge.tree import Tree
from picker.events.records import TIERS

MAX_BLOCKS: Final = 4_000_000
MAX_PARKED: Final = 65_536
PARKED_SECONDS: Final = 60.0
_FULL: Final = frozenset({"full_attention", "mla_attention", "sink_full_attention"})


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
    asleep: int = 0
    """Times that the device was emptied because the engine sleeps."""


class BlockSet:
    """
    The blocks of one rank.

    Args:
        block_size: tokens per block of the pool.
        max_blocks: most engine blocks known at one time.
        max_parked: most blocks waiting for their parent.
        parked_seconds: for how long.
        count_copies: whether each store is a copy of its own. ``False``: the engine says again what it holds.

    """

    def __init__(
        self,
        block_size: int,
        *,
        max_blocks: int = MAX_BLOCKS,
        max_parked: int = MAX_PARKED,
        parked_seconds: float = PARKED_SECONDS,
        count_copies: bool = True,
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
        self._count_copies = count_copies
        self._tree = Tree(block_size)
        self._group: int | None = None

    def __len__(self) -> int:
        """How many engine blocks are known, held or remembered for a child's sake."""
        return len(self._tree)

    @property
    def parked(self) -> int:
        """How many blocks wait for their parent."""
        return self._tree.parked

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
        self._tree.clear()
        self.incomplete = False
        self.announced.clear()

    def empty_device(self) -> list[Change]:
        """The engine sleeps: whatever its events say, its device holds nothing. What changed."""
        lower = False
        on_device: list[Node] = []
        for node in self._tree.all():
            lower = lower or any(node.copies[1:])
            if node.copies[0]:
                on_device.append(node)
        if not on_device:
            return []
        self.counts.asleep += 1
        if not lower:
            self.clear()
        for node in on_device if lower else ():
            node.copies[0] = 0
            if not node.held:
                self._tree.count_held(node, -1)
            self._refresh(node)
        for node in on_device if lower else ():
            if not node.held and self._tree.get(node.key) is node:
                self._tree.prune(node)
        return self.announced.collect()

    def expire(self, now: float) -> None:
        """Give up parked blocks whose parent did not come in time. They were never announced."""
        while (node := self._tree.oldest_parked) is not None and now - node.since >= self._parked_seconds:
            self._give_up(node)

    def _usable(self, event: Stored) -> bool:
        """Whether a store counts here; learns the engine's block size and its group of full attention."""
        if (event.kind is not None and event.kind not in _FULL) or self._of_other_group(event.group):
            self.counts.other_groups += 1
            return False
        if event.tokens is None and not event.owns:
            return True
        if self.engine_block_size is None and event.tier == 0:
            self._learn(event)
        if self.refusal:
            self.counts.refused += 1
            return False
        if event.block_size != self.engine_block_size:
            self.counts.other_sizes += 1
            return False
        return True

    def _learn(self, event: Stored) -> None:
        if event.block_size < 1:
            return
        self.engine_block_size = event.block_size
        self._group = event.group
        if self._block_size % event.block_size:
            self.refusal = (
                f"the engine's block size {event.block_size} does not divide "
                f"the pool's PICKER_BLOCK_SIZE {self._block_size}"
            )

    def _of_other_group(self, group: int | None) -> bool:
        return group is not None and self._group is not None and group != self._group

    def _store(self, event: Stored, now: float) -> None:
        if event.tokens is None and not event.owns:
            for key in event.hashes:
                self._locate(key, event)
            return
        parent = event.parent
        seed = chain_seed(event.lora, event.salt) if parent is None else 0
        for number, key in enumerate(event.hashes):
            node = self._tree.get(key)
            if node is None:
                if len(self._tree) >= self._max_blocks:
                    self.counts.over_limit += len(event.hashes) - number
                    self.incomplete = True
                    break
                node = _node(event, number, parent, now)
                self.counts.parked += not self._tree.add(node, seed)
            elif node.parent != parent:
                self._doubt(node)
            self._add_copy(node, event)
            parent = key
        while self._tree.parked > self._max_parked and (oldest := self._tree.oldest_parked) is not None:
            self._give_up(oldest)

    def _locate(self, key: int, event: Stored) -> None:
        """A copy of a known block, told without its tokens."""
        node = self._tree.get(key)
        if node is None:
            self.counts.unknown_located += 1
        else:
            self._add_copy(node, event)

    def _doubt(self, node: Node) -> None:
        """One hash, two places: nothing is claimed of either while any copy is left."""
        self.counts.conflicts += 1
        self.incomplete = True
        if not node.opaque:
            node.opaque = True
            self._refresh(node)

    def _add_copy(self, node: Node, event: Stored) -> None:
        self.counts.stored += 1
        held, copies = node.held, node.copies[event.tier]
        if copies and (event.again or not self._count_copies):
            return
        node.copies[event.tier] = copies + 1
        if not held:
            self._tree.count_held(node, 1)
        if not copies:
            self._refresh(node)

    def _remove(self, key: int, tier: int) -> None:
        node = self._tree.get(key)
        if node is None or not node.copies[tier]:
            self.counts.unknown_removed += 1
            return
        self.counts.removed += 1
        node.copies[tier] -= 1
        if node.copies[tier]:
            return
        if not node.held:
            self._tree.count_held(node, -1)
        self._refresh(node)
        if not node.held:
            self._tree.prune(node)

    def _give_up(self, node: Node) -> None:
        """Forget a parked block although the engine holds it."""
        self.counts.parked_dropped += 1
        self.incomplete = self.incomplete or node.held
        self._tree.give_up(node)

    def _refresh(self, start: Node) -> None:
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
            waiting.extend(self._tree.kids(node))

    def _parent_linked(self, node: Node) -> bool:
        if node.parent is None:
            return True
        parent = self._tree.get(node.parent)
        return parent is not None and parent.linked

    def _pool_tiers(self, node: Node) -> int:
        """The tiers on which the pool's block that ends at this linked node is held."""
        if self.engine_block_size == self._block_size:
            return node.tiers
        shared, lowest = (1 << TIERS) - 1, 0
        for part in self._parts(node):
            tiers = part.tiers
            shared &= tiers
            lowest = max(lowest, (tiers & -tiers).bit_length() - 1)
        return shared or 1 << lowest

    def _parts(self, node: Node) -> Iterator[Node]:
        yield node
        for _ in range(self._block_size // (self.engine_block_size or self._block_size) - 1):
            before = self._tree.get(node.parent)
            assert before is not None, "a linked node that ends a block has all the block's parts before it"
            node = before
            yield node

    def _announce(self, node: Node, mask: int) -> None:
        assert node.own is not None
        for tier in range(TIERS):
            bit = 1 << tier
            if (mask ^ node.mask) & bit:
                change: Callable[[int, int], None] = self.announced.put if mask & bit else self.announced.take
                change(node.own, tier)
        node.mask = mask


def _node(event: Stored, number: int, parent: int | None, now: float) -> Node:
    """The block of that number in the event."""
    size, tokens = event.block_size, event.tokens
    return Node(
        event.hashes[number],
        parent,
        EMPTY if tokens is None else tokens[number * size : (number + 1) * size],
        now=now,
        opaque=bool(event.opaque) and event.opaque[number],
        media=event.media[number] if event.media else (),
        alone=event.owns[number] if event.owns else None,
    )
