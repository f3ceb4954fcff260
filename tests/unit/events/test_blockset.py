"""The block set against a naive model of an engine's cache, and each rule by itself."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.core.blocks import block_hash, chain, sequence_hashes
from picker.events.bridge.blockset import BlockSet
from picker.events.bridge.changes import Change
from picker.events.bridge.dialect import Cleared, Removed, Stored


def key(tokens: tuple[int, ...]) -> int:
    """The engine's own hash of a prefix."""
    return xxhash.xxh3_64_intdigest(bytes(tokens), seed=99)


def store(tokens: list[int], first: int = 0, count: int | None = None, **given: Any) -> Stored:
    """A store of some blocks of a prompt."""
    size = given.pop("size", 2)
    last = len(tokens) // size if count is None else first + count
    return Stored(
        hashes=tuple(key(tuple(tokens[: (n + 1) * size])) for n in range(first, last)),
        parent=key(tuple(tokens[: first * size])) if first else None,
        tokens=array("I", tokens[first * size : last * size]),
        block_size=size,
        tier=given.pop("tier", 0),
        lora=given.pop("lora", ""),
        salt=given.pop("salt", ""),
        opaque=given.pop("opaque", ()),
        group=given.pop("group", None),
        kind=given.pop("kind", None),
        media=given.pop("media", ()),
    )


def removal(*prefixes: list[int], tier: int = 0, group: int | None = None) -> Removed:
    return Removed(tuple(key(tuple(each)) for each in prefixes), tier, group)


class Follower:
    """Folds changes, as a replica does, and holds them to the rules."""

    def __init__(self) -> None:
        self.tiers: dict[int, set[int]] = {}

    def fold(self, changes: list[Change]) -> None:
        for change in changes:
            if change.kind == "cleared":
                self.tiers.clear()
            for block in change.hashes:
                on = self.tiers.setdefault(block, set())
                if change.kind == "stored":
                    assert change.tier not in on, "announced twice"
                    on.add(change.tier)
                else:
                    on.remove(change.tier)
                    if not on:
                        del self.tiers[block]


class Cache:
    """The naive model: which prefixes the engine holds, how often, on which tier."""

    def __init__(self, pool: int, size: int = 2) -> None:
        self.pool, self.size = pool, size
        self.copies: Counter[tuple[tuple[int, ...], int]] = Counter()

    def tiers_of(self, prefix: tuple[int, ...]) -> set[int]:
        return {tier for tier in range(3) if self.copies[prefix, tier] > 0}

    def truth(self) -> dict[int, set[int]]:
        held = {prefix for (prefix, _), count in self.copies.items() if count > 0}
        told: dict[int, set[int]] = {}
        for prefix in held:
            if len(prefix) % self.pool:
                continue
            if any(prefix[:end] not in held for end in range(self.size, len(prefix), self.size)):
                continue
            parts = [self.tiers_of(prefix[:end])
                     for end in range(len(prefix) - self.pool + self.size, len(prefix) + 1, self.size)]  # fmt: skip
            shared = set.intersection(*parts)
            told[sequence_hashes(list(prefix), self.pool)[-1]] = shared or {max(min(part) for part in parts)}
        return told


prompts = st.lists(st.integers(0, 1), min_size=2, max_size=16)
actions = st.one_of(
    st.tuples(st.just("store"), prompts, st.integers(0, 7), st.integers(1, 8), st.integers(0, 2)),
    st.tuples(st.just("remove"), st.integers(0, 1000)),
    st.tuples(st.just("locate"), st.integers(0, 1000), st.integers(0, 2)),
    st.tuples(st.just("stray"), prompts),
    st.tuples(st.just("clear")),
)


