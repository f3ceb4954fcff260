"""The index against a naive oracle, and what it promises where the writer breaks its word."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.core.index import DEVICE, DISK, HOST, NO_OVERLAP, Overlap, PrefixIndex, sum_overlaps
from picker.core.match import bits

WORKERS = [f"10.0.0.{n}:8000" for n in range(6)]


def _chains() -> list[list[int]]:
    """Chains that share prefixes, with branches around the places where the search jumps."""
    rng = random.Random(7)
    trunk = [rng.getrandbits(64) for _ in range(110)]
    branches = [trunk[:at] + [rng.getrandbits(64) for _ in range(100)] for at in (0, 1, 31, 32, 33, 64, 90)]
    return [trunk, *branches]


CHAINS = _chains()
Step = tuple[Any, ...]


class Oracle:
    """Each worker's blocks and their tiers, as sets."""

    def __init__(self) -> None:
        self.held: dict[str, dict[int, set[int]]] = {}

    def store(self, worker: str, hashes: Sequence[int], tier: int) -> None:
        for key in hashes if worker in self.held else ():
            self.held[worker].setdefault(key, set()).add(tier)

    def remove(self, worker: str, hashes: Sequence[int], tier: int) -> None:
        blocks = self.held.get(worker, {})
        for key in hashes:
            blocks.get(key, set()).discard(tier)
            if key in blocks and not blocks[key]:
                del blocks[key]

    def overlap(self, worker: str, hashes: Sequence[int]) -> Overlap:
        counts = [0, 0, 0]
        for key in hashes:
            tiers = self.held.get(worker, {}).get(key)
            if not tiers:
                break
            counts[min(tiers)] += 1
        return Overlap(*counts)


def check(index: PrefixIndex, oracle: Oracle, hashes: Sequence[int]) -> None:
    match = index.match(hashes)
    expected = {worker: oracle.overlap(worker, hashes) for worker in WORKERS}
    assert {worker: match.overlap(worker) for worker in WORKERS} == expected
    by_slot = {index.slot(worker): held for worker, held in expected.items() if held.total}
    shares = match.shares()
    assert {slot: held for mask, held in shares for slot in bits(mask)} == by_slot
    assert sum(mask.bit_count() for mask, _ in shares) == len(by_slot)
    assert match.best == max(overlap.total for overlap in expected.values())
    lengths = [length for _, length in match.runs]
    assert lengths == sorted(set(lengths))
    seen = 0
    for mask, _ in match.runs:
        assert mask
        assert not mask & seen
        seen |= mask


worker = st.sampled_from(WORKERS)
chain = st.integers(0, len(CHAINS) - 1)
place = st.integers(0, 110)
tier = st.sampled_from([DEVICE, HOST, DISK])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("store"), worker, chain, place, tier),
        st.tuples(st.just("store"), worker, chain, place, st.just(DEVICE)),
        st.tuples(st.just("evict"), worker, chain, place),
        st.tuples(st.just("shift"), worker, chain, place, place, tier),
        st.tuples(st.just("late"), worker, chain),
        st.tuples(st.just("clear"), worker),
        st.tuples(st.just("drop"), worker),
        st.tuples(st.just("add"), worker),
        st.tuples(st.just("sweep"), st.integers(1, 400)),
    ),
    max_size=40,
)


def _under(key: int) -> set[int]:
    """The block and all that comes after it on any chain."""
    return {k for c in CHAINS if key in c for k in c[c.index(key) :]}


def _both(index: PrefixIndex, oracle: Oracle, act: str, who: str, hashes: Sequence[int], on: int) -> None:
    getattr(index, act)(who, hashes, on)
    getattr(oracle, act)(who, hashes, on)


def _evict(index: PrefixIndex, oracle: Oracle, who: str, which: int, since: int) -> None:
    """A block goes, and with it all that comes after it, from all tiers."""
    gone = sorted(set().union(*(_under(key) for key in CHAINS[which][since : since + 1])))
    for on in (HOST, DEVICE, DISK):
        _both(index, oracle, "remove", who, gone, on)


def _shift(index: PrefixIndex, oracle: Oracle, step: tuple[str, int, int, int], to: int) -> None:
    """Blocks that are held move to one tier and leave the others."""
    who, which, since, until = step
    part = [key for key in CHAINS[which][since:until] if key in oracle.held.get(who, {})]
    _both(index, oracle, "store", who, part, to)
    for on in {DEVICE, HOST, DISK} - {to}:
        _both(index, oracle, "remove", who, part, on)


