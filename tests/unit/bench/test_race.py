"""The race's judgement and its replicas in virtual time."""

from __future__ import annotations

import pytest

from picker.bench.race.log import Pick, Verdict, in_plane_order, judge
from picker.bench.race.rows import pairs, row
from picker.bench.race.threshold import crossing, jobs, run_virtual, sweep
from picker.bench.race.virtual import simulate
from picker.bench.race.world import BLOCK, Setting, requests, warm_up
from picker.core.race import atomic_pays, atomic_pays_above, unseen_requests


def verdict(max_over_mean: float, degraded: float = 0.0) -> Verdict:
    return Verdict(100, 5.0, max_over_mean, 1000.0, degraded)


def run(
    mode: str, replicas: int, delay: float, seed: int = 1, rate: float = 500.0, workers: int = 8
) -> Verdict:
    wanted = requests(rate, workers, 1_500, seed)
    picks = simulate(Setting(mode, replicas, rate, workers), wanted, [delay], seed)
    return judge(picks, workers, warm_up(rate, workers))


def test_every_mode_and_number_of_replicas_gets_the_same_requests_of_a_seed() -> None:
    assert requests(200, 8, 50, 3) == requests(200, 8, 50, 3)
    assert requests(200, 8, 50, 3) != requests(200, 8, 50, 4)
    shares = [one.replica(8) for one in requests(200, 8, 4_000, 3)]
    assert set(shares) == set(range(8))
    assert all(one.tokens % BLOCK == 0 and one.seconds > 0 for one in requests(200, 8, 50, 3))


def test_a_pick_is_wrong_only_where_a_worker_with_less_was_passed_over() -> None:
    picks = [
        Pick(0.0, 10.0, 0, 100),
        Pick(1.0, 2.5, 1, 50),
        Pick(2.0, 10.0, 1, 50),  # 1 carries 50, 0 carries 100: right
        Pick(3.0, 10.0, 0, 10),  # by now 1 carries 50 again: wrong
    ]
    found = judge(picks, 2, since=0.0)
    assert found.picks == 4
    assert found.wrong_pick_pct == 25.0
    assert found.max_over_mean == pytest.approx((100 + 100 + 100 + 110) / ((100 + 150 + 200 + 160) / 2))


def test_what_happens_in_the_warm_up_counts_as_load_but_not_as_a_pick() -> None:
    picks = [Pick(0.0, 10.0, 0, 100), Pick(1.0, 10.0, 0, 100, degraded=True)]
    found = judge(picks, 2, since=0.5)
    assert (found.picks, found.wrong_pick_pct, found.degraded_pct) == (1, 100.0, 100.0)
    with pytest.raises(ValueError, match="too short"):
        judge(picks, 2, since=5.0)


def test_the_planes_order_decides_what_an_atomic_pick_passed_over() -> None:
    changes = [(1, 0, 100), (2, 1, 50), (3, 1, 10), (4, 1, 10), (1, 0, 0), (5, 1, 10), (6, 0, 10)]
    assert in_plane_order(changes, 2) == {1: False, 2: False, 3: False, 4: False, 5: True, 6: False}


def test_one_replica_never_picks_wrong_in_any_mode() -> None:
    for mode in ("isolated", "eventual", "atomic"):
        assert run(mode, 1, delay=0.05).wrong_pick_pct == 0.0


def test_atomic_is_as_even_as_one_replica_however_late_the_views_are() -> None:
    ratios = [
        run("atomic", 8, 0.5, s).max_over_mean / run("isolated", 1, 0, s).max_over_mean for s in range(10)
    ]
    assert sorted(ratios)[5] <= 1.05
    assert run("atomic", 8, delay=0.5).wrong_pick_pct == 0.0


def test_a_later_view_picks_worse_and_one_without_delay_picks_as_one_replica() -> None:
    wrong = [run("eventual", 8, delay).wrong_pick_pct for delay in (0.0, 0.0005, 0.005, 0.05)]
    assert wrong[0] == 0.0
    assert wrong == sorted(wrong)
    assert wrong[-1] > 50


def test_isolated_replicas_never_hear_of_each_other() -> None:
    assert run("isolated", 8, delay=0.0) == run("isolated", 8, delay=9.0)
    assert run("isolated", 8, delay=0.0).wrong_pick_pct > 50


def test_a_run_with_too_many_degraded_picks_is_void() -> None:
    setting = Setting("atomic", 8, 200.0, 8)
    found = row(setting, "real", [verdict(1.2), verdict(9.0, degraded=1.1), verdict(1.4, degraded=1.0)])
    assert (found["max_over_mean"], found["valid"], found["seeds"]) == (1.3, 2, 3)
    assert row(setting, "real", [verdict(1.2, degraded=5.0)])["max_over_mean"] is None


def test_only_seeds_of_which_both_runs_count_make_a_pair() -> None:
    these = {1: verdict(1.2), 2: verdict(1.2, degraded=2), 3: verdict(1.5), 5: verdict(1.0)}
    those = {1: verdict(1.0), 2: verdict(1.0), 3: verdict(1.0, degraded=2), 4: verdict(1.0)}
    assert pairs(these, those).ratios == [pytest.approx(1.2)]
    assert pairs({}, those).middle == float("inf")


def test_the_crossing_is_where_eventual_first_carries_a_twentieth_more() -> None:
    rows = [{"unseen": x, "eventual_over_atomic": y} for x, y in ((0.1, 1.01), (0.2, 1.03), (0.4, 1.07))]
    assert crossing(rows) == pytest.approx(0.3)
    assert crossing(rows[:2]) is None


def test_a_sweep_puts_each_number_of_unseen_requests_in_its_row() -> None:
    unseen = (0.02, 10.0)
    verdicts = [run_virtual(job) for job in jobs(8, 4, 700, 2, unseen)]
    few, many = sweep(verdicts, 8, 4, 2, unseen)
    assert (few["unseen"], many["unseen"]) == unseen
    assert few["eventual_wrong_pct"] < many["eventual_wrong_pct"]
    assert many["eventual_over_atomic"] > 1.05


def test_atomic_pays_where_the_others_place_much_that_a_view_does_not_show() -> None:
    assert unseen_requests(200, 0.001) == pytest.approx(0.2)
    for workers in (8, 64):
        above = atomic_pays_above(workers)
        assert not atomic_pays(above, 1.0, workers)
        assert atomic_pays(above * 1.01, 1.0, workers)
    assert not atomic_pays(1e9, 1.0, workers=1)


def test_the_products_threshold_is_where_the_sweep_finds_it() -> None:
    workers, seeds = 8, 6
    unseen = (0.1, 0.25, 0.5, 1.0)
    found = sweep(
        [run_virtual(job) for job in jobs(workers, 8, 1_500, seeds, unseen)], workers, 8, seeds, unseen
    )
    at = crossing(found)
    assert at is not None
    assert 0.5 < at / atomic_pays_above(workers) < 2
