"""Checks of what views, indexes and peers must be while something is away, on hand-made histories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.checkers import Check, judge
from chaos.checks import (
    booking_error,
    indexes_true,
    never_empty,
    none_outlives,
    peers_differed,
    peers_kept,
    picks_within,
    seen_by_all,
)
from chaos.errors import page, rows_of
from chaos.story import Story
from chaos.testing import Tale
from chaos.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def carried_through(*, shown_until: float, fault: str = "freeze") -> Story:
    """A request carried from 1 s to 20 s, the plane away from 5 s to 12 s, views that show it up to then."""
    told = Tale()
    told.call(1, sent=1, ended=20)
    told.carried("a", 1, 20)
    told.fault(fault, "plane", begun=5, healed=12)
    told.views(1.5, shown_until, "a")
    told.views(shown_until, 19)
    return told.story()


def known_load_stays() -> Story:
    return carried_through(shown_until=19)


def known_load_reads_zero() -> Story:
    return carried_through(shown_until=8)


def nothing_carried() -> Story:
    told = Tale()
    told.fault("freeze", "plane", begun=5, healed=12)
    told.views(0, 20)
    return told.story()


def no_fault() -> Story:
    told = Tale()
    told.carried("a", 1, 20)
    told.views(1.5, 19, "a")
    return told.story()


def slow_and_seen() -> Story:
    return carried_through(shown_until=19, fault="latency")


def slow_and_unseen() -> Story:
    return carried_through(shown_until=6, fault="latency")


def peers(*series: tuple[str, float, float]) -> Story:
    told = Tale()
    for replica, t, count in series:
        told.gauges(replica, t, picker_peers=count)
    return told.story()


def peers_that_stay() -> Story:
    return peers(("picker-0", 1, 0), ("picker-0", 2, 3), ("picker-0", 9, 3))


def peers_that_go() -> Story:
    return peers(("picker-0", 1, 3), ("picker-0", 9, 0))


def peers_that_differ() -> Story:
    return peers(("picker-0", 1.0, 2), ("picker-1", 1.2, 1))


def picks(*, slow_before: int) -> Story:
    """Picks that are slow during a fault, on a machine where they were slow before it, or were not."""
    told = Tale()
    told.fault("freeze", "plane", begun=10, healed=15)
    bounds, counted = ("0.05", "0.5", "+Inf"), [0, 0]
    for t, quick, slow in (
        (1, 0, 0),
        (8, 100 - slow_before, slow_before),
        (9.5, 0, 0),
        (15, 0, 50),
        (30, 0, 0),
    ):
        counted = [counted[0] + quick, counted[1] + slow]
        total = float(sum(counted))
        told.decisions("picker-0", t, dict(zip(bounds, (float(counted[0]), total, total), strict=True)))
    return told.story()


def indexes(held: int, *told_by: int, waited: float = 1.0) -> Story:
    told = Tale()
    of = {f"picker-{n}": {"w": count} for n, count in enumerate(told_by)}
    told.add(30, "scenario", "note", "info", name="indexes", held={"w": held}, told=of, waited=waited)
    return told.story()


@pytest.mark.parametrize(
    ("check", "story", "verdict"),
    [
        (never_empty("freeze"), known_load_stays, PASS),
        (never_empty("freeze"), known_load_reads_zero, FAIL),
        (never_empty("freeze"), nothing_carried, UNKNOWN),
        (never_empty("freeze"), no_fault, UNKNOWN),
        (seen_by_all("latency"), slow_and_seen, PASS),
        (seen_by_all("latency"), slow_and_unseen, FAIL),
        (seen_by_all("latency"), no_fault, UNKNOWN),
        (picks_within(250, during="freeze", share=0.95), lambda: picks(slow_before=0), FAIL),
        (picks_within(250, during="freeze", share=0.95), lambda: picks(slow_before=50), UNKNOWN),
        (peers_kept(), peers_that_stay, PASS),
        (peers_kept(), peers_that_go, FAIL),
        (peers_kept(), nothing_carried, UNKNOWN),
        (peers_differed(), peers_that_differ, PASS),
        (peers_differed(), peers_that_stay, FAIL),
        (indexes_true(), lambda: indexes(7, 7, 7), PASS),
        (indexes_true(), lambda: indexes(7, 7, 6), FAIL),
        (indexes_true(within=10), lambda: indexes(7, 7, 7, waited=12), FAIL),
        (indexes_true(), lambda: indexes(0, 0), UNKNOWN),
        (indexes_true(), nothing_carried, UNKNOWN),
    ],
)
def test_a_check_says(check: Check, story: Callable[[], Story], verdict: Verdict) -> None:
    assert judge(check, story()).verdict is verdict


def left_behind(kind: str, target: str, *, plane: str = "redis") -> Story:
    """A booking of `picker-1` is shown for 20 s after its work, during a fault that lasts as long."""
    told = Tale(plane=plane)
    told.carried("a", 1, 5)
    told.fault(kind, target, begun=3, healed=40)
    told.views(1.5, 25, "a", owner="picker-1")
    return told.story()


@pytest.mark.parametrize(
    ("story", "verdict"),
    [
        (lambda: left_behind("freeze", "plane"), PASS),
        (lambda: left_behind("partition", "*>plane"), PASS),
        (lambda: left_behind("partition", "picker-1>plane"), PASS),
        (lambda: left_behind("freeze", "nats", plane="nats"), PASS),
        (lambda: left_behind("slow-consumer", "nats", plane="nats"), FAIL),
        (lambda: left_behind("partition", "picker-0>nats", plane="nats"), FAIL),
    ],
)
def test_only_what_parts_replicas_from_the_plane_excuses_a_booking_that_stays(
    story: Callable[[], Story], verdict: Verdict
) -> None:
    assert judge(none_outlives(), story()).verdict is verdict


def test_without_noise_the_share_alone_decides() -> None:
    def killed(*, late: float) -> Story:
        told = Tale(ends=40)
        told.carried("a", 1, 8)
        told.fault("kill", "picker-0", begun=5, healed=12)
        told.views(1, 8 + late, "a")
        told.views(8 + late, 39)
        return told.story(twins={"fault_free": _undisturbed()})

    assert judge(booking_error(noise=0), killed(late=2)).verdict is PASS
    assert judge(booking_error(at_most_share=0.001, noise=0), killed(late=2)).verdict is FAIL
    assert judge(booking_error(at_most_share=0.001, noise=5), killed(late=2)).verdict is PASS


def _undisturbed() -> Story:
    told = Tale(ends=40)
    told.carried("a", 1, 8)
    told.views(1, 8, "a")
    told.views(8, 39)
    return told.story()


def report(folder: Path, seed: int, **numbers: Any) -> Path:
    folder.mkdir()
    finding = {"name": "booking error", "verdict": "pass", "numbers": numbers}
    played = {"name": "booking_error_of_a_death", "plane": "nats", "findings": [finding]}
    other = {**played, "name": "something_else"}
    (folder / "verdict.json").write_text(json.dumps({"seed": seed, "scenarios": [played, other]}))
    return folder


def test_the_page_shows_medians_over_the_runs(tmp_path: Path) -> None:
    numbers = {"isolated": -1.0, "ours_raw": 9.0, "isolated_raw": 200.0, "stream-bound": 1000.0}
    reports = [
        report(tmp_path / str(seed), seed, ours=ours, **numbers)
        for seed, ours in ((1, 4.0), (2, 60.0), (3, 10.0))
    ]
    rows = rows_of(reports)
    assert [row["seed"] for row in rows] == [1, 2, 3]
    kept = tmp_path / "rows.json"
    kept.write_text(json.dumps({"rows": rows}))
    assert "| nats | 3 | 10.0 | -1.0 (200.0) | 1000 | 1.0% |" in page(kept)


def test_a_folder_without_a_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"verdict\.json"):
        rows_of([tmp_path])