def _set(index: PrefixIndex, oracle: Oracle, act: str, who: str) -> None:
    getattr(index, act)(who)
    if act == "drop":
        oracle.held.pop(who, None)
    elif act == "add":
        oracle.held.setdefault(who, {})
    elif who in oracle.held:
        oracle.held[who] = {}


def _apply(index: PrefixIndex, oracle: Oracle, step: Step) -> None:
    match step:
        case ("store", who, which, upto, on):
            _both(index, oracle, "store", who, CHAINS[which][:upto], on)
        case ("evict", who, which, since):
            _evict(index, oracle, who, which, since)
        case ("shift", who, which, since, until, to):
            _shift(index, oracle, (who, which, since, until), to)
        case ("late", who, which):
            index.remove(who, [key ^ 1 for key in CHAINS[which]])
        case ("sweep", limit):
            index.sweep(limit)
        case (act, who):
            _set(index, oracle, act, who)


@settings(max_examples=250, deadline=None)
@given(steps, st.lists(st.tuples(chain, place, st.booleans()), min_size=1, max_size=3))
def test_every_answer_equals_the_naive_oracle(
    steps: list[Step], queries: list[tuple[int, int, bool]]
) -> None:
    index, oracle = PrefixIndex(), Oracle()
    for who in WORKERS[:4]:
        index.add(who)
        oracle.held[who] = {}
    for step in steps:
        _apply(index, oracle, step)
        for which, upto, foreign in queries:
            check(index, oracle, CHAINS[which][:upto] + ([12345] * foreign))
        assert {who: index.count(who) for who in WORKERS} == {
            who: len(oracle.held.get(who, {})) for who in WORKERS
        }
        assert len(index) == sum(len(blocks) for blocks in oracle.held.values())
    for which in range(len(CHAINS)):
        check(index, oracle, CHAINS[which])
    for who in WORKERS:
        assert index.held(who) == set(oracle.held.get(who, {}))
    while index.sweep(97):
        pass
    for which in range(len(CHAINS)):
        check(index, oracle, CHAINS[which])
    _nothing_is_left_over(index, oracle)


def _nothing_is_left_over(index: PrefixIndex, oracle: Oracle) -> None:
    blocks = [set(blocks) for blocks in oracle.held.values()]
    assert sum(len(shard) for shard in index._held.shards) == len(set().union(*blocks))
    lower = {key for held in oracle.held.values() for key, tiers in held.items() if DEVICE not in tiers}
    assert sum(len(shard) for shard in index._below.shards) == len(lower)
    for on in (HOST, DISK):
        there = {key for held in oracle.held.values() for key, tiers in held.items() if on in tiers}
        assert sum(len(shard) for shard in index._tiers[on].shards) == len(there)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sets(st.integers(0, 109)), min_size=1, max_size=4), st.integers(1, 110))
def test_a_broken_prefix_closure_never_under_counts_and_never_counts_past_a_held_block(
    holes: list[set[int]], upto: int
) -> None:
    index, trunk = PrefixIndex(), CHAINS[0]
    for who, places in zip(WORKERS, holes, strict=False):
        index.add(who)
        index.store(who, [trunk[at] for at in sorted(places)])
    match = index.match(trunk[:upto])
    for who, places in zip(WORKERS, holes, strict=False):
        counted = match.overlap(who).total
        true = next(at for at in range(upto + 1) if at == upto or at not in places)
        assert counted >= true
        if counted:
            assert {0, counted - 1} <= places
            assert counted == upto or counted not in places


def test_a_worker_that_is_not_known_is_ignored_and_counted() -> None:
    index = PrefixIndex()
    index.store("nobody:1", CHAINS[0])
    index.remove("nobody:1", CHAINS[0])
    index.clear("nobody:1")
    index.drop("nobody:1")
    assert index.counts.unknown_worker == 2
    assert index.match(CHAINS[0]).overlap("nobody:1") == NO_OVERLAP
    assert len(index) == index.count("nobody:1") == 0
    assert index.held("nobody:1") == frozenset()


def test_events_late_for_a_worker_that_left_bring_nothing_back() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    index.store(WORKERS[0], CHAINS[0])
    index.drop(WORKERS[0])
    index.store(WORKERS[0], CHAINS[0])
    assert index.match(CHAINS[0]).best == 0
    index.add(WORKERS[0])
    assert index.match(CHAINS[0]).best == 0


def test_what_is_stored_twice_counts_once_and_removing_what_is_not_held_is_counted() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    assert index.store(WORKERS[0], [*CHAINS[0], *CHAINS[0]]) == 110
    assert index.store(WORKERS[0], CHAINS[0]) == 0
    assert index.remove(WORKERS[0], CHAINS[0][100:]) == 10
    assert index.remove(WORKERS[0], CHAINS[0][100:]) == 0
    assert index.counts.not_held == 10
    assert index.count(WORKERS[0]) == 100


