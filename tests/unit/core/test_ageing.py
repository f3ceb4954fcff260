"""Foreign load that is old moves toward its mean."""

from __future__ import annotations

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import Load, aged, ageing

numbers = st.integers(0, 10**6)
pools = st.dictionaries(
    st.text(max_size=3), st.builds(Load, numbers, numbers, st.integers(0, 500)), max_size=12
)
factors = st.floats(0, 1)


@given(pools, factors)
def test_the_sum_stays(foreign: dict[str, Load], factor: float) -> None:
    moved = aged(foreign, factor)
    assert moved.keys() == foreign.keys()
    for part in range(3):
        before, after = (fsum(load[part] for load in loads.values()) for loads in (foreign, moved))
        assert after == pytest.approx(before, rel=1e-9, abs=1e-6)


@given(pools, factors, factors)
def test_the_further_it_is_moved_the_closer_all_are_to_the_mean(
    foreign: dict[str, Load], one: float, other: float
) -> None:
    less, more = (aged(foreign, factor) for factor in sorted((one, other)))
    for part in range(3):
        mean = fsum(load[part] for load in foreign.values()) / max(len(foreign), 1)
        for name in foreign:
            assert abs(more[name][part] - mean) <= abs(less[name][part] - mean) + 1e-6
            off = foreign[name][part] - mean
            assert (more[name][part] - mean) * off >= -1e-6 * (1 + abs(off))


@given(pools)
def test_a_level_view_is_left_as_it_is_and_one_not_to_be_relied_on_is_flat(foreign: dict[str, Load]) -> None:
    assert aged(foreign, 0.0) is foreign
    for part in range(3):
        values = [load[part] for load in aged(foreign, 1.0).values()]
        assert not values or max(values) - min(values) <= 1e-6


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_factor_rises_with_what_is_unseen(one: float, other: float) -> None:
    assert 0.0 <= ageing(one) <= 1.0
    if one < other:
        assert ageing(one) <= ageing(other)
    assert ageing(0.0) == 0.0
    assert ageing(1.0) == 0.5