@settings(max_examples=400)
@given(st.sampled_from([2, 4, 8]), st.lists(actions, max_size=40))
def test_what_is_announced_is_the_prefix_closed_part_of_what_the_engine_holds(
    pool: int, steps: list[tuple[Any, ...]]
) -> None:
    cache, blocks, follower = Cache(pool), BlockSet(pool), Follower()
    # The first device store teaches the engine's block size; one comes before all others.
    follower.fold(blocks.apply(store([7, 7]), 0.0))
    cache.copies[(7, 7), 0] += 1
    for now, (what, *how) in enumerate(steps):
        held = sorted(each for each, count in cache.copies.items() if count > 0)
        if what == "store":
            tokens, first, count, tier = how
            first = min(first, len(tokens) // 2 - 1)
            count = min(count, len(tokens) // 2 - first)
            event: Any = store(tokens, first, count, tier=tier)
            for n in range(first, first + count):
                cache.copies[tuple(tokens[: (n + 1) * 2]), tier] += 1
        elif what == "remove" and held:
            prefix, tier = held[how[0] % len(held)]
            event = removal(list(prefix), tier=tier)
            cache.copies[prefix, tier] -= 1
        elif what == "locate" and held:
            prefix, _ = held[how[0] % len(held)]
            event = Stored((key(prefix),), None, None, 0, how[1], "", "", (), None, None)
            cache.copies[prefix, how[1]] += 1
        elif what == "stray" and not cache.tiers_of(tuple(how[0])):
            event = removal(how[0])
        elif what == "clear":
            event = Cleared()
            cache.copies.clear()
        else:
            continue
        follower.fold(blocks.apply(event, float(now) / 1000))
        assert follower.tiers == cache.truth()
        assert len(blocks) <= 2 * sum(1 for count in cache.copies.values() if count > 0)
    told = {block for tier in range(3) for block in blocks.announced.tier(tier)}
    assert told == set(follower.tiers)


A = [1, 1, 2, 2, 3, 3, 4, 4]


def told(blocks: BlockSet) -> set[int]:
    return set(blocks.announced.tier(0))


def test_a_block_goes_with_its_last_copy() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A), 0)
    assert blocks.apply(store(A), 0) == []
    assert blocks.apply(removal(A), 0) == []
    assert blocks.apply(removal(A), 0) == [Change("removed", 0, tuple(sequence_hashes(A, 2)[3:]))]


def test_an_unknown_parent_is_never_hung_on_the_root() -> None:
    blocks = BlockSet(2)
    assert blocks.apply(store(A, 2, 2), 0) == []
    assert blocks.parked == 2
    (change,) = blocks.apply(store(A, 0, 2), 0)
    assert change == Change("stored", 0, tuple(sequence_hashes(A, 2)))
    assert blocks.parked == 0


def test_parked_blocks_are_given_up_in_time_and_then_the_set_is_incomplete() -> None:
    blocks = BlockSet(2, parked_seconds=10)
    blocks.apply(store(A, 2, 2), 100)
    blocks.expire(109)
    assert (blocks.parked, blocks.incomplete) == (2, False)
    blocks.expire(110)
    assert (blocks.parked, len(blocks), blocks.incomplete) == (0, 0, True)
    assert blocks.counts.parked_dropped == 2
    blocks.apply(store(A, 0, 2), 111)
    assert told(blocks) == set(sequence_hashes(A[:4], 2))


def test_parked_blocks_are_bounded_and_the_oldest_go_first() -> None:
    blocks = BlockSet(2, max_parked=2)
    blocks.apply(store(A, 1, 1), 0)
    blocks.apply(store(A, 2, 2), 0)
    assert blocks.parked == 2
    assert blocks.counts.parked_dropped == 1
    blocks.apply(store(A, 0, 2), 0)
    assert told(blocks) == set(sequence_hashes(A, 2)), "the rest is told once the missing one is stored again"


def test_blocks_beyond_the_limit_are_counted_and_the_set_is_incomplete() -> None:
    blocks = BlockSet(2, max_blocks=3)
    blocks.apply(store(A), 0)
    assert told(blocks) == set(sequence_hashes(A[:6], 2))
    assert blocks.incomplete
    assert blocks.counts.over_limit == 1


def test_adapter_and_salt_are_in_the_hash_of_every_block_of_the_chain() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A, 0, 2, lora="ad", salt="s"), 0)
    blocks.apply(store(A, 2, 2, lora="ad"), 0)
    assert told(blocks) == set(sequence_hashes(A, 2, lora="ad", salt="s"))


def test_what_follows_media_is_never_announced() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A, 0, 3, opaque=(False, True, False)), 0)
    blocks.apply(store(A, 3, 1), 0)
    assert told(blocks) == set(sequence_hashes(A[:2], 2))


def test_a_block_size_that_does_not_divide_is_refused_in_words() -> None:
    blocks = BlockSet(4)
    assert blocks.apply(store([1] * 6, size=3), 0) == []
    assert "block size 3 does not divide the pool's PICKER_BLOCK_SIZE 4" in blocks.refusal
    assert blocks.counts.refused == 1


def test_an_engine_block_larger_than_the_pools_is_refused() -> None:
    blocks = BlockSet(2)
    blocks.apply(store([1] * 8, size=4), 0)
    assert blocks.refusal
    assert not told(blocks)


def test_partial_blocks_are_left_out() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A), 0)
    blocks.apply(store([*A, 9], 8, 1, size=1), 0)
    assert blocks.counts.other_sizes == 1
    assert told(blocks) == set(sequence_hashes(A, 2))


