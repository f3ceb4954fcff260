"""
The blocks of one rank as a forest: each under the block before it, those without a known parent parked.

A node without copies stays while a child of it is held: the child needs it to return. A parked node keeps
its tokens until its parent comes; it never hangs on the root, which would be a wrong prefix.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from picker.core.blocks import block_hash, chain
from picker.events.bridge.node import EMPTY, Node


class Tree:
    """
    Nodes by the engine's hash, their places and hashes.

    Args:
        block_size: tokens per block of the pool.

    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._nodes: dict[int, Node] = {}
        self._children: dict[int, set[int]] = {}
        self._parked: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def parked(self) -> int:
        """How many nodes wait for their parent."""
        return len(self._parked)

    @property
    def oldest_parked(self) -> Node | None:
        """The node that has waited longest."""
        return self._nodes[next(iter(self._parked))] if self._parked else None

    def get(self, key: int | None) -> Node | None:
        """The node of that engine hash, if it is known."""
        return None if key is None else self._nodes.get(key)

    def all(self) -> list[Node]:
        """Every node."""
        return list(self._nodes.values())

    def clear(self) -> None:
        """Forget everything."""
        self._nodes.clear()
        self._children.clear()
        self._parked.clear()

    def add(self, node: Node, seed: int) -> bool:
        """Take in a new node; whether it could be placed. ``seed`` counts where it starts a prompt."""
        self._nodes[node.key] = node
        node.held_children = sum(self._nodes[child].held for child in self._children.get(node.key, ()))
        if node.parent is None:
            node.seed = seed
            self._place(node, None)
            return True
        self._children.setdefault(node.parent, set()).add(node.key)
        parent = self._nodes.get(node.parent)
        if parent is not None and parent.placed:
            self._place(node, parent)
            return True
        self._parked[node.key] = None
        return False

    def count_held(self, node: Node, by: int) -> None:
        """The node is held from now on (1), or no longer (-1): tell its parent."""
        parent = self.get(node.parent)
        if parent is not None:
            parent.held_children += by

    def prune(self, node: Node | None) -> None:
        """Forget a node that is not held and that no held child needs, then those before it likewise."""
        if node is not None and not node.held and node.held_children:
            node = self.get(node.parent)  # it stays, but it needs its own parent no longer
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

    def give_up(self, node: Node) -> None:
        """Forget a parked node, held or not; what follows it stays parked in its own right."""
        self._parked.pop(node.key)
        if node.held:
            self.count_held(node, -1)
            node.copies = [0] * len(node.copies)
        node.held_children = 0
        self.prune(node)

    def kids(self, node: Node) -> Iterator[Node]:
        """The known nodes that follow this one."""
        for key in self._children.get(node.key, ()):
            kid = self._nodes.get(key)
            if kid is not None:
                yield kid

    def _place(self, first: Node, before: Node | None) -> None:
        """Give a node, and the parked ones that waited for it, their place and hash."""
        waiting = [(first, before)]
        while waiting:
            node, parent = waiting.pop()
            if parent is not None:
                node.seed, node.base, node.tail = parent.seed, parent.base, parent.tail
                node.tail_media = parent.tail_media
                node.opaque = node.opaque or parent.opaque
            self._hash(node)
            node.tokens, node.media, node.placed = EMPTY, (), True
            self._parked.pop(node.key, None)
            waiting.extend((child, node) for child in self.kids(node) if not child.placed)

    def _hash(self, node: Node) -> None:
        """Close a block of the pool where one ends with this node."""
        if node.alone is not None:
            node.own = node.base = chain(node.base, node.alone)
            return
        tail = node.tail + node.tokens
        media = node.media
        if node.tail:
            # A medium that reaches over several of the engine's blocks is one medium of the pool's block.
            media = tuple({*node.tail_media, *media})
        if len(tail) == self._block_size:
            own = block_hash(tail, seed=node.seed, media=media)
            node.own = node.base = chain(node.base, own)
            tail, media = EMPTY, ()
        node.tail, node.tail_media = tail, media
