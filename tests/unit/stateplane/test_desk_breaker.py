"""Healthy, slow, away: told from calls alone."""

from __future__ import annotations

from stateplane.breaker import Breaker, Health


def test_a_plane_is_away_until_it_first_answers_and_then_since_when_is_known() -> None:
    breaker = Breaker(now=5.0)
    assert breaker.state is Health.AWAY
    assert breaker.answered(7.0, 0.001)
    assert (breaker.state, breaker.since) == (Health.HEALTHY, 7.0)


def test_one_failed_call_is_slow_and_two_in_a_row_are_away() -> None:
    breaker = Breaker(now=0.0, state=Health.HEALTHY)
    assert breaker.failed(1.0, "no answer")
    assert breaker.state is Health.SLOW
    assert breaker.failed(2.0, "no answer")
    assert (breaker.state, breaker.since, breaker.reason) == (Health.AWAY, 2.0, "no answer")
    assert not breaker.failed(3.0, "refused")
    assert breaker.since == 2.0


def test_an_answer_between_two_failures_keeps_it_from_being_away() -> None:
    breaker = Breaker(now=0.0, state=Health.HEALTHY)
    for now in range(10):
        breaker.failed(now, "no answer")
        breaker.answered(now, 0.001)
    assert breaker.state is Health.HEALTHY
    assert breaker.reason == ""


def test_late_answers_are_slow_and_it_takes_better_ones_than_that_to_be_healthy_again() -> None:
    breaker = Breaker(now=0.0, slow=0.1, state=Health.HEALTHY)
    for now in range(50):
        breaker.answered(now, 0.2)
    states = [breaker.state]
    for now in range(50, 60):
        breaker.answered(now, 0.09)
    states.append(breaker.state)
    for now in range(60, 120):
        breaker.answered(now, 0.01)
    assert [*states, breaker.state] == [Health.SLOW, Health.SLOW, Health.HEALTHY]
