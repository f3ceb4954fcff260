"""Load: what was booked around a scrape, and what a report shows beyond it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import NO_LOAD, BookedHistory, Load, PrefillRate, Report, UnbookedLoads, unbooked

W = "10.0.0.1:8000"


def report(begun: float, *, running: int = 0, usage: float | None = None) -> Report:
    return Report(begun=begun, ended=begun + 0.01, running=running, waiting=0, kv_usage=usage)


notes = st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 50), st.integers(0, 500)), max_size=60)


def most(points: list[tuple[float, int, int]], since: float, until: float) -> tuple[int, int]:
    """The maxima of a step function in a window, written out."""
    values = [(0, 0), *((r, b) for at, r, b in points if at <= since)][-1:]
    values += [(r, b) for at, r, b in points if since < at <= until]
    return max(r for r, _ in values), max(b for _, b in values)


@given(notes, st.floats(0, 20), st.floats(0, 2))
def test_the_most_booked_is_exact_up_to_the_resolution(
    steps: list[tuple[float, int, int]], since: float, length: float
) -> None:
    history, now, points = BookedHistory(horizon=100, resolution=0.02), 1.0, []
    for pause, requests, blocks in steps:
        now += pause
        history.note(W, now, requests, blocks)
        points.append((now, requests, blocks))
    found = history.most(W, since, since + length)
    least = most(points, since, since + length)
    wide = most(points, since - 0.021, since + length + 0.021)
    assert all(a <= b <= c for a, b, c in zip(least, found, wide, strict=True))


def test_a_history_is_bounded_however_often_it_is_noted() -> None:
    history = BookedHistory(horizon=1.0, resolution=0.02)
    for n in range(20_000):
        history.note(W, n * 0.001, n % 7, n)
    assert len(history._points[W]) <= 52
    assert history.most(W, 19.5, 19.6)[0] == 6


def test_what_was_booked_before_the_window_and_stayed_counts() -> None:
    history = BookedHistory()
    history.note(W, 1.0, 5, 50)
    assert history.most(W, 4.0, 4.1) == (5, 50)
    history.note(W, 4.05, 1, 10)
    assert history.most(W, 4.0, 4.1) == (5, 50)
    assert history.most(W, 6.0, 6.1) == (1, 10)


def test_a_worker_never_noted_or_dropped_has_nothing_booked() -> None:
    history = BookedHistory()
    assert history.most(W, 0, 10) == (0, 0)
    history.note(W, 1.0, 5, 50)
    history.drop(W)
    assert history.most(W, 0, 10) == (0, 0)


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 300),
    st.floats(0, 1000),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 1000),
)
def test_unbooked_load_is_what_exceeds_the_most_booked_and_never_negative(
    running: int, waiting: int, requests: int, blocks: float, usage: float | None, total: int | None
) -> None:
    said = Report(0, 0, running, waiting, kv_usage=usage, total_blocks=total)
    load = unbooked(said, requests, blocks)
    assert load.prefill_tokens == 0
    assert load.requests == max(0, running + waiting - requests)
    used = (usage or 0) * (total or 0)
    assert load.blocks == max(0, used - blocks)


def test_engine_blocks_are_counted_in_the_pools_blocks() -> None:
    said = replace(report(0, usage=0.5), total_blocks=100, block_size=64)
    assert said.used_blocks() == 50
    assert said.used_blocks(16) == 200
    hybrid = replace(said, block_size=832, total_tokens=16_000)
    assert hybrid.used_blocks(16) == 500
    assert replace(report(0), total_blocks=100).used_blocks(16) is None
    assert report(0, usage=0.5).used_blocks(16) is None


def test_a_sleeping_worker_is_not_routable() -> None:
    assert report(0).routable
    assert not Report(0, 0, 0, 0, asleep=True).routable


def test_unbooked_load_is_fixed_until_the_next_report() -> None:
    history = BookedHistory()
    loads = UnbookedLoads(history)
    first = report(1.0, running=5)
    history.note(W, 0.5, 2, 0)
    assert loads.of(W, first, 1.2) == Load(0, 0, 3)
    history.note(W, 1.3, 40, 0)
    assert loads.of(W, first, 1.4) == Load(0, 0, 3)
    history.note(W, 1.5, 0, 0)
    assert loads.of(W, first, 3.0) == Load(0, 0, 3)
    assert loads.of(W, report(2.0, running=1), 3.0) == Load(0, 0, 1)


def test_a_report_is_judged_only_when_bookings_on_their_way_have_arrived() -> None:
    history = BookedHistory()
    loads = UnbookedLoads(history)
    assert loads.of(W, report(1.0, running=1), 1.1) == Load(0, 0, 1)
    second = report(2.0, running=4)
    assert loads.of(W, second, 2.02) == Load(0, 0, 1), "the former value stands within the slack"
    history.note(W, 2.04, 4, 0)
    assert loads.of(W, second, 2.08) == NO_LOAD


def test_a_first_report_is_judged_provisionally_and_then_for_good() -> None:
    history = BookedHistory()
    loads = UnbookedLoads(history)
    said = report(1.0, running=3)
    assert loads.of(W, said, 1.01) == Load(0, 0, 3)
    history.note(W, 1.05, 3, 0)
    assert loads.of(W, said, 1.2) == NO_LOAD


def test_without_a_fresh_report_there_is_no_unbooked_load() -> None:
    loads = UnbookedLoads(BookedHistory())
    assert loads.of(W, None, 5.0) == NO_LOAD
    assert loads.of(W, report(1.0, running=3), 5.0).requests == 3
    loads.drop(W)
    assert loads.of(W, None, 5.0) == NO_LOAD


def test_a_prefill_rate_is_unknown_until_measured_then_follows() -> None:
    rate = PrefillRate(weight=0.5)
    assert rate.seconds(1000) is None
    rate.observe(8000, 1.0)
    assert rate.seconds(4000) == pytest.approx(0.5)
    rate.observe(4000, 1.0)
    assert rate.rate == pytest.approx(6000)
    assert rate.seconds(-5) == 0


@pytest.mark.parametrize(("tokens", "seconds"), [(10, 1.0), (1000, 0.0), (1000, -1.0)])
def test_what_measures_no_rate_changes_none(tokens: int, seconds: float) -> None:
    rate = PrefillRate()
    rate.observe(tokens, seconds)
    assert rate.rate is None


@given(st.lists(st.tuples(st.floats(64, 1e6), st.floats(1e-3, 100)), min_size=1))
def test_a_rate_stays_between_the_slowest_and_the_fastest_seen(seen: list[tuple[float, float]]) -> None:
    rate = PrefillRate()
    for tokens, seconds in seen:
        rate.observe(tokens, seconds)
    values = [tokens / seconds for tokens, seconds in seen]
    assert rate.rate is not None
    assert math.nextafter(min(values), 0) * 0.999 <= rate.rate <= max(values) * 1.001
