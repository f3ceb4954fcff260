"""Percentiles, clocks and budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.bench.budget import Budget, Result
from picker.bench.timing import calibration_ns, clock_us, cpu_us, percentile, wall_us


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-3
    assert sum(value < found for value in values) < share * len(values) + 1e-3


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no value"):
        percentile([], 0.5)


def test_cpu_time_leaves_out_what_the_thread_sleeps() -> None:
    import time

    assert cpu_us(lambda: time.sleep(0.05)) < 25_000
    assert wall_us(lambda: time.sleep(0.05)) >= 50_000
    assert 0 < clock_us() < 1_000
    assert calibration_ns() > 0


def test_a_budget_at_its_limit_is_kept_and_past_it_is_not() -> None:
    assert Budget("pause", 5, 5, "ms").passed
    assert not Budget("pause", 5.1, 5, "ms").passed
    assert Budget("speed", 300, 300, at_least=True).passed
    assert not Budget("speed", 299, 300, at_least=True).passed


def test_a_result_passes_only_if_every_budget_does() -> None:
    kept, broken = Budget("a", 1, 2, "ms"), Budget("b", 1, 2, at_least=True)
    assert Result("x", {"n": 1}, {}, [kept]).passed
    shown = Result("x", {"n": 1}, {"seed": 1}, [kept, broken]).as_json()
    assert shown["passed"] is False
    assert shown["n"] == 1
    assert [each["passed"] for each in shown["budgets"]] == [True, False]
    assert [each["budget"] for each in shown["budgets"]] == ["<= 2 ms", ">= 2"]
