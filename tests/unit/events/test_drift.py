"""
A fixture per row of the versions' table: the bytes that each engine and version writes, from its socket's frames to
what a worker is said to hold.

Encodings are made here by the field lists of each version, apart from the decoder's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from picker.core.blocks import sequence_hashes
from picker.core.worker import worker_name
from picker.events.bridge.dialect import decode_frames, is_end
from picker.events.bridge.ranks import Ranks
from picker.events.records import Epoch

BLOCK = 4
PROMPT = list(range(1, 13))
OTHER = [9] * 8
FIRST = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
GROUPS = ("group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window")
ALWAYS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


@dataclass(frozen=True)
class Version:
    """How one row writes."""

    name: str
    stored: tuple[str, ...]
    removed: tuple[str, ...] = ("block_hashes",)
    maps: bool = False
    rank: bool = True
    hashes: str = "u64"
    replay_topic: bool = False
    salt: str = ""
    """Where a salt travels: extra_keys, slot (SGLang's eighth), field; empty: nowhere."""
    names: bool = False
    groups: bool = False


EXTRA = (*FIRST, "medium", "lora_name", "extra_keys")
VERSIONS = [
    Version("vllm 0.9.0", FIRST, rank=False, hashes="i64"),
    Version("vllm 0.9.2, 0.10.0", FIRST, hashes="i64"),
    Version("vllm 0.10.2 - 0.13", (*FIRST, "medium"), ("block_hashes", "medium")),
    Version("vllm 0.10.2 - 0.13 bytes", (*FIRST, "medium"), ("block_hashes", "medium"), hashes="bytes"),
    Version("vllm 0.14 - 0.16", (*FIRST, "medium", "lora_name"), ("block_hashes", "medium"), names=True),
    Version("vllm 0.17 - 0.19", EXTRA, ("block_hashes", "medium"), salt="extra_keys", names=True),
    Version("vllm 0.20, 0.21", (*EXTRA, "group_idx"), ("block_hashes", "medium", "group_idx"),
            salt="extra_keys", names=True, groups=True),
    Version("vllm 0.22, 0.23", (*EXTRA, *GROUPS), ("block_hashes", "medium", "group_idx"),
            salt="extra_keys", names=True, groups=True),
    Version("vllm 0.24, 0.25", (*EXTRA, *GROUPS), ("block_hashes", "medium", "group_idx"), maps=True,
            salt="extra_keys", names=True, groups=True),
    Version("vllm 0.26 - 0.28", (*EXTRA, *GROUPS, "locality"), ("block_hashes", "medium", "group_idx", "locality"),
            maps=True, replay_topic=True, salt="extra_keys", names=True, groups=True),
    Version("vllm 0.29", (*EXTRA, *GROUPS, "locality", "ownership"),
            ("block_hashes", "medium", "group_idx", "locality", "ownership"),
            maps=True, replay_topic=True, salt="extra_keys", names=True, groups=True),
    Version("vllm 0.31, 0.33", (*EXTRA, *GROUPS, "locality", "ownership", "session_id", "unheard_of"),
            ("block_hashes", "medium", "group_idx", "locality", "ownership", "session_id"),
            maps=True, replay_topic=True, salt="extra_keys", names=True, groups=True),
    Version("sglang 0.5.7", FIRST, hashes="i64"),
    Version("sglang 0.5.9 - 0.5.17", (*FIRST, "medium"), ("block_hashes", "medium"), hashes="i64"),
    Version("sglang 0.5.18, 0.5.19", (*FIRST, "medium", "slot"), ("block_hashes", "medium"), hashes="i64", salt="slot"),
    Version("sglang 0.5.20", (*FIRST, "medium", "cache_salt", "session_id"), ("block_hashes", "medium"), maps=True,
            hashes="i64", salt="field"),
    Version("sglang 0.5.23", (*FIRST, "medium", "cache_salt", "session_id", "lora_name"), ("block_hashes", "medium"),
            maps=True, hashes="i64", replay_topic=True, salt="field", names=True),
    Version("tensorrt-llm stream", (*FIRST, "medium", "lora_name", "mm_keys"), ("block_hashes", "medium"), maps=True,
            replay_topic=True),
]  # fmt: skip
ALL = pytest.mark.parametrize("version", VERSIONS, ids=[each.name for each in VERSIONS])


def engine_hash(prefix: list[int], version: Version, salt: str = "", lora: str = "") -> int | bytes:
    """The engine's own hash of a prefix, as that version writes it; about half of the signed ones are negative."""
    value = hash((tuple(prefix), salt, lora)) & 0xFFFF_FFFF_FFFF_FFFF
    if version.hashes == "bytes":
        return b"\xaa" * 24 + value.to_bytes(8, "big")
    return value - 2**64 if version.hashes == "i64" and value >= 2**63 else value


def shaped(version: Version, tag: str, names: tuple[str, ...], facts: dict[str, Any]) -> Any:
    if not version.maps:
        kept = list(names)
        while kept and kept[-1] == "slot" and facts.get("slot") is None:
            kept.pop()
        return [tag, *(facts.get(name) for name in kept)]
    return {"type": tag} | {
        name: facts.get(name) for name in names if name in ALWAYS or facts.get(name) is not None
    }


def store(version: Version, tokens: list[int], first: int = 0, **given: Any) -> Any:
    """The event of the blocks of a prompt from number ``first`` on."""
    size, salt, lora = given.pop("size", BLOCK), given.pop("salt", ""), given.pop("lora", "")
    chain = [engine_hash(tokens[:end], version, salt, lora) for end in range(size, len(tokens) + 1, size)]
    facts: dict[str, Any] = {
        "block_hashes": chain[first:], "parent_block_hash": chain[first - 1] if first else None,
        "token_ids": tokens[first * size :], "block_size": size, "lora_id": 1 if lora else None,
        "medium": "GPU", "lora_name": lora or None, "group_idx": 0, "kv_cache_spec_kind": "full_attention",
        "session_id": "s-1", "unheard_of": {"a": 1}, "locality": "local", "ownership": "owned",
        "cache_salt": salt or None, "slot": {"cache_salt": salt} if salt else None,
        "extra_keys": [
            [each for each in (lora, salt if number + first == 0 else "") if each] or None
            for number in range(len(chain) - first)
        ],
    }  # fmt: skip
    return shaped(version, "BlockStored", version.stored, facts | given)


def removal(version: Version, *prefixes: list[int], **given: Any) -> Any:
    hashes = [engine_hash(prefix, version) for prefix in prefixes]
    facts = {
        "block_hashes": hashes,
        "medium": "GPU",
        "group_idx": 0,
        "locality": "local",
        "session_id": "s-1",
    }
    return shaped(version, "BlockRemoved", version.removed, facts | given)


def clear(version: Version) -> Any:
    return {"type": "AllBlocksCleared"} if version.maps else ["AllBlocksCleared"]


class Engine:
    """Sends through both framings, into the bridge's ranks."""

    def __init__(self, version: Version, **given: Any) -> None:
        self.version = version
        self.ranks = Ranks("10.0.0.1:8000", pool="a/b", first=0, block_size=BLOCK, keep=64,
                           piece_bytes=lambda: 100_000, **given)  # fmt: skip
        self.ranks.begin(Epoch(1, 1), aside=False)
        self.ranks.complete()
        self.sent = 0

    def send(self, *events: Any, rank: int = 0) -> None:
        batch: list[Any] = [1.5, list(events)]
        if self.version.rank:
            batch.append(rank)
        payload, number = msgspec.msgpack.encode(batch), self.sent.to_bytes(8, "big")
        live = decode_frames([b"kv-events", number, payload])
        replayed = decode_frames(
            [b"", *([b"kv-events"] if self.version.replay_topic else []), number, payload]
        )
        assert live == replayed
        assert live is not None
        self.sent += 1
        self.ranks.apply(live.payload, 0.0)

    def held(self, tier: int = 0, rank: int = 0) -> set[int]:
        return set(self.ranks.by_rank[rank].blocks.announced.tier(tier))

    @property
    def partial(self) -> bool:
        return self.ranks.by_rank[0].publisher.partial


@ALL
def test_stores_removals_and_clears_are_followed(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, PROMPT[:8]), store(version, OTHER))
    engine.send(store(version, PROMPT, 2))
    assert engine.held() == {*sequence_hashes(PROMPT, BLOCK), *sequence_hashes(OTHER, BLOCK)}
    engine.send(removal(version, PROMPT[:8], OTHER, OTHER[:4]))
    assert engine.held() == set(sequence_hashes(PROMPT[:4], BLOCK)), (
        "what follows a missing block is withdrawn"
    )
    engine.send(store(version, PROMPT[:8], 1))
    assert engine.held() == set(sequence_hashes(PROMPT, BLOCK))
    engine.send(clear(version))
    assert engine.held() == set()
    assert engine.ranks.counts.skipped == {}
    assert not engine.partial


