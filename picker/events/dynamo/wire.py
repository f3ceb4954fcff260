"""
What Dynamo's workers write: router events, and the answers to recovery queries. Pure; nothing here raises.

Events come as JSON (one or a list) or inside an event-plane envelope in msgpack; a block is told by its
position-free hash, ``tokens_hash``, which is ours too (`picker.core.blocks`), and by the engine's opaque
``block_hash``, which parents and removals name. One bad event is skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from picker.events.bridge.engine_events import Cleared, EngineEvent, Removed, Stored
from picker.events.bridge.fields import U64, Skip, is_int

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_RANK: Final = 65_535
_TIERS: Final = {"device": 0, "host_pinned": 1, "disk": 2}


@dataclass(frozen=True, slots=True)
class RouterEvent:
    """One change of one rank; numbers of a rank rise by one."""

    worker_id: int
    rank: int
    number: int
    event: EngineEvent | None
    """``None``: a change that is none of ours (a shared store, an unknown kind); its number counts all the same."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one message says."""

    events: tuple[RouterEvent, ...] = ()
    skipped: int = 0
    """Events that could not be read at all."""


@dataclass(frozen=True, slots=True)
class Answered:
    """
    A worker's answer to a recovery query.

    ``events`` continues the stream, ``dump`` is all that is held, ``none`` is no answer of use and ``why``
    says so in a word.
    """

    kind: Literal["events", "dump", "none"]
    told: Told = Told()
    last: int | None = None
    """Number up to which the answer speaks, or the worker's newest; older workers do not say."""
    why: str = ""


def decode_events(data: bytes) -> Told:
    """Read one message of the events' subject."""
    raw = _unpack(data)
    if isinstance(raw, dict) and "payload" in raw and "event" not in raw:
        payload = raw["payload"]
        if isinstance(payload, list) and all(is_int(each) and 0 <= each < 256 for each in payload):
            payload = bytes(payload)
        raw = _unpack(payload) if isinstance(payload, bytes) else None
    return _told(raw if isinstance(raw, list) else [raw])


def decode_answer(data: bytes) -> Answered:
    """Read the answer to a query."""
    raw = _unpack(data)
    if not isinstance(raw, dict) or len(raw) != 1:
        return Answered("none", why="malformed")
    (kind, content), *_ = raw.items()
    if kind == "TooNew" and isinstance(content, dict) and is_int(newest := content.get("newest_available")):
        return Answered("none", last=int(newest), why="TooNew")
    if kind in ("TooNew", "InvalidRange", "Error", "TreeDumpFailed"):
        return Answered("none", why=kind)
    if kind not in ("Events", "TreeDump"):
        return Answered("none", why="unknown")
    last: Any = None
    if isinstance(content, dict):
        last, content = content.get("last_event_id"), content.get("events")
    if not isinstance(content, list) or not (last is None or (is_int(last) and 0 <= last <= U64)):
        return Answered("none", why="malformed")
    return Answered("events" if kind == "Events" else "dump", _told(content), last)


def encode_query(worker_id: int, rank: int, start: int | None) -> bytes:
    """The question for all from number ``start`` on; ``None``: for everything that is held."""
    return msgspec.json.encode(
        {"worker_id": worker_id, "dp_rank": rank, "start_event_id": start, "end_event_id": None}
    )


def _unpack(data: bytes) -> Any:
    """JSON or msgpack; ``None`` for neither."""
    if len(data) > MAX_BYTES:
        return None
    decode = msgspec.json.decode if data[:1] in (b"{", b"[") else msgspec.msgpack.decode
    try:
        return decode(data)
    except Exception:  # noqa: BLE001 - bytes from outside: whatever they do to the decoder, they say nothing
        return None


def _told(raws: list[Any]) -> Told:
    events: list[RouterEvent] = []
    skipped = 0
    for raw in raws:
        try:
            events.append(_router_event(raw))
        except Skip:
            skipped += 1
    return Told(tuple(events), skipped)


def _router_event(raw: Any) -> RouterEvent:
    if not isinstance(raw, dict) or not isinstance(raw.get("event"), dict):
        raise Skip("shape")
    inner = raw["event"]
    rank, number = inner.get("dp_rank", 0), inner.get("event_id")
    if not (is_int(rank) and 0 <= rank <= MAX_RANK and is_int(number) and 0 <= number <= U64):
        raise Skip("shape")
    tier = _TIERS.get(str(raw.get("storage_tier") or "device").lower())
    foreign = tier is None or raw.get("residency_domain") not in (None, "worker")
    event = None if foreign or tier is None else _change(inner.get("data"), tier)
    return RouterEvent(_u64(raw.get("worker_id")), rank, number, event)


def _change(data: Any, tier: int) -> EngineEvent | None:
    if data == "cleared" or (isinstance(data, dict) and "cleared" in data):
        return Cleared()
    if not isinstance(data, dict):
        return None
    if isinstance(stored := data.get("stored"), dict):
        return _stored(stored, tier)
    if isinstance(removed := data.get("removed"), dict):
        hashes = removed.get("block_hashes")
        if not isinstance(hashes, list):
            raise Skip("hash")
        return Removed(tuple(_u64(each) for each in hashes), tier, None)
    return None


def _stored(stored: dict[str, Any], tier: int) -> Stored | None:
    blocks, parent = stored.get("blocks"), stored.get("parent_hash")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Skip("shape")
    if not blocks or (parent is None and stored.get("start_position")):
        return None  # nothing, or blocks in the middle of a prompt whose beginning is not told
    return Stored(
        hashes=tuple(_u64(block.get("block_hash")) for block in blocks),
        parent=None if parent is None else _u64(parent),
        tokens=None,
        block_size=1,
        tier=tier,
        lora="",
        salt="",
        opaque=(),
        group=None,
        kind=None,
        owns=tuple(_u64(block.get("tokens_hash")) for block in blocks),
    )


def _u64(value: Any) -> int:
    """A hash or an id: JSON writers show some as negative numbers."""
    if not is_int(value) or not -(2**63) <= value <= U64:
        raise Skip("hash")
    return int(value) & U64
