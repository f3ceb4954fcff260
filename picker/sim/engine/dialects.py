"""
The KV events as vLLM writes them on the wire, in the shapes of several versions.

A batch is an array in every version; the events in it are tagged arrays up to 0.23 and maps from 0.24 on. From 0.26 on
replayed batches carry the topic as one more frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from picker.sim.engine.blocks import CacheEvent, Removed, Stored

_ALWAYS = frozenset(
    {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}
)
"""Keys that a map event has even when their value is null."""

_FIRST = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
_GROUPS = ("group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one range of versions writes events: form, fields in their order, frames of a replayed batch."""

    maps: bool
    stored: tuple[str, ...]
    removed: tuple[str, ...]
    replay_topic: bool = False


DIALECTS: dict[str, Dialect] = {
    "vllm-array-0.10": Dialect(False, (*_FIRST, "medium"), ("block_hashes", "medium")),
    "vllm-array-0.17": Dialect(
        False, (*_FIRST, "medium", "lora_name", "extra_keys"), ("block_hashes", "medium")
    ),
    "vllm-array-0.22": Dialect(
        False,
        (*_FIRST, "medium", "lora_name", "extra_keys", *_GROUPS),
        ("block_hashes", "medium", "group_idx"),
    ),
    "vllm-map-0.24": Dialect(
        True,
        (*_FIRST, "medium", "lora_name", "extra_keys", *_GROUPS),
        ("block_hashes", "medium", "group_idx"),
    ),
    "vllm-map-0.26": Dialect(
        True,
        (*_FIRST, "medium", "lora_name", "extra_keys", *_GROUPS, "locality"),
        ("block_hashes", "medium", "group_idx", "locality"),
        replay_topic=True,
    ),
}
"""By the name that `--dialect` takes: engine, form, the version from which on it looks like this."""

Hash = Callable[[bytes], int | bytes]


def short_hash(block: bytes) -> int:
    """The low 64 bits of a hash, unsigned: what vLLM announces unless told otherwise."""
    return int.from_bytes(block[-8:], "big")


def whole_hash(block: bytes) -> bytes:
    """The raw hash, as with `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`."""
    return block


class Encoder:
    """Cache events of one engine into payloads."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        block_size: int,
        rank: int = 0,
        loras: Sequence[str] = (),
        raw_hashes: bool = False,
    ) -> None:
        self.dialect = dialect
        self._block_size = block_size
        self._rank = rank
        self._loras = {name: number for number, name in enumerate(loras, start=1)}
        self._hash: Hash = whole_hash if raw_hashes else short_hash
        self._encoder = msgspec.msgpack.Encoder()

    def batch(self, events: Sequence[CacheEvent], at: float) -> bytes:
        """One payload: when (unix seconds), the events, the data-parallel rank."""
        return self._encoder.encode([at, [self._event(event) for event in events], self._rank])

    def _event(self, event: CacheEvent) -> object:
        if isinstance(event, Stored):
            return self._shape("BlockStored", self.dialect.stored, self._stored(event))
        if isinstance(event, Removed):
            facts = {"block_hashes": [self._hash(event.block)], "medium": "GPU", "group_idx": 0}
            return self._shape("BlockRemoved", self.dialect.removed, facts)
        return self._shape("AllBlocksCleared", (), {})

    def _shape(self, tag: str, names: Sequence[str], facts: dict[str, object]) -> object:
        if not self.dialect.maps:
            return [tag, *(facts.get(name) for name in names)]
        kept = {name: facts.get(name) for name in names if name in _ALWAYS or facts.get(name) is not None}
        return {"type": tag, **kept}

    def _stored(self, event: Stored) -> dict[str, object]:
        return {
            "block_hashes": [self._hash(each) for each in event.hashes],
            "parent_block_hash": None if event.parent is None else self._hash(event.parent),
            "token_ids": event.tokens,
            "block_size": self._block_size,
            "lora_id": self._loras.get(event.lora),
            "medium": "GPU",
            "lora_name": event.lora or None,
            "extra_keys": _extra_keys(event),
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }


def _extra_keys(event: Stored) -> list[list[str] | None]:
    """Per block: the adapter's name on each, the salt on the prompt's first block only."""
    keys: list[list[str] | None] = []
    for at in range(len(event.hashes)):
        salt = event.salt if at == 0 and event.parent is None else ""
        keys.append([each for each in (event.lora, salt) if each] or None)
    return keys
