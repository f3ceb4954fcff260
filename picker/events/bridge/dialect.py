"""
What engines say, in their own encodings, turned into three plain events. No I/O; nothing here raises.

The encoding is told from each event, never from the connection: an event is a tagged array (vLLM to 0.23,
SGLang to 0.5.19) or a map (vLLM from 0.24, SGLang from 0.5.20, TensorRT-LLM's stream); the batch around
them is an array in every version: ``[time, [events...], rank]``, the rank absent or null in some. Unknown
keys and further positions are ignored, a missing tail is tolerated. One bad event is skipped and counted;
it spoils neither its batch nor the connection.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
MAX_RANK: Final = 65_535
END_OF_REPLAY: Final = b"\xff" * 8

_U64: Final = 0xFFFF_FFFF_FFFF_FFFF
_TIERS: Final = {
    "gpu": 0, "device": 0,
    "cpu": 1, "cpu_pinned": 1, "cpu_tier1": 1,
    "cpu_tier2": 2, "disk": 2, "nvme": 2, "storage": 2,
}  # fmt: skip
_ELSEWHERE: Final = frozenset({"external", "network", "remote", "shared"})

_STORED_FIELDS: Final = (
    "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
_REMOVED_FIELDS: Final = ("type", "block_hashes", "medium", "group_idx")


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
    blocks lie.
    """
    block_size: int
    tier: int
    lora: str
    salt: str
    """Cache salt of the chain; known only where the event starts one."""
    opaque: tuple[bool, ...]
    """
    Per block, whether more than its tokens makes it (images, embeddings): no prompt of tokens may match it.
    Empty: none.
    """
    group: int | None
    kind: str | None
    """The kind of attention of the event's KV group, where told."""


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


class _Skip(Exception):  # noqa: N818 - not an error: the way out of reading one event
    """Raised where an event turns out to be of no use; its text is the reason, a word."""


def decode_frames(frames: Sequence[bytes]) -> Frames | None:
    """
    Read a live message or a piece of a replay, in either framing; ``None`` for anything else.

    The last two frames count: ``[topic][sequence][payload]`` live, with an empty frame before it, and with
    or without the topic, in a replay. The end of a replay carries ``END_OF_REPLAY`` as its sequence: see
    `is_end`.
    """
    if len(frames) < 2 or len(frames[-2]) != 8:
        return None
    return Frames(int.from_bytes(frames[-2], "big"), frames[-1])


def is_end(frames: Sequence[bytes]) -> bool:
    """Whether this message ends a replay."""
    return len(frames) >= 2 and frames[-2] == END_OF_REPLAY


def decode_batch(payload: bytes) -> Batch | BadBatch:
    """Read one payload of any engine and version."""
    if len(payload) > MAX_BATCH_BYTES:
        return BadBatch("size")
    try:
        batch = msgspec.msgpack.decode(payload)
    except Exception:  # noqa: BLE001 - bytes from outside: whatever they do to the decoder, they are no batch
        return BadBatch("malformed")
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        return BadBatch("malformed")
    rank = batch[2] if len(batch) > 2 else None
    if rank is not None and not (_is_int(rank) and 0 <= rank <= MAX_RANK):
        return BadBatch("rank")
    events: list[EngineEvent] = []
    skipped: list[str] = []
    for raw in batch[1]:
        try:
            event = _event(raw)
        except _Skip as skip:
            skipped.append(str(skip))
            continue
        if event is not None:
            events.append(event)
    return Batch(rank, tuple(events), tuple(skipped))


def _event(raw: Any) -> EngineEvent | None:
    """One event; ``None`` where it changes nothing."""
    if isinstance(raw, dict):
        tag, fields = raw.get("type"), raw
    elif isinstance(raw, list) and raw:
        tag, fields = raw[0], _named(raw)
    else:
        raise _Skip("shape")
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        hashes = _hashes(fields.get("block_hashes"))
        return Removed(hashes, _tier(fields.get("medium")), _group(fields)) if hashes else None
    if tag == "AllBlocksCleared":
        return Cleared()
    raise _Skip("unknown_tag")


def _named(raw: Sequence[Any]) -> dict[str, Any]:
    """An array event by names."""
    names = _REMOVED_FIELDS if raw[0] == "BlockRemoved" else _STORED_FIELDS
    fields = dict(zip(names, raw, strict=False))
    extra = fields.get("lora_name")
    if isinstance(extra, dict):
        # SGLang 0.5.18 and 0.5.19 put a map of their own where vLLM has the adapter's name.
        fields.update(lora_name=None, cache_salt=extra.get("cache_salt"))
    return fields


