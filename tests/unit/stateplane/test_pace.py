"""How fast the pool books, and how late it is seen."""

from __future__ import annotations

import pytest

from stateplane.pace import OVER_SECONDS, Pace


def test_a_steady_pool_s_rate_is_found() -> None:
    pace = Pace()
    for n in range(4000):
        pace.booked(100.0 + n * 0.01)
    assert pace.rate(139.99) == pytest.approx(100.0, rel=0.02)


def test_the_rate_falls_when_nothing_is_booked_and_is_none_at_the_start() -> None:
    pace = Pace()
    assert pace.rate(5.0) == 0.0
    for n in range(1000):
        pace.booked(n * 0.01)
    assert pace.rate(10.0 + 3 * OVER_SECONDS) == pytest.approx(pace.rate(10.0) / 20, rel=0.01)


def test_the_rate_as_of_a_moment_in_the_past_does_not_rise() -> None:
    pace = Pace()
    pace.booked(10.0)
    assert pace.rate(5.0) == pace.rate(10.0) == 1 / OVER_SECONDS


def test_the_first_own_booking_tells_the_staleness_and_later_ones_smooth_it() -> None:
    pace = Pace()
    pace.returned(0.02)
    assert pace.staleness == 0.02
    for _ in range(200):
        pace.returned(0.001)
    assert pace.staleness == pytest.approx(0.001, abs=0.0001)
    pace.returned(-1.0)
    assert pace.staleness >= 0.0
