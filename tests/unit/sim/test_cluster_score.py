"""The demo's verdict: what makes it fail, and the numbers it reads."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.admin.metrics import Metrics
from picker.sim.agreement import Agreement
from picker.sim.score import Check, Latency, Numbers, Phase, Score, quantile, read_numbers

AGREED = Agreement(agreed=True, seconds=0.1, bookings=24)
PLAIN = Phase(200, 0, 0, 100_000, 30_000, 300.0, 900.0)
GOOD = Score(
    round_robin=PLAIN,
    picker=replace(PLAIN, reused_tokens=60_000),
    killed="picker-1",
    killed_in_flight=1,
    numbers={"picker-0": Numbers(100, 40, Latency({0.001: 50, 0.01: 99, math.inf: 100}))},
    checks=(Check(3, AGREED, AGREED),) * 10,
    wanted_checks=10,
)


def test_a_pick_in_progress_on_the_killed_replica_is_no_fault() -> None:
    assert GOOD.faults() == []


@pytest.mark.parametrize(
    ("score", "fault"),
    [
        (replace(GOOD, picker=replace(GOOD.picker, failures=1)), "1 of 200 requests failed (picker)"),
        (replace(GOOD, picker=replace(GOOD.picker, truncated=2)), "2 responses were cut (picker)"),
        (replace(GOOD, picker=replace(GOOD.picker, reused_tokens=38_000)), "only 1.27 x"),
        (
            replace(
                GOOD, picker=replace(PLAIN, reused_tokens=0), round_robin=replace(PLAIN, reused_tokens=0)
            ),
            "nan x",
        ),
        (replace(GOOD, checks=GOOD.checks[:9]), "only 9 of 10 agreement checks"),
        (
            replace(
                GOOD,
                checks=(Check(3, replace(AGREED, agreed=False, differences=("a differs",)), AGREED),) * 10,
            ),
            "agreement check 1: a differs",
        ),
        (
            replace(
                GOOD, checks=(Check(3, AGREED, replace(AGREED, agreed=False, differences=("ghost",))),) * 10
            ),
            "agreement check 10: ghost",
        ),
        (replace(GOOD, checks=(Check(3, replace(AGREED, bookings=19), AGREED),) * 10), "only 19 bookings"),
    ],
)
def test_each_promise_that_is_broken_is_a_fault_with_its_number(score: Score, fault: str) -> None:
    assert any(fault in line for line in score.faults())


def test_the_json_has_the_shape_that_is_compared_over_time() -> None:
    found = json.loads(json.dumps(GOOD.as_json(), allow_nan=False))
    assert found == {
        "requests": 200,
        "failures": 0,
        "killed_in_flight": 1,
        "truncated": 0,
        "reused_prefix_tokens": {"round_robin": 30_000, "picker": 60_000},
        "ttft_ms": {"round_robin": {"p50": 300.0, "p90": 900.0}, "picker": {"p50": 300.0, "p90": 900.0}},
        "decision_ms": {"p50": 1.0, "p99": 10.0},
        "agreement_checks": 10,
        "disagreements": 0,
    }


def test_a_replicas_page_is_read_as_it_is_written() -> None:
    metrics = Metrics()
    try:
        for result, seconds in (("hit", 0.0004), ("hit", 0.003), ("miss", 0.003), ("error", 0.003)):
            metrics.picked(result, seconds)  # type: ignore[arg-type]
        numbers = read_numbers(metrics.page().decode())
    finally:
        metrics.close()
    assert (numbers.picks, numbers.hits) == (3, 2)
    assert 2.5 <= numbers.latency.quantile_ms(0.9) <= 5
    assert math.isnan(read_numbers("").latency.quantile_ms(0.5))


@given(st.lists(st.floats(0.0001, 2.4), min_size=1, max_size=50), st.floats(0.05, 0.99))
def test_a_histograms_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    bounds = [0.0005, 0.002, 0.01, 0.1, 1.0, 2.5, math.inf]
    latency = Latency({bound: sum(1 for value in values if value <= bound) for bound in bounds})
    true = quantile(values, share)
    upper = next(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < true), default=0.0)
    assert lower * 1000 - 1e-6 <= latency.quantile_ms(share) <= upper * 1000 + 1e-6
