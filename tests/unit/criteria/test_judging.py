"""Whatever a criterion says or does, what comes out is bounded, finite and plain, and the others are heard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from picker.core.criteria import MOST_BLOCKS, MOST_REASON, Traits, WorkerTraits
from picker.criteria.judging import Criteria, Verdict
from tests.unit.criteria.making import Judge, Made, raising

WORKERS = [WorkerTraits(f"10.0.0.{n}:80") for n in range(3)]
FIRST, SECOND, THIRD = (one.name for one in WORKERS)
anything = (
    st.none() | st.booleans() | st.text() | st.binary() | st.floats() | st.integers() | st.just(object())
)


def weighed(criteria: Criteria) -> Verdict:
    return criteria.weigh(criteria.prepare(Traits()), WORKERS)


@given(st.lists(anything, min_size=3, max_size=3), st.lists(anything, min_size=3, max_size=3))
def test_whatever_comes_back_what_goes_on_is_finite_bounded_and_plain(
    bars: list[Any], blocks: list[Any]
) -> None:
    said = {worker.name: pair for worker, pair in zip(WORKERS, zip(bars, blocks, strict=True), strict=True)}
    odd = Made(Judge(lambda one: said[one.name][0], lambda one: said[one.name][1]))
    criteria = Criteria([("odd", odd), ("steady", Made(Judge(blocks=lambda _: 2)))])
    verdict = weighed(criteria)
    assert all(why.startswith("odd: ") and why.isprintable() for why in verdict.barred.values())
    assert all(len(why) <= MOST_REASON + 5 for why in verdict.barred.values())
    for number in verdict.added.get("odd", {}).values():
        assert isinstance(number, float)
        assert -MOST_BLOCKS <= number <= MOST_BLOCKS
        assert number
    left = {worker.name for worker in WORKERS} - verdict.barred.keys()
    assert verdict.added.get("steady", {}) == dict.fromkeys(left, 2.0)
    counts = criteria.counts
    if counts.failed["odd"]:
        assert not verdict.barred
        assert "odd" not in verdict.added


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_price_that_is_no_finite_number_counts_as_none_and_is_counted(value: float) -> None:
    criteria = Criteria([("c", Made(Judge(blocks=lambda one: value if one.name == FIRST else 1.5)))])
    assert weighed(criteria).added == {"c": {SECOND: 1.5, THIRD: 1.5}}
    assert (criteria.counts.refused["c"], criteria.counts.clamped["c"]) == (1, 0)


@pytest.mark.parametrize("value", [1e9, -1e9, 10**400, -(10**400)])
def test_a_price_beyond_the_bound_is_clamped_and_counted(value: float) -> None:
    criteria = Criteria([("c", Made(Judge(blocks=lambda _: value)))])
    assert set(weighed(criteria).added["c"].values()) == {math.copysign(MOST_BLOCKS, 1 if value > 0 else -1)}
    assert criteria.counts.clamped["c"] == 3


def late(error: Exception) -> Callable[[WorkerTraits], Any]:
    """Says something of the first workers and raises at the last."""

    def ask(worker: WorkerTraits) -> Any:
        if worker.name == THIRD:
            raise error
        return "no"

    return ask


@pytest.mark.parametrize(
    "broken",
    [
        Made(RuntimeError("in prepare")),
        Made(object()),
        Made(Judge(bars=raising(RuntimeError("in bars")))),
        Made(Judge(blocks=raising(RecursionError()))),
        Made(Judge(bars=late(KeyError("later")))),
        Made(Judge(bars=lambda _: None)),
        Made(Judge(blocks=lambda _: "1")),
        Made(Judge(blocks=lambda _: True)),
    ],
)
def test_a_criterion_that_fails_has_no_say_at_all_and_the_others_have_theirs(broken: Made) -> None:
    steady = Made(Judge(bars=lambda one: "no" if one.name == FIRST else ""))
    criteria = Criteria([("broken", broken), ("steady", steady)])
    assert weighed(criteria) == Verdict({FIRST: "steady: no"}, {})
    assert criteria.counts.failed == {"broken": 1, "steady": 0}


def test_failures_are_logged_at_most_once_a_second_and_never_with_a_prompt() -> None:
    now = [0.0]
    criteria = Criteria([("c", Made(ValueError("why")))], clock=lambda: now[0])
    with capture_logs() as logs:
        for _ in range(100):
            now[0] += 0.025
            criteria.prepare(Traits(headers={"authorization": "secret"}))
    assert 2 <= len(logs) <= 3
    assert logs[0]["error"] == "ValueError: why"
    assert "secret" not in str(logs)
    assert criteria.counts.failed["c"] == 100


def test_an_error_whose_own_text_fails_harms_nobody() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    criteria = Criteria([("c", Made(MuteError()))])
    assert criteria.prepare(Traits()) == ()
    assert criteria.counts.failed["c"] == 1


def test_who_has_nothing_to_say_is_not_asked_about_workers() -> None:
    quiet = Made(None)
    criteria = Criteria([("quiet", quiet)])
    assert criteria.prepare(Traits(model="m")) == ()
    assert quiet.asked == [Traits(model="m")]


def test_criteria_are_asked_in_order_and_the_first_reason_is_told() -> None:
    shown: list[str] = []

    def second(worker: WorkerTraits) -> str:
        shown.append(worker.name)
        return "second"

    first = Made(Judge(bars=lambda one: "first" if one.name == FIRST else ""))
    criteria = Criteria([("a", first), ("b", Made(Judge(bars=second)))])
    assert weighed(criteria).barred == {FIRST: "a: first", SECOND: "b: second", THIRD: "b: second"}
    assert shown == [SECOND, THIRD]


def test_time_spent_is_counted_by_criterion() -> None:
    now = [0.0]

    def slow(_: WorkerTraits) -> float:
        now[0] += 0.5
        return 1.0

    criteria = Criteria([("slow", Made(Judge(blocks=slow))), ("quick", Made(None))], clock=lambda: now[0])
    weighed(criteria)
    assert criteria.counts.seconds == {"slow": 1.5, "quick": 0.0}
