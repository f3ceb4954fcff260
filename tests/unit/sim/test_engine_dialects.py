from __future__ import annotations

from typing import Any

import msgspec
import pytest

from picker.sim.engine.blocks import Cleared, Removed, Stored
from picker.sim.engine.dialects import DIALECTS, Encoder

ARRAY = """
93cb3ff80000000000009397ab426c6f636b53746f72656492cf800000000000000507c0dc0020000102030405060708090a0b0c0d0e0f1011121314
15161718191a1b1c1d1e1f10c0a347505593ac426c6f636b52656d6f7665649107a347505591b0416c6c426c6f636b73436c656172656400
"""
MAP = """
93cb3ff8000000000000938ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf8000000000000005b1706172656e745f
626c6f636b5f68617368c0a9746f6b656e5f696473dc0010000102030405060708090a0b0c0d0e0faa626c6f636b5f73697a6510a76c6f72615f6964
c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065
635f6b696e64ae66756c6c5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469
756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400
"""
RAW = """
93cb3ff80000000000009197ab426c6f636b53746f72656491c420aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac4
20bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbdc0010000102030405060708090a0b0c0d0e0f10c0a347505500
"""
"""Golden payloads: hashes with these low 64 bits, tokens counting up from 0, block size 16, time 1.5, rank 0."""

BIG = (9223372036854775813).to_bytes(32, "big")
SEVEN = (7).to_bytes(32, "big")


def stored(*hashes: bytes, parent: bytes | None = None, lora: str = "", salt: str = "") -> Stored:
    return Stored(hashes, parent, tuple(range(16 * len(hashes))), lora, salt)


def encoder(dialect: str, **more: Any) -> Encoder:
    return Encoder(DIALECTS[dialect], block_size=16, **more)


def test_the_array_form_is_the_golden_one() -> None:
    payload = encoder("vllm-array-0.10").batch([stored(BIG, SEVEN), Removed(SEVEN), Cleared()], 1.5)
    assert payload == bytes.fromhex(ARRAY)


def test_the_map_form_is_the_golden_one() -> None:
    payload = encoder("vllm-map-0.24").batch([stored(BIG), Removed(SEVEN), Cleared()], 1.5)
    assert payload == bytes.fromhex(MAP)


def test_raw_hashes_are_the_golden_ones() -> None:
    event = stored(b"\xaa" * 32, parent=b"\xbb" * 32)
    assert encoder("vllm-array-0.10", raw_hashes=True).batch([event], 1.5) == bytes.fromhex(RAW)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [("vllm-array-0.10", 7), ("vllm-array-0.17", 9), ("vllm-array-0.22", 12)],
)
def test_array_events_have_every_position_of_their_version(dialect: str, fields: int) -> None:
    _, (event,), rank = msgspec.msgpack.decode(encoder(dialect, rank=3).batch([stored(BIG)], 1.0))
    assert len(event) == fields
    assert rank == 3


@pytest.mark.parametrize("dialect", ["vllm-map-0.24", "vllm-map-0.26"])
def test_map_events_name_adapter_and_salt_where_they_belong(dialect: str) -> None:
    events = [
        stored(BIG, SEVEN, lora="sql", salt="tenant"),
        stored(SEVEN, parent=BIG, lora="sql"),
    ]
    _, (first, second), _ = msgspec.msgpack.decode(encoder(dialect, loras=("law", "sql")).batch(events, 1.0))
    assert (first["lora_id"], first["lora_name"]) == (2, "sql")
    assert first["extra_keys"] == [["sql", "tenant"], ["sql"]]
    assert second["extra_keys"] == [["sql"]]
    assert second["parent_block_hash"] == 9223372036854775813