@ALL
def test_every_copy_is_counted(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER), store(version, OTHER))
    engine.send(removal(version, OTHER))
    assert len(engine.held()) == 2
    engine.send(removal(version, OTHER))
    assert len(engine.held()) == 1


@ALL
def test_the_mark_of_a_replays_end_is_known(version: Version) -> None:
    assert is_end([b"", *([b""] if version.replay_topic else []), b"\xff" * 8, b""])


@ALL
def test_ranks_are_kept_apart_where_the_envelope_names_them(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER), rank=1)
    named = 1 if version.rank else 0
    assert len(engine.held(rank=named)) == 2
    worker = engine.ranks.by_rank[named].worker
    assert worker == worker_name("10.0.0.1:8000", named)


@ALL
def test_a_salt_is_in_the_hash_where_the_version_tells_it(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, PROMPT[:8], salt="pepper"))
    engine.send(store(version, PROMPT, 2, salt="pepper"))
    told = "pepper" if version.salt else ""
    assert engine.held() == set(sequence_hashes(PROMPT, BLOCK, salt=told))


@ALL
def test_an_adapters_blocks_never_pass_for_the_base_models(version: Version) -> None:
    engine = Engine(version)
    given: dict[str, Any] = {} if version.names else {"lora_name": None}
    if version.name.startswith("sglang"):
        given["lora_id"] = None  # SGLang never sends the number, and before 0.5.23 not the name either
    engine.send(store(version, OTHER, lora="ad", **given))
    if version.names:
        assert engine.held() == set(sequence_hashes(OTHER, BLOCK, lora="ad"))
    elif not version.name.startswith("sglang"):
        assert engine.held() == set()
        assert engine.ranks.counts.skipped == {"lora_without_name": 1}


