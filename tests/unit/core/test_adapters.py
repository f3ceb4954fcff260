"""What a worker is taken to hold, and whom an adapter's request goes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.adapters import Held, Holding, narrowed

names = st.none() | st.frozensets(st.sampled_from(["a", "b", "c"]))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (Held(), Holding.LOADS),
        (Held(running=frozenset({"a"})), Holding.AT_HAND),
        (Held(running=frozenset({"b"})), Holding.LOADS),
        (Held(listed=frozenset({"a"})), Holding.AT_HAND),
        (Held(listed=frozenset({"b"})), Holding.LACKS),
        (Held(listed=frozenset()), Holding.LACKS),
        (Held(labelled=frozenset({"a"}), listed=frozenset()), Holding.AT_HAND),
        (Held(labelled=frozenset({"b"})), Holding.LACKS),
        (Held(listed=frozenset({"a"}), running=frozenset({"b"}), most=1), Holding.LOADS),
        (Held(listed=frozenset({"a"}), running=frozenset({"b"}), most=2), Holding.AT_HAND),
        (Held(listed=frozenset(), running=frozenset({"a"})), Holding.AT_HAND),
    ],
)
def test_how_a_worker_stands_to_an_adapter(held: Held, expected: Holding) -> None:
    assert held.holding("a") is expected


@given(st.builds(Held, names, names, names, st.none() | st.integers(1, 4)))
def test_what_a_worker_is_known_to_hold_it_never_lacks(held: Held) -> None:
    for name in "abc":
        assert (held.holding(name) is Holding.LACKS) <= (name not in held.names)


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(Holding)), st.floats(0, 1e6))
def test_somebody_is_always_left_and_only_who_lacks_it_is_left_out(
    holdings: dict[str, Holding], load: float
) -> None:
    lacking, loading = narrowed(holdings, load_blocks=load)
    assert lacking < holdings.keys() or not holdings
    assert all(holdings[worker] is Holding.LACKS for worker in lacking)
    assert all(holdings[worker] is Holding.LOADS and blocks == load for worker, blocks in loading.items())
    left = holdings.keys() - lacking
    assert {holdings[worker] for worker in left} != {Holding.LACKS} or not lacking


def test_where_all_lack_it_all_are_asked() -> None:
    assert narrowed({"a": Holding.LACKS, "b": Holding.LACKS}, load_blocks=1) == (frozenset(), {})
