"""Evidence against draining bookings: proofs at once, deficits only beyond doubt, and never too much."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.evidence import SCRAPES, SUSPECT_SECONDS, Draining, Judge

W = "w:1"
DRAINED = [Draining("d", 1.0)]


def quiet(judge: Judge, *deficits: int) -> Judge:
    """The worker's usual deficits, on 10 active bookings."""
    for number, deficit in enumerate(deficits or (0,) * 20):
        judge.seen(W, begun=number - 60, requests=10 - deficit, active=10)
    return judge


def test_fewer_requests_than_draining_bookings_prove_the_excess_at_once_oldest_first() -> None:
    judge = Judge()
    draining = [Draining("young", 5.0), Draining("old", 1.0), Draining("middle", 3.0)]
    assert judge.reported(W, begun=10, requests=1, active=0, draining=draining) == ("old", "middle")


def test_a_draining_that_began_after_the_scrape_is_not_judged() -> None:
    assert Judge().reported(W, begun=10, requests=0, active=0, draining=[Draining("late", 10.0)]) == ()


def test_a_deficit_counts_only_when_it_lasts() -> None:
    judge = quiet(Judge())
    answers = [
        judge.reported(W, begun=10 + n, requests=4, active=4, draining=DRAINED) for n in range(SCRAPES)
    ]
    assert answers == [*[()] * (SCRAPES - 1), ("d",)]


def test_a_deficit_is_found_where_it_is_not_known_how_reports_usually_vary() -> None:
    judge = Judge()
    answers = [judge.reported(W, begun=10 + n, requests=4, active=4, draining=DRAINED) for n in range(10)]
    assert ("d",) in answers


def test_a_deficit_that_comes_and_goes_ends_nothing() -> None:
    judge = quiet(Judge(), *[0, 0, 1] * 6)
    for n in range(60):
        requests = 4 if n % 3 == 0 else 5
        assert judge.reported(W, begun=10 + n, requests=requests, active=4, draining=DRAINED) == ()


def test_a_workers_usual_deficit_is_not_evidence() -> None:
    judge = quiet(Judge(), *[2] * 6)  # two of the booked ones are always on their way
    for n in range(60):
        assert judge.reported(W, begun=10 + n, requests=5, active=6, draining=DRAINED) == ()


def test_a_report_that_cannot_be_compared_with_active_bookings_proves_only_the_excess() -> None:
    judge = quiet(Judge())
    for n in range(60):
        assert judge.reported(W, begun=10 + n, requests=1, active=None, draining=DRAINED) == ()
    assert judge.reported(W, begun=90, requests=0, active=None, draining=DRAINED) == ("d",)


def test_what_was_ended_is_not_held_against_those_that_still_drain() -> None:
    judge, draining = quiet(Judge()), [Draining(f"d{n}", float(n)) for n in range(4)]
    for n in range(60):
        requests = 8 + 2  # two of the four still run
        ended = judge.reported(W, begun=10 + n, requests=requests, active=8, draining=draining)
        draining = [one for one in draining if one.id not in ended]
    assert [one.id for one in draining] == ["d2", "d3"]


@pytest.mark.parametrize(("rate", "dead", "most"), [(3, 1, 16), (3, 5, 8), (20, 3, 40), (60, 10, 60)])
def test_under_a_stream_of_requests_the_dead_are_found_and_the_living_are_not(
    rate: int, dead: int, most: int
) -> None:
    """Ends come 80 ms late, so that at each report some bookings stand for nothing: ``rate`` requests a second."""
    rng = random.Random(rate)

    def late() -> int:
        return sum(rng.random() < 0.08 for _ in range(rate))

    found = []
    for _ in range(40):
        judge = Judge()
        for number in range(20):
            judge.seen(W, begun=number - 60, requests=20 - late(), active=20)
        living = 3
        draining = [Draining(f"d{n}", float(n)) for n in range(dead + living)]
        wrong = 0
        for n in range(most):
            requests = 20 - late() + living
            ended = judge.reported(W, begun=100 + n, requests=requests, active=20, draining=draining)
            draining = [one for one in draining if one.id not in ended]
            wrong = max(wrong, living - len(draining))
        found.append(dead + living - len(draining))
        assert wrong <= 1
    assert sorted(found)[len(found) // 4] >= dead - 1
    assert sum(one > dead for one in found) <= len(found) // 5


@given(lost=st.integers(1, 8), beside=st.integers(0, 8), every=st.sampled_from([0.25, 0.5, 1.0]))
def test_what_went_missing_before_it_drained_is_not_taken_for_usual(
    lost: int, beside: int, every: float
) -> None:
    """A gateway dies: what it sent is gone at once, and its bookings drain some seconds later."""
    judge, at = Judge(), 0.0
    while at < 20.0:
        judge.seen(W, begun=at, requests=beside + lost, active=beside + lost)
        at += every
    while at < 20.0 + SUSPECT_SECONDS - every:
        judge.seen(W, begun=at, requests=beside, active=beside + lost)
        at += every
    draining = [Draining(f"d{n}", at) for n in range(lost)]
    for n in range(1, 2 * SCRAPES):
        ended = judge.reported(W, begun=at + n * every, requests=beside, active=beside, draining=draining)
        draining = [one for one in draining if one.id not in ended]
    assert draining == []


@given(worked_on=st.integers(0, 100), others=st.integers(1, 20), over=st.integers(1, 6))
def test_what_worked_on_for_long_while_it_drained_is_found_within_some_reports_of_its_end(
    worked_on: int, others: int, over: int
) -> None:
    judge, begun = quiet(Judge()), 100.0
    draining = [Draining(f"d{n}", begun) for n in range(over)]

    def report(requests: int) -> None:
        nonlocal begun, draining
        begun += 0.5
        ended = judge.reported(W, begun=begun, requests=requests, active=others, draining=draining)
        draining = [one for one in draining if one.id not in ended]

    for _ in range(worked_on):
        report(others + over)
    assert len(draining) == over
    for _ in range(10):
        report(others)
    assert draining == []


@given(st.integers(0, 8), st.integers(0, 8), st.lists(st.booleans(), min_size=0, max_size=8))
def test_what_still_runs_is_never_all_ended_by_a_true_report(
    active: int, on_the_way: int, runs: list[bool]
) -> None:
    """However many of the draining ones still run, a worker that reports truly keeps at least so many."""
    judge = Judge()
    draining = [Draining(f"d{n}", float(n)) for n in range(len(runs))]
    truth = active + sum(runs)
    for n in range(12):
        ended = judge.reported(
            W, begun=100 + n, requests=truth + on_the_way, active=active, draining=draining
        )
        draining = [one for one in draining if one.id not in ended]
        assert len(draining) >= sum(runs)
