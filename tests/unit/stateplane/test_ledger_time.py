"""Serving time runs only while heartbeats arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import Rules
from stateplane.servingtime import ServingTime

RULES = Rules(lease=3.0, heartbeat=1.0)


def test_it_runs_with_the_server_while_heartbeats_arrive() -> None:
    time = ServingTime.begin(RULES, 5000)
    for now in range(6000, 20_000, 1000):
        assert not time.beat(now)
        assert time.last == now


def test_a_pause_counts_for_one_heartbeat() -> None:
    time = ServingTime.begin(RULES, 0)
    assert time.beat(60_000)
    assert time.last == 1000
    assert not time.beat(61_000)
    assert time.last == 2000


def test_a_step_back_does_not_count_at_all() -> None:
    time = ServingTime.begin(RULES, 500_000)
    assert time.beat(200_000)
    assert time.last == 500_000
    assert not time.beat(201_000)
    assert time.last == 501_000


def test_leases_are_held_for_one_lease_after_a_pause_but_not_for_ever() -> None:
    time = ServingTime.begin(RULES, 0)
    now = 0
    held = []
    for _ in range(9):
        now += 10_000
        time.beat(now)
        held.append(time.holding)
    assert held[0]
    assert not all(held)


@given(st.lists(st.integers(-400_000, 400_000), max_size=30))
def test_it_never_runs_back_nor_faster_than_a_late_heartbeat(steps: list[int]) -> None:
    time = ServingTime.begin(RULES, 1_000_000)
    now = 1_000_000
    for step in steps:
        now += step
        before = time.last
        assert before <= time.at(now) <= before + time.longest
        time.beat(now)
        assert before <= time.last <= before + time.longest
        assert time.at(now) == time.last
