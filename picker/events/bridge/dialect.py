"""
What engines say, in their own encodings, turned into three plain events. No I/O; nothing here raises.

The encoding is told from each event, never from the connection: an event is a tagged array (vLLM to 0.23,
SGLang to 0.5.19) or a map (vLLM from 0.24, SGLang from 0.5.20, TensorRT-LLM's stream); the batch around
them is an array in every version: ``[time, [events...], rank]``, the rank absent or null in some. Unknown
keys and further positions are ignored, a missing tail is tolerated. One bad event is skipped and counted;
it spoils neither its batch nor the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from picker.events.bridge.engine_events import (
    BadBatch,
    Batch,
    Cleared,
    EngineEvent,
    Frames,
    Removed,
    Stored,
)
from picker.events.bridge.fields import (
    Skip,
    is_int,
    read_extras,
    read_group,
    read_hashes,
    read_lora,
    read_media,
    read_parent,
    read_tier,
    read_tokens,
)

__all__ = [
    "BadBatch",
    "Batch",
    "Cleared",
    "EngineEvent",
    "Frames",
    "Removed",
    "Stored",
    "decode_batch",
    "decode_frames",
    "is_end",
]

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
MAX_RANK: Final = 65_535
END_OF_REPLAY: Final = b"\xff" * 8

_STORED_FIELDS: Final = (
    "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
_REMOVED_FIELDS: Final = ("type", "block_hashes", "medium", "group_idx")


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
    if rank is not None and not (is_int(rank) and 0 <= rank <= MAX_RANK):
        return BadBatch("rank")
    events: list[EngineEvent] = []
    skipped: list[str] = []
    for raw in batch[1]:
        try:
            event = _event(raw)
        except Skip as skip:
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
        raise Skip("shape")
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        return _removed(fields)
    if tag == "AllBlocksCleared":
        return Cleared()
    raise Skip("unknown_tag")


def _named(raw: Sequence[Any]) -> dict[str, Any]:
    """An array event by names."""
    names = _REMOVED_FIELDS if raw[0] == "BlockRemoved" else _STORED_FIELDS
    fields = dict(zip(names, raw, strict=False))
    extra = fields.get("lora_name")
    if isinstance(extra, dict):
        # SGLang 0.5.18 and 0.5.19 put a map of their own where vLLM has the adapter's name.
        fields.update(lora_name=None, cache_salt=extra.get("cache_salt"))
    return fields


def _removed(fields: Mapping[str, Any]) -> Removed | None:
    hashes = read_hashes(fields.get("block_hashes"))
    return Removed(hashes, read_tier(fields.get("medium")), read_group(fields)) if hashes else None


def _stored(fields: Mapping[str, Any]) -> Stored | None:
    hashes = read_hashes(fields.get("block_hashes"))
    if not hashes:
        return None
    size = fields.get("block_size")
    if not is_int(size) or size < 0:
        raise Skip("block_size")
    tokens, foreign = read_tokens(fields.get("token_ids"))
    if tokens is not None and len(tokens) != size * len(hashes):
        raise Skip(
            "masked"
        )  # blocks are left out (sliding windows): their places in the prompt are not known
    parent, lora = read_parent(fields.get("parent_block_hash")), read_lora(fields)
    salt, media, opaque = read_extras(fields, len(hashes), lora, starts=parent is None)
    read_media(fields.get("mm_keys"), media, opaque)
    if foreign:
        # The ids of media may fill the places of tokens; what the tokens there are is then not known.
        opaque = [True] * len(hashes)
    kind = fields.get("kv_cache_spec_kind")
    return Stored(
        hashes=hashes,
        parent=parent,
        tokens=tokens,
        block_size=size,
        tier=read_tier(fields.get("medium")),
        lora=lora,
        salt=salt,
        opaque=tuple(opaque) if any(opaque) else (),
        group=read_group(fields),
        kind=kind if isinstance(kind, str) else None,
        media=tuple(media) if any(media) else (),
        again=fields.get("origin") == "REUSED",
    )
