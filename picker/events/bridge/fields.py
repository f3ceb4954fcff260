"""The single fields of an engine's event, read with suspicion: a value of no use raises `Skip`. No I/O."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from xxhash import xxh3_64_intdigest

U64: Final = 0xFFFF_FFFF_FFFF_FFFF
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_TIERS: Final = {
    "gpu": 0, "device": 0,
    "cpu": 1, "cpu_pinned": 1, "cpu_tier1": 1,
    "cpu_tier2": 2, "disk": 2, "nvme": 2, "storage": 2,
}  # fmt: skip
_ELSEWHERE: Final = frozenset({"external", "network", "remote", "shared"})


class Skip(Exception):  # noqa: N818 - not an error: the way out of reading one event
    """Raised where an event turns out to be of no use; its text is the reason, a word."""


def is_int(value: Any) -> TypeGuard[int]:
    """Whether the value is a whole number; truth values are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_hash(value: Any) -> int:
    """An engine's hash as u64: integers of either sign modulo 2^64, bytes by their last eight, big-endian."""
    if is_int(value):
        return int(value) & U64
    if isinstance(value, bytes) and len(value) >= 8:
        return int.from_bytes(value[-8:], "big")
    raise Skip("hash")


def read_hashes(value: Any) -> tuple[int, ...]:
    """A list of engine hashes."""
    if not isinstance(value, list):
        raise Skip("hash")
    return tuple(read_hash(each) for each in value)


def read_parent(value: Any) -> int | None:
    """The hash of the block before; llm-d's simulator writes 0 where others write null."""
    return None if value is None or (is_int(value) and value == 0) else read_hash(value)


def read_tokens(value: Any) -> tuple[array[int] | None, bool]:
    """
    The tokens, ``None`` where there are none; and whether some are no tokens at all (TensorRT-LLM's media).
    """
    if not value and (value is None or isinstance(value, list)):
        return None, False
    if not isinstance(value, list):
        raise Skip("tokens")
    try:
        return array("I", value), False
    except (TypeError, OverflowError):
        if all(isinstance(each, str) or (is_int(each) and 0 <= each < 2**32) for each in value):
            return array("I", [0 if isinstance(each, str) else each for each in value]), True
        raise Skip("tokens") from None


def read_tier(medium: Any) -> int:
    """0 device, 1 host, 2 disk; missing is the device."""
    if medium is None:
        return 0
    if not isinstance(medium, str):
        raise Skip("medium")
    name = medium.lower()
    if name in _ELSEWHERE:
        raise Skip("elsewhere")  # a store shared by several engines: no engine's own
    try:
        return _TIERS[name]
    except KeyError:
        raise Skip("medium") from None


def read_group(fields: Mapping[str, Any]) -> int | None:
    """The number of the event's KV group."""
    group = fields.get("group_idx")
    if group is None:
        return None
    if not is_int(group):
        raise Skip("group")
    return int(group)


def read_lora(fields: Mapping[str, Any]) -> str:
    """The adapter's name; empty: the base model."""
    name = fields.get("lora_name")
    if isinstance(name, str) and name:
        return name
    if fields.get("lora_id") is not None:
        raise Skip("lora_without_name")  # its blocks must never match the base model's
    return ""


def read_extras(
    fields: Mapping[str, Any], blocks: int, lora: str, *, starts: bool
) -> tuple[str, list[tuple[int, ...]], list[bool]]:
    """
    The chain's salt; per block the media in it; and per block whether anything else is named there.

    Extra keys are untagged: the adapter's name on every block, the salt on a prompt's first block alone,
    ``[id, offset]`` pairs or bare ids for media, bytes for embeddings. A bare string of the first block is
    taken for the salt.
    """
    salt = fields.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise Skip("extra_keys")
    media: list[tuple[int, ...]] = [()] * blocks
    opaque = [False] * blocks
    keys = fields.get("extra_keys")
    if not keys:
        return salt or "", media, opaque
    if not isinstance(keys, list) or len(keys) != blocks:
        raise Skip("extra_keys")
    for number, of_block in enumerate(keys):
        if of_block is None:
            continue
        if not isinstance(of_block, list):
            raise Skip("extra_keys")
        left = list(of_block)
        if lora in left:
            left.remove(lora)
        if starts and number == 0 and not salt:
            salt = next((each for each in reversed(left) if isinstance(each, str)), None)
        if starts and number == 0 and salt in left:
            left.remove(salt)
        found = [_media_of(each) for each in left]
        opaque[number] = None in found
        media[number] = tuple(each for each in found if each is not None)
    return salt or "", media, opaque


def read_media(keys: Any, media: list[tuple[int, ...]], opaque: list[bool]) -> None:
    """Add the media that TensorRT-LLM names per block; a list that does not fit makes all blocks opaque."""
    if not keys:
        return
    if not isinstance(keys, list) or len(keys) != len(media):
        opaque[:] = [True] * len(opaque)
        return
    for number, of_block in enumerate(keys):
        if not of_block:
            continue
        if not isinstance(of_block, list):
            opaque[number] = True
            continue
        found = [media_hash(each.get("hash")) if isinstance(each, dict) else None for each in of_block]
        opaque[number] = opaque[number] or None in found
        media[number] += tuple(each for each in found if each is not None)


def media_hash(name: Any) -> int | None:
    """
    The u64 by which a medium goes into a block's hash; ``None`` where this is no name of one.

    Dynamo's rule: of 64 hexadecimal digits the first 16, of any other text ``xxh3_64``; numbers stand for
    themselves.
    """
    if is_int(name):
        return int(name) & U64
    if not isinstance(name, str) or not name:
        return None
    if len(name) == 64 and _HEX.issuperset(name):
        return int(name[:16], 16)
    return int(xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")))


def _media_of(key: Any) -> int | None:
    """The medium that one extra key names: a bare id, or an id with its place."""
    if isinstance(key, list) and len(key) == 2 and isinstance(key[0], str) and is_int(key[1]):
        return media_hash(key[0])
    return media_hash(key) if isinstance(key, str) else None
