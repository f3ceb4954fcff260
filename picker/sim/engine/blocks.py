"""
The paged prefix cache: fixed blocks, reused when a whole block's prefix is equal, evicted oldest first.

It behaves as vLLM's block pool does: a hash may live in several physical copies, each announced and withdrawn on its
own; an unreferenced block keeps its content until its place is needed; a request's tail is evicted before its head.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stored:
    """A run of full blocks entered the cache; `tokens` are all theirs, `parent` the block before the first."""

    hashes: tuple[bytes, ...]
    parent: bytes | None
    tokens: tuple[int, ...]
    lora: str
    salt: str


@dataclass(frozen=True, slots=True)
class Removed:
    """One physical copy of a block left the cache."""

    block: bytes


@dataclass(frozen=True, slots=True)
class Cleared:
    """The whole cache was dropped."""


CacheEvent = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Content:
    """What a block with this hash holds."""

    parent: bytes | None
    tokens: tuple[int, ...]
    lora: str
    salt: str


@dataclass(slots=True, eq=False)
class Block:
    """One physical block."""

    number: int
    references: int = 0
    hash: bytes | None = None


@dataclass(slots=True)
class BlockPool:
    """All blocks of one engine. `events` fills until somebody takes it; hashes start from a random value per pool."""

    total: int
    block_size: int
    start: bytes = field(default_factory=lambda: os.urandom(32))
    events: list[CacheEvent] = field(default_factory=list)
    evictions: int = 0
    _free: OrderedDict[int, Block] = field(default_factory=OrderedDict)
    _copies: dict[bytes, dict[int, Block]] = field(default_factory=dict)
    _contents: dict[bytes, Content] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free.update((number, Block(number)) for number in range(self.total))

    @property
    def free(self) -> int:
        """Blocks that no request holds, cached or not."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that some request holds."""
        return self.total - len(self._free)

    def chain(self, parent: bytes | None, tokens: Sequence[int], *, lora: str, salt: str) -> list[bytes]:
        """Hashes of the full blocks of `tokens`, which follow the block `parent` (None: the prompt's start)."""
        hashes: list[bytes] = []
        for begin in range(0, len(tokens) - self.block_size + 1, self.block_size):
            tags = repr((lora, salt if parent is None else "")).encode()
            body = array("I", tokens[begin : begin + self.block_size]).tobytes()
            parent = hashlib.sha256((parent or self.start) + tags + body).digest()
            hashes.append(parent)
        return hashes

    def find(self, hashes: Iterable[bytes]) -> list[Block]:
        """The longest leading run that is cached, one physical block each."""
        found: list[Block] = []
        for each in hashes:
            copies = self._copies.get(each)
            if not copies:
                break
            found.append(next(iter(copies.values())))
        return found

    def hold(self, blocks: Iterable[Block]) -> None:
        """A request refers to these cached blocks; they cannot be evicted now."""
        for block in blocks:
            if block.references == 0:
                del self._free[block.number]
            block.references += 1

    def take(self, count: int) -> list[Block]:
        """Blocks for new content, evicting the least recently used. The caller has seen that enough are free."""
        taken: list[Block] = []
        for _ in range(count):
            _, block = self._free.popitem(last=False)
            self._forget(block)
            block.references = 1
            taken.append(block)
        return taken

    def _forget(self, block: Block) -> None:
        if block.hash is None:
            return
        copies = self._copies[block.hash]
        del copies[block.number]
        if not copies:
            del self._copies[block.hash]
            del self._contents[block.hash]
        self.events.append(Removed(block.hash))
        self.evictions += 1
        block.hash = None

    def keep(
        self,
        blocks: Sequence[Block],
        hashes: Sequence[bytes],
        tokens: Sequence[int],
        *,
        parent: bytes | None,
        lora: str,
        salt: str,
    ) -> None:
        """These blocks are now full: they hold `tokens` and may be reused under `hashes`."""
        if not blocks:
            return
        before = parent
        for at, (block, each) in enumerate(zip(blocks, hashes, strict=True)):
            block.hash = each
            self._copies.setdefault(each, {})[block.number] = block
            if each not in self._contents:
                part = tuple(tokens[at * self.block_size : (at + 1) * self.block_size])
                self._contents[each] = Content(before, part, lora, salt if before is None else "")
            before = each
        self.events.append(Stored(tuple(hashes), parent, tuple(tokens), lora, salt if parent is None else ""))

    def release(self, blocks: Sequence[Block]) -> None:
        """A request no longer refers to its blocks; the tail becomes evictable before the head."""
        for block in reversed(blocks):
            block.references -= 1
            if block.references == 0:
                self._free[block.number] = block
                if block.hash is None:
                    self._free.move_to_end(block.number, last=False)

    def clear(self) -> bool:
        """Drop the cache; False, and nothing done, while any block is in use."""
        if self.used:
            return False
        for block in self._free.values():
            block.hash = None
        self._copies.clear()
        self._contents.clear()
        self.events.append(Cleared())
        return True

    def take_events(self) -> list[CacheEvent]:
        """What happened since the last call, in order."""
        events, self.events = self.events, []
        return events

    def resident(self) -> list[tuple[bytes, Content, int]]:
        """Every cached hash with its content and its number of physical copies."""
        return [(each, self._contents[each], len(copies)) for each, copies in self._copies.items()]