def test_the_first_group_of_full_attention_counts_and_the_others_do_not() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A, kind="sliding_window", group=0), 0)
    blocks.apply(store(A, kind="full_attention", group=1), 0)
    blocks.apply(store(A, kind="full_attention", group=2), 0)
    blocks.apply(removal(A, group=0), 0)
    assert told(blocks) == set(sequence_hashes(A, 2))
    blocks.apply(removal(A, group=1), 0)
    assert told(blocks) == set(sequence_hashes(A[:6], 2))


def test_tiers_are_told_apart_and_a_lower_one_keeps_the_chain() -> None:
    blocks = BlockSet(2)
    blocks.apply(store(A), 0)
    blocks.apply(Stored((key(tuple(A[:4])),), None, None, 0, 1, "", "", (), None, None), 0)
    (change,) = blocks.apply(removal(A[:4]), 0)
    hashes = sequence_hashes(A, 2)
    assert change == Change("removed", 0, (hashes[1],))
    assert blocks.announced.tier(1) == [hashes[1]]
    assert told(blocks) == {hashes[0], hashes[2], hashes[3]}


@pytest.mark.parametrize("tier", [0, 1])
def test_a_location_of_an_unknown_block_is_counted(tier: int) -> None:
    blocks = BlockSet(2)
    assert blocks.apply(Stored((5,), None, None, 0, tier, "", "", (), None, None), 0) == []
    assert blocks.counts.unknown_located == 1


def test_media_go_into_the_hash_of_their_block_and_over_joined_blocks_each_once() -> None:
    blocks = BlockSet(4)
    blocks.apply(store(A, media=((7,), (7, 8), (), ())), 0)
    first = block_hash(A[:4], media=(7, 8))
    assert told(blocks) == {first, chain(first, block_hash(A[4:]))}
    alone = BlockSet(2)
    alone.apply(store(A[:2], media=((8, 7, 7),)), 0)
    assert told(alone) == {block_hash(A[:2], media=(7, 7, 8))}


def test_media_of_parked_blocks_are_kept_until_they_are_placed() -> None:
    early, late = BlockSet(2), BlockSet(2)
    early.apply(store(A, media=((), (5,), (), ())), 0)
    late.apply(store(A, 1, 3, media=((5,), (), ())), 0)
    late.apply(store(A, 0, 1), 0)
    assert told(late) == told(early)


def test_one_hash_at_two_places_is_claimed_of_neither_until_its_last_copy_is_gone() -> None:
    blocks, follower = BlockSet(2), Follower()

    def page(key: int, tokens: list[int], parent: int | None) -> None:
        event = Stored((key,), parent, array("I", tokens), 2, 0, "", "", (), None, None)
        follower.fold(blocks.apply(event, 0))

    page(1, [1, 1], None)
    page(2, [2, 2], 1)
    page(3, [3, 3], 2)
    page(4, [4, 4], None)
    assert len(follower.tiers) == 4
    page(2, [2, 2], 4)
    roots = {sequence_hashes([1, 1], 2)[0], sequence_hashes([4, 4], 2)[0]}
    assert set(follower.tiers) == roots
    assert blocks.incomplete
    for _ in range(2):
        follower.fold(blocks.apply(Removed((2,), 0, None), 0))
    follower.fold(blocks.apply(Removed((3,), 0, None), 0))
    page(2, [2, 2], 4)
    assert set(follower.tiers) == {*roots, sequence_hashes([4, 4, 2, 2], 2)[1]}


@settings(max_examples=200)
@given(st.sampled_from([2, 4]), st.lists(actions, max_size=30))
def test_emptying_the_device_leaves_what_the_lower_tiers_hold(
    pool: int, steps: list[tuple[Any, ...]]
) -> None:
    cache, blocks, follower = Cache(pool), BlockSet(pool), Follower()
    follower.fold(blocks.apply(store([7, 7]), 0.0))
    cache.copies[(7, 7), 0] += 1
    for what, *how in steps:
        if what == "store":
            tokens, first, count, tier = how
            first = min(first, len(tokens) // 2 - 1)
            count = min(count, len(tokens) // 2 - first)
            follower.fold(blocks.apply(store(tokens, first, count, tier=tier), 0.0))
            for n in range(first, first + count):
                cache.copies[tuple(tokens[: (n + 1) * 2]), tier] += 1
        elif what == "clear":
            follower.fold(blocks.empty_device())
            for place in [each for each in cache.copies if each[1] == 0]:
                del cache.copies[place]
        assert follower.tiers == cache.truth()