@ALL
def test_a_page_of_one_token_is_joined_into_the_pools_blocks(version: Version) -> None:
    engine = Engine(version)
    engine.send(*(store(version, OTHER[:end], end - 1, size=1) for end in range(1, 8)))
    assert engine.held() == set(sequence_hashes(OTHER[:4], BLOCK))
    engine.send(store(version, OTHER, 7, size=1))
    assert engine.held() == set(sequence_hashes(OTHER, BLOCK))
    engine.send(removal(version, OTHER[:6]))
    assert engine.held() == set(sequence_hashes(OTHER[:4], BLOCK))


GROUPED = pytest.mark.parametrize(
    "version", [each for each in VERSIONS if each.groups], ids=lambda each: each.name
)


@GROUPED
def test_only_the_first_full_group_counts_and_its_removals(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER), store(version, OTHER, group_idx=1, kv_cache_spec_kind="mamba"))
    engine.send(removal(version, OTHER, OTHER[:4], group_idx=1))
    assert len(engine.held()) == 2
    engine.send(removal(version, OTHER, OTHER[:4]))
    assert engine.held() == set()


@GROUPED
def test_a_masked_group_is_left_out(version: Version) -> None:
    engine = Engine(version)
    masked = store(version, PROMPT, group_idx=1, kv_cache_spec_kind="sliding_window", token_ids=PROMPT[4:])
    engine.send(masked, store(version, OTHER))
    assert engine.held() == set(sequence_hashes(OTHER, BLOCK))
    assert engine.ranks.counts.skipped == {"masked": 1}
    assert not engine.partial


