"""Checks of the plane itself, of what views keep, and of attempts: kept, broken, and nothing said."""

from collections.abc import Callable
from typing import Any

import pytest

from chaos.checkers import Check, judge
from chaos.checks import (
    as_many_booked,
    attempts_known,
    late_changes_nothing,
    leases_kept,
    nothing_forgotten,
    plane_exact,
)
from chaos.story import Story
from chaos.testing import WORKER, Tale
from chaos.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
LAPSED = "picker_plane_backend_lapsed_total"


def audited(*pages: dict[str, Any] | None) -> Callable[[], Story]:
    def make() -> Story:
        told = Tale()
        for number, page in enumerate(pages):
            if page is None:
                told.add(10.0 + number, "plane", "audit", "fail", asked=9.0, fault="away")
            else:
                told.add(10.0 + number, "plane", "audit", "ok", asked=9.0, ids=["a"], **page)
        return told.story()

    return make


EXACT = {"sums": {WORKER: [0, 4, 1]}, "booked": {WORKER: [0, 4, 1]}}
DRIFTED = {"sums": {WORKER: [0, 8, 1]}, "booked": {WORKER: [0, 4, 1]}}
LEFT_OVER = {"sums": {WORKER: [0, 4, 0]}, "booked": {}}


def leases(*, fell: float, touched: bool = False, stalled: bool = False) -> Callable[[], Story]:
    def make() -> Story:
        told = Tale()
        told.fault("kill" if touched else "freeze", "picker-1" if touched else "plane", begun=5, healed=9)
        told.counters("picker-0", 2, other=1)
        told.counters("picker-0", 12, **({LAPSED: fell} if fell else {"other": 2}))
        if stalled:
            told.stall(5, 8)
        return told.story()

    return make


def forgetting(*, gap: bool, carried: bool = True) -> Callable[[], Story]:
    def make() -> Story:
        told = Tale()
        told.fault("restart", "plane", begun=5, healed=7)
        if carried:
            told.carried("a", 1, 30)
        told.views(2, 6, "a")
        if not gap:
            told.views(6, 6.5, "a")
        else:
            told.views(6, 6.5)
        told.views(6.5, 30, "a")
        return told.story()

    return make


def late(*, requests: int, sent: bool = True) -> Callable[[], Story]:
    def make() -> Story:
        told = Tale()
        proof = {"ids": ["a"], "requests": 7}
        if sent:
            for t, phase, kind, value in ((5.0, "begin", "invoke", {}), (5.1, "seen", "info", proof)):
                told.add(
                    t, "nemesis", "fault", kind, id="l", kind="late-operations", target="picker-0",  # type: ignore[arg-type]
                    phase=phase, value=value,
                )  # fmt: skip
        row = ["a", WORKER, "picker-0/x", "draining", "broken", False, 1, 2, 0, 4, requests, ""]
        for t in (6.0, 6.5):
            told.add(t, "picker-0", "view", "ok", asked=t - 0.01, epoch=1, version=1, sums={}, bookings=[row])
        return told.story()

    return make


def attempts(
    *, superseded: bool, returns: bool = False, key: str = "k", newer: bool = True, long: float = 8.0
) -> Callable[[], Story]:
    """The first attempt drains from 2 s on, the second is active from 3 s on."""

    def make() -> Story:
        told = Tale()
        for number in range(int(long / 0.25)):
            t = 2 + 0.25 * number
            back = returns and t > 7
            state, cause = ("active", None) if back else ("draining", "broken")
            rows = [["a", WORKER, "picker-0/x", state, cause, superseded and not back, 1, 2, 0, 4, 1, key]]
            if newer and t >= 3:
                rows.append(["b", WORKER, "picker-1/x", "active", None, False, 2, 1, 0, 4, 1, key])
            for replica in told.replicas:
                told.add(t, replica, "view", "ok", asked=t - 0.01, epoch=1, version=1, sums={}, bookings=rows)
        return told.story()

    return make


def booked(*shown: str, long: float = 20.0) -> Callable[[], Story]:
    """Two requests are carried, by whatever names."""

    def make() -> Story:
        told = Tale()
        for request in ("a", "b"):
            told.carried(request, 1, 1 + long)
        told.views(2, 1 + long, *shown)
        return told.story()

    return make


def hedged() -> Story:
    told = Tale()
    rows = [
        ["a", WORKER, "picker-0/x", "active", None, False, 1, 1, 0, 4, 1, "k"],
        ["b", WORKER, "picker-1/x", "active", None, False, 2, 1, 0, 4, 1, "k"],
    ]
    for number in range(40):
        t = 2 + 0.25 * number
        told.add(t, "picker-0", "view", "ok", asked=t, epoch=1, version=1, sums={}, bookings=rows)
    return told.story()


@pytest.mark.parametrize(
    ("check", "make", "verdict"),
    [
        (plane_exact(), audited(EXACT, EXACT), PASS),
        (plane_exact(), audited(None, EXACT), PASS),
        (plane_exact(), audited(EXACT, DRIFTED), FAIL),
        (plane_exact(), audited(DRIFTED, EXACT), FAIL),
        (plane_exact(), audited(EXACT, LEFT_OVER), FAIL),
        (plane_exact(), audited(EXACT, None), UNKNOWN),
        (plane_exact(), audited(), UNKNOWN),
        (leases_kept(), leases(fell=0), PASS),
        (leases_kept(), leases(fell=1), FAIL),
        (leases_kept(), leases(fell=1, stalled=True), UNKNOWN),
        (leases_kept(), leases(fell=1, touched=True), UNKNOWN),
        (nothing_forgotten(during="restart"), forgetting(gap=False), PASS),
        (nothing_forgotten(during="restart"), forgetting(gap=True), FAIL),
        (nothing_forgotten(during="restart"), forgetting(gap=True, carried=False), UNKNOWN),
        (nothing_forgotten(during="freeze"), forgetting(gap=True), UNKNOWN),
        (late_changes_nothing(), late(requests=1), PASS),
        (late_changes_nothing(), late(requests=7), FAIL),
        (late_changes_nothing(), late(requests=7, sent=False), UNKNOWN),
        (attempts_known(), attempts(superseded=True), PASS),
        (attempts_known(), attempts(superseded=False), FAIL),
        (attempts_known(), attempts(superseded=True, returns=True, long=12), FAIL),
        (attempts_known(), attempts(superseded=False, key=""), PASS),
        (attempts_known(), attempts(superseded=False, newer=False), PASS),
        (attempts_known(), attempts(superseded=False, long=2), PASS),
        (attempts_known(), hedged, PASS),
        (as_many_booked(), booked("x", "y"), PASS),
        (as_many_booked(), booked("x"), FAIL),
        (as_many_booked(), booked("x", long=3.5), UNKNOWN),
    ],
)
def test_check(check: Check, make: Callable[[], Story], verdict: Verdict) -> None:
    finding = judge(check, make())
    assert finding.verdict is verdict, finding
    assert bool(finding.evidence) >= (verdict is FAIL)
