"""The bench of the index: what it measures on is what it says, and its oracle sees a wrong index."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from types import SimpleNamespace

import pytest

from picker.bench.index import dynamo, oracle
from picker.bench.index.lookup import CASES, hash_rows, match_rows
from picker.bench.index.oracle import SHAPES, Holder, Tree, check
from picker.bench.index.population import grow, names
from picker.bench.index.run import QUICK, run
from picker.bench.index.upkeep import apply_blocks_per_s, clear, fill
from picker.core.blocks import block_hash
from picker.core.index import DEVICE, Match, Overlap, PrefixIndex
from picker.core.match import Runs

TINY = replace(
    QUICK,
    entries=40_000,
    workers=16,
    events=60,
    cleared_blocks=4_000,
    match_workers=(8, 1000),
    match_blocks=(64, 2048),
    background=1_000,
    each=1,
    rounds=2,
    hash_tokens=(256,),
    queries=(60, 30, 5),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_index_is_right_in_every_shape_of_world(shape: oracle.Shape) -> None:
    found = check(shape, 400 if shape.workers < 100 else 60, seed=11)
    assert found["wrong"] == 0
    assert int(str(found["mid_chain_removals"])) > 20


class _Forgetful(PrefixIndex):
    """Drops one removal in fifty."""

    calls = 0

    def remove(self, worker: str, hashes: Sequence[int], tier: int = DEVICE) -> int:
        self.calls += 1
        return 0 if self.calls % 50 == 0 else super().remove(worker, hashes, tier)


class _OneTier(PrefixIndex):
    """Takes every tier for the device."""

    def store(self, worker: str, hashes: Sequence[int], tier: int = DEVICE) -> int:
        return super().store(worker, hashes)


class _ShortSighted(PrefixIndex):
    """Sees a hundred blocks."""

    def match(self, hashes: Sequence[int], expected: Runs | None = None) -> Match:
        return super().match(hashes[:100], expected)


@pytest.mark.parametrize("broken", [_Forgetful, _OneTier, _ShortSighted])
def test_the_oracle_sees_a_wrong_index(broken: type[PrefixIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "PrefixIndex", broken)
    assert int(str(check(SHAPES[1], 300, seed=3)["wrong"])) > 0


def test_what_a_worker_announces_is_withdrawn_behind_a_hole_and_comes_back_with_the_block() -> None:
    rng, tree, index = random.Random(1), Tree(), PrefixIndex()
    path = [tree.new(None, rng)]
    for _ in range(9):
        path.append(tree.new(path[-1], rng))
    hashes = [tree.hashes[node] for node in path]
    holder = Holder("w:1", tree, index)
    holder.store(path, 0)
    holder.remove([path[4]], 0)
    assert index.held("w:1") == frozenset(hashes[:4])
    assert holder.overlap(path) == Overlap(4)
    holder.store([path[4]], 1)
    assert index.match(hashes).overlap("w:1") == Overlap(9, 1, 0) == holder.overlap(path)


def test_a_full_index_has_the_stated_mix() -> None:
    index = PrefixIndex()
    grown = grow(index, names(64), 400_000, random.Random(1))
    assert 390_000 <= grown.entries == len(index) <= 400_000
    assert grown.distinct >= 0.95 * grown.entries
    assert 0.09 <= grown.lower / grown.entries <= 0.11
    assert sum("@1" in name for name in names(320)) == 64


def test_applying_and_clearing_leave_the_index_as_it_was() -> None:
    full = fill(names(8), 20_000, random.Random(1))
    before = len(full.index)
    assert apply_blocks_per_s(full, 40, random.Random(2)) > 0
    assert len(full.index) == before
    found = clear(full, 10_000, random.Random(3))
    assert found.exact
    assert found.blocks >= 10_000
    assert found.steps >= (before + found.blocks) // 2000
    assert (len(full.index), full.index.left) == (before, 0)


def test_every_size_and_case_has_its_row() -> None:
    rows = match_rows(8, (64, 256), background=2_000, each=1, rounds=2, rng=random.Random(1), tiered=True)
    assert [(row["blocks"], row["case"]) for row in rows] == [(n, c) for n in (64, 256) for c in CASES]
    assert all(row["p50_us"] <= row["p99_us"] for row in rows)
    assert [row["tokens"] for row in hash_rows((64, 128), 2, random.Random(1))] == [64, 64, 128, 128]


def test_the_whole_bench_has_the_shape_that_is_compared_over_time() -> None:
    shown = run(TINY, seed=5, beside=False).as_json()
    assert {
        "match",
        "bytes_per_entry",
        "apply_blocks_per_s",
        "clear_max_pause_ms",
        "growth_max_pause_ms",
    } <= set(shown)
    assert shown["oracle"]["queries"] == 95
    assert shown["oracle"]["wrong"] == 0
    assert {"workers", "blocks", "case", "p50_us", "p99_us"} <= set(shown["match"][0])
    names_ = [each["name"] for each in shown["budgets"]]
    assert len(names_) == len(set(names_))
    assert shown["passed"] == all(each["passed"] for each in shown["budgets"])


class _Tree:
    """What is asked of the other package's tree, by the naive definition, from its events in JSON."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], list[int]] = {}

    def apply_event(self, worker: int, event: bytes) -> None:
        told = json.loads(event)
        blocks = told["data"]["stored"]["blocks"]
        self.held.setdefault((worker, told["dp_rank"]), []).extend(each["tokens_hash"] for each in blocks)

    def find_matches(self, own: list[int]) -> SimpleNamespace:
        scores = {who: len(list(takewhile(set(held).__contains__, own))) for who, held in self.held.items()}
        return SimpleNamespace(scores={who: count for who, count in scores.items() if count})


def _own_hashes(tokens: list[int], size: int) -> list[int]:
    return [block_hash(tokens[at : at + size]) for at in range(0, len(tokens), size)]


def test_both_indexes_are_asked_the_same_and_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(RadixTree=_Tree, compute_block_hash_for_seq=_own_hashes)
    monkeypatch.setitem(sys.modules, "dynamo.llm", other)
    rows = dynamo.side_by_side(8, (64,), each=2, rounds=2, rng=random.Random(1))
    assert [row["case"] for row in rows] == list(CASES)
    assert all(row["ratio"] > 0 and row["from_tokens_ratio"] > 0 for row in rows)
    monkeypatch.setattr(_Tree, "find_matches", lambda *_: SimpleNamespace(scores={(0, 0): 1}))
    with pytest.raises(AssertionError, match="do not agree"):
        dynamo.side_by_side(8, (64,), each=1, rounds=1, rng=random.Random(1))