def test_a_clear_is_exact_before_any_sweep_and_its_bit_is_not_reused_before_the_end_of_it() -> None:
    index = PrefixIndex()
    for who in WORKERS[:2]:
        index.add(who)
        index.store(who, CHAINS[0])
    index.clear(WORKERS[0])
    index.add(WORKERS[2])
    assert index.width == 4
    match = index.match(CHAINS[0])
    assert [match.overlap(who).total for who in WORKERS[:3]] == [0, 110, 0]
    assert index.left == 110
    while index.sweep(16):
        index.add(WORKERS[3])
        assert index.match(CHAINS[0]).overlap(WORKERS[3]) == NO_OVERLAP
    index.add(WORKERS[4])
    assert index.width == 5
    assert index.match(CHAINS[0]).overlap(WORKERS[4]) == NO_OVERLAP


def test_a_sweep_looks_at_no_more_entries_than_it_was_allowed() -> None:
    index, rng = PrefixIndex(), random.Random(3)
    index.add(WORKERS[0])
    index.store(WORKERS[0], [rng.getrandbits(64) for _ in range(20_000)])
    index.clear(WORKERS[0])
    steps = 0
    while index.left:
        before = index.counts.swept
        index.sweep(500)
        steps += 1
        assert index.counts.swept - before <= 500
    assert index.counts.swept == 20_000
    assert 40 <= steps <= 60


def test_clears_without_any_sweep_do_not_widen_the_masks_without_bound() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    for at in range(3000):
        index.store(WORKERS[0], CHAINS[0][: 1 + at % 3])
        index.clear(WORKERS[0])
    assert index.width < 1100
    assert index.counts.forced_sweeps > 0
    index.store(WORKERS[0], CHAINS[0])
    assert index.match(CHAINS[0]).overlap(WORKERS[0]) == Overlap(110)


def test_clearing_a_worker_that_holds_nothing_costs_no_bit() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    for _ in range(100):
        index.clear(WORKERS[0])
    assert index.width == 1


def test_a_block_counts_once_in_its_best_tier() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    index.store(WORKERS[0], CHAINS[0][:10])
    index.store(WORKERS[0], CHAINS[0][:20], HOST)
    index.store(WORKERS[0], CHAINS[0][:40], DISK)
    assert index.match(CHAINS[0]).overlap(WORKERS[0]) == Overlap(10, 10, 20)
    index.remove(WORKERS[0], CHAINS[0][:10])
    assert index.match(CHAINS[0]).overlap(WORKERS[0]) == Overlap(0, 20, 20)
    index.clear(WORKERS[0])
    assert index.match(CHAINS[0]).overlap(WORKERS[0]) == NO_OVERLAP


def test_a_tier_that_does_not_exist_is_refused() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    for act in (index.store, index.remove):
        with pytest.raises(ValueError, match="tier 3"):
            act(WORKERS[0], CHAINS[0], 3)


def test_several_prompts_of_one_request_add_up() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    index.store(WORKERS[0], CHAINS[0][:10])
    index.store(WORKERS[0], CHAINS[1][:7], HOST)
    matches = [index.match(CHAINS[0]), index.match(CHAINS[1])]
    assert sum_overlaps(matches, WORKERS[0]) == Overlap(10, 7, 0)
    assert sum_overlaps([], WORKERS[0]) == NO_OVERLAP


def test_a_match_made_before_a_worker_joined_says_nothing_of_it() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    index.store(WORKERS[0], CHAINS[0])
    match = index.match(CHAINS[0])
    index.add(WORKERS[1])
    assert match.overlap(WORKERS[1]) == NO_OVERLAP


def test_an_empty_prompt_matches_nobody() -> None:
    index = PrefixIndex()
    index.add(WORKERS[0])
    assert index.match([]).runs == []
    assert index.match([]).best == 0
    assert index.match([]).overlap(WORKERS[0]) == NO_OVERLAP


def test_a_thousand_workers_get_their_own_answers() -> None:
    index = PrefixIndex()
    names = [f"w{n}:1" for n in range(1000)]
    for n, name in enumerate(names):
        index.add(name)
        index.store(name, CHAINS[0][: n % 111], HOST if n % 3 == 0 else DEVICE)
    match = index.match(CHAINS[0])
    for n, name in enumerate(names):
        overlap = match.overlap(name)
        assert overlap == (Overlap(0, n % 111) if n % 3 == 0 else Overlap(n % 111))
