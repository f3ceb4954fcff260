"""Prefixes learned from picks: prefix-closed, bounded, short-lived."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from picker.core.approximate import Approximate
from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex


def make(**given: float) -> tuple[Approximate, PrefixIndex]:
    index = PrefixIndex()
    for worker in ("a", "b"):
        index.add(worker)
    return Approximate(index, **given), index  # type: ignore[arg-type]


def test_what_was_sent_is_believed_for_a_while() -> None:
    approximate, index = make(ttl=120.0)
    approximate.learn("a", [1, 2, 3], 0.0)
    approximate.learn("a", [1, 2, 4], 100.0)
    assert index.held("a") == {1, 2, 3, 4}
    approximate.expire(120.0)
    assert index.held("a") == {1, 2, 4}, "what was used again lives on"
    approximate.expire(220.0)
    assert index.held("a") == frozenset()
    assert "a" not in approximate


def test_the_bound_of_a_worker_takes_the_ends_of_old_prompts() -> None:
    approximate, index = make(worker_blocks=5)
    approximate.learn("a", [1, 2, 3, 4], 0.0)
    approximate.learn("a", [1, 2, 5, 6], 1.0)
    assert index.held("a") == {1, 2, 3, 5, 6}
    assert approximate.counts.over_bound == 1


def test_the_bound_of_all_workers_is_paid_by_the_one_that_learns() -> None:
    approximate, index = make(total_blocks=5)
    approximate.learn("a", [1, 2, 3], 0.0)
    approximate.learn("b", [1, 2], 1.0)
    approximate.learn("b", [1, 4, 4], 2.0)
    assert index.held("a") == {1, 2, 3}
    assert index.held("b") == {1, 4}
    approximate.learn("b", list(range(10, 20)), 3.0)
    assert (len(approximate), approximate.count("a"), approximate.count("b")) == (5, 3, 2)
    approximate.forget("a")
    assert len(approximate) == 2


def test_a_prompt_longer_than_the_bound_keeps_its_beginning() -> None:
    approximate, index = make(worker_blocks=3)
    approximate.learn("a", [1, 2, 3, 4, 5], 0.0)
    assert index.held("a") == {1, 2, 3}


def test_a_worker_that_speaks_for_itself_is_forgotten_and_no_other() -> None:
    approximate, index = make()
    approximate.learn("a", [1], 0.0)
    approximate.learn("b", [1], 0.0)
    index.clear("a")
    approximate.forget("a")
    approximate.forget("a")
    index.store("a", [1, 2])
    approximate.expire(1e9)
    assert index.held("a") == {1, 2}, "what its events told is theirs"
    assert index.held("b") == frozenset()


def test_one_sweep_is_bounded() -> None:
    approximate, index = make(ttl=1.0)
    approximate.learn("a", list(range(100)), 0.0)
    approximate.expire(5.0, limit=30)
    assert index.count("a") == 70


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.lists(st.integers(0, 1), min_size=1, max_size=8), st.floats(0, 3)
        ),
        max_size=40,
    ),
    st.integers(1, 12),
)
def test_what_is_learned_is_prefix_closed_and_bounded(
    picks: Sequence[tuple[str, list[int], float]], most: int
) -> None:
    approximate, index = make(ttl=5.0, worker_blocks=most)
    parents: dict[int, int | None] = {}
    now = 0.0
    for worker, tokens, wait in picks:
        now += wait
        hashes = sequence_hashes(tokens, 1)
        parents.update(zip(hashes, [None, *hashes[:-1]], strict=True))
        approximate.learn(worker, hashes, now)
        approximate.expire(now, limit=3)
        for name in "ab":
            held = index.held(name)
            assert len(held) == approximate.count(name) <= most
            assert all(parents[key] is None or parents[key] in held for key in held)
