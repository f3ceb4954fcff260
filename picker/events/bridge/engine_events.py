"""What an engine says of its cache, in plain values, whatever encoding it came in."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that the engine now holds in one more copy each."""

    hashes: tuple[int, ...]
    """The engine's own hashes, as u64: opaque ids."""
    parent: int | None
    """Engine hash of the block before the first one; ``None``: it is the first of a prompt."""
    tokens: array[int] | None
    """
    The tokens of all blocks, one after the other. ``None``: not told, the event says only where known
    blocks lie, unless ``owns`` says what they are.
    """
    block_size: int
    tier: int
    lora: str
    salt: str
    """Cache salt of the chain; known only where the event starts one."""
    opaque: tuple[bool, ...]
    """
    Per block, whether something beyond tokens and media makes it (prompt embeddings): nothing may match it.
    Empty: none.
    """
    group: int | None
    kind: str | None
    """The kind of attention of the event's KV group, where told."""
    media: tuple[tuple[int, ...], ...] = ()
    """Per block, the u64 hashes of the images and the like in it; they go into its hash. Empty: none."""
    owns: tuple[int, ...] = ()
    """
    Per block, its own hash (of its tokens, media, adapter and salt, of no other block), where the source
    has computed it by our scheme: Dynamo's workers.
    """
    again: bool = False
    """The engine says once more what it holds: no further copy."""


@dataclass(frozen=True, slots=True)
class Removed:
    """One copy less of each block."""

    hashes: tuple[int, ...]
    tier: int
    group: int | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """The engine holds nothing any more, on any tier."""


EngineEvent: TypeAlias = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of the engine."""

    rank: int | None
    events: tuple[EngineEvent, ...]
    skipped: tuple[str, ...] = ()
    """Why events of this batch were skipped, a word each; safe as a metric's label."""


@dataclass(frozen=True, slots=True)
class BadBatch:
    """Bytes that are no batch at all."""

    reason: str


@dataclass(frozen=True, slots=True)
class Frames:
    """One message of the engine: its number and its payload."""

    sequence: int
    payload: bytes