def _stored(fields: Mapping[str, Any]) -> Stored | None:
    hashes = _hashes(fields.get("block_hashes"))
    if not hashes:
        return None
    parent = fields.get("parent_block_hash")
    size = fields.get("block_size")
    if not _is_int(size) or size < 0:
        raise _Skip("block_size")
    tokens, foreign = _tokens(fields.get("token_ids"))
    if tokens is not None and len(tokens) != size * len(hashes):
        raise _Skip(
            "masked"
        )  # blocks are left out (sliding windows): their places in the prompt are not known
    lora = _lora(fields)
    salt, opaque = _extras(fields, len(hashes), lora, starts=parent is None)
    if fields.get("mm_keys"):
        opaque = _media(fields["mm_keys"], len(hashes), opaque)
    if foreign:
        opaque = (True,) * len(hashes)
    kind = fields.get("kv_cache_spec_kind")
    return Stored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        tokens=tokens,
        block_size=size,
        tier=_tier(fields.get("medium")),
        lora=lora,
        salt=salt,
        opaque=opaque if any(opaque) else (),
        group=_group(fields),
        kind=kind if isinstance(kind, str) else None,
    )


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _hash(value: Any) -> int:
    """An engine's hash as u64: integers of either sign modulo 2^64, bytes by their last eight, big-endian."""
    if _is_int(value):
        return int(value) & _U64
    if isinstance(value, bytes) and len(value) >= 8:
        return int.from_bytes(value[-8:], "big")
    raise _Skip("hash")


def _hashes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _Skip("hash")
    return tuple(_hash(each) for each in value)


def _tokens(value: Any) -> tuple[array[int] | None, bool]:
    """
    The tokens, ``None`` where there are none; and whether some are no tokens at all (TensorRT-LLM's media).
    """
    if not value and (value is None or isinstance(value, list)):
        return None, False
    if not isinstance(value, list):
        raise _Skip("tokens")
    try:
        return array("I", value), False
    except (TypeError, OverflowError):
        if all(isinstance(each, str) or (_is_int(each) and 0 <= each < 2**32) for each in value):
            return array("I", [0 if isinstance(each, str) else each for each in value]), True
        raise _Skip("tokens") from None


def _tier(medium: Any) -> int:
    if medium is None:
        return 0
    if not isinstance(medium, str):
        raise _Skip("medium")
    name = medium.lower()
    if name in _ELSEWHERE:
        raise _Skip("elsewhere")  # a store shared by several engines: no engine's own
    try:
        return _TIERS[name]
    except KeyError:
        raise _Skip("medium") from None


def _group(fields: Mapping[str, Any]) -> int | None:
    group = fields.get("group_idx")
    if group is None:
        return None
    if not _is_int(group):
        raise _Skip("group")
    return int(group)


def _lora(fields: Mapping[str, Any]) -> str:
    name = fields.get("lora_name")
    if isinstance(name, str) and name:
        return name
    if fields.get("lora_id") is not None:
        raise _Skip("lora_without_name")  # its blocks must never match the base model's
    return ""


def _extras(
    fields: Mapping[str, Any], blocks: int, lora: str, *, starts: bool
) -> tuple[str, tuple[bool, ...]]:
    """
    The chain's salt, and per block whether its extra keys name anything that no prompt of tokens can name.
    """
    salt = fields.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise _Skip("extra_keys")
    keys = fields.get("extra_keys")
    if not keys:
        return salt or "", ()
    if not isinstance(keys, list) or len(keys) != blocks:
        raise _Skip("extra_keys")
    opaque = [False] * blocks
    for number, of_block in enumerate(keys):
        if of_block is None:
            continue
        if not isinstance(of_block, list):
            raise _Skip("extra_keys")
        left = list(of_block)
        if lora in left:
            left.remove(lora)
        if starts and number == 0 and not salt and len(left) == 1 and isinstance(left[0], str):
            salt = left.pop()
        opaque[number] = bool(left)
    return salt or "", tuple(opaque)


def _media(keys: Any, blocks: int, opaque: tuple[bool, ...]) -> tuple[bool, ...]:
    """Blocks that TensorRT-LLM says hold media; a list that does not fit makes all of them so."""
    if not isinstance(keys, list) or len(keys) != blocks:
        return (True,) * blocks
    before = opaque or (False,) * blocks
    return tuple(old or bool(of_block) for old, of_block in zip(before, keys, strict=True))