@GROUPED
def test_a_partial_block_is_left_out(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER))
    engine.send(store(version, [*OTHER, 7, 7], 0, size=2))
    assert engine.held() == set(sequence_hashes(OTHER, BLOCK))
    assert engine.ranks.by_rank[0].blocks.counts.other_sizes == 1


MEDIA = pytest.mark.parametrize(
    "version", [each for each in VERSIONS if "medium" in each.stored], ids=lambda each: each.name
)


@MEDIA
@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        ("CPU", 1),
        ("cpu_pinned", 1),
        ("CPU_TIER1", 1),
        ("CPU_TIER2", 2),
        ("DISK", 2),
        ("NVME", 2),
        ("STORAGE", 2),
    ],
)
def test_a_location_without_tokens_moves_a_known_block_to_its_tier(
    version: Version, medium: str, tier: int
) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER))
    engine.send(store(version, OTHER, token_ids=[], block_size=0, parent_block_hash=None, medium=medium))
    engine.send(removal(version, OTHER, OTHER[:4]))
    assert engine.held() == set()
    assert engine.held(tier) == set(sequence_hashes(OTHER, BLOCK))
    engine.send(removal(version, OTHER, OTHER[:4], medium=medium))
    assert engine.held(tier) == set()


@MEDIA
def test_a_shared_store_is_no_engines_own(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, OTHER, medium="EXTERNAL"))
    assert all(not engine.held(tier) for tier in range(3))
    assert engine.ranks.counts.skipped == {"elsewhere": 1}
    assert not engine.partial


def test_unchained_hashes_of_old_sglang_are_never_claimed_in_vain() -> None:
    """To 0.5.5 a page's hash is that of its tokens alone: equal pages of two prompts cannot be told apart."""
    version = Version("sglang 0.5.5", FIRST, hashes="i64")
    engine = Engine(version)

    def page(tokens: list[int], parent: list[int] | None) -> Any:
        return store(
            version, tokens, parent_block_hash=None if parent is None else engine_hash(parent, version)
        )

    one, two, same, after = [1] * 4, [2] * 4, [3] * 4, [4] * 4
    engine.send(page(one, None), page(same, one), page(after, same))
    assert engine.held() == set(sequence_hashes(one + same + after, BLOCK))
    engine.send(page(two, None), page(same, two))
    expected = {*sequence_hashes(one, BLOCK), *sequence_hashes(two, BLOCK)}
    assert engine.held() == expected
    assert engine.partial
    engine.send(removal(version, same))
    assert engine.held() == expected, "which of the two went is not known"


def test_blocks_announced_again_are_no_copies() -> None:
    """vLLM 0.26 and later, per request: a hit is reported as a store; marked or not."""
    version = VERSIONS[-9]
    assert version.maps
    marked, unmarked = Engine(version), Engine(version, count_copies=False)
    marked.send(store(version, OTHER), store(version, OTHER) | {"origin": "REUSED"})
    unmarked.send(store(version, OTHER), store(version, OTHER))
    for engine in (marked, unmarked):
        engine.send(removal(version, OTHER))
        assert engine.held() == set(sequence_hashes(OTHER[:4], BLOCK))
    marked.send(store(version, PROMPT) | {"origin": "REUSED"})
    assert set(sequence_hashes(PROMPT, BLOCK)) < marked.held(), "said again, it mends what was missed"


@pytest.mark.parametrize(
    "version", [each for each in VERSIONS if each.salt == "extra_keys"], ids=lambda each: each.name
)
def test_media_are_in_the_hash_of_their_block_and_of_all_that_follow(version: Version) -> None:
    engine = Engine(version)
    engine.send(store(version, PROMPT, extra_keys=[None, [["ab" * 32, 1]], None]))
    held = engine.held()
    assert len(held) == 3
    assert held & set(sequence_hashes(PROMPT, BLOCK)) == set(sequence_hashes(PROMPT[:4], BLOCK))
    other = Engine(version)
    other.send(store(version, PROMPT, extra_keys=[None, [["cd" * 32, 1]], None]))
    assert len(held & other.held()) == 1
