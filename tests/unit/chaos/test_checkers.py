"""Each check on hand-made histories: one that keeps it, one that breaks it, one that says nothing."""

from collections.abc import Callable

import pytest

from chaos.checkers import Check, judge
from chaos.checks import (
    answered,
    balanced,
    booking_error,
    calls_made,
    counted,
    fault_seen,
    flat,
    in_flight,
    no_live_gone,
    no_pick_of_the_gone,
    none_outlives,
    nothing_left,
    one_active_each,
    picks_within,
    sums_exact,
    views_agree,
    whole,
)
from chaos.pace import KeptPace
from chaos.story import Story
from chaos.testing import WORKER, Tale
from chaos.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def tale() -> Tale:
    return Tale()


# histories, by what happens in them


def one_request_kept() -> Story:
    told = tale()
    told.call(1, sent=1, ended=5)
    told.carried("a", 1, 5)
    told.views(0, 1)
    told.views(1.5, 5, "a")
    told.views(5.25, 20)
    return told.story()


def nothing_at_all() -> Story:
    return tale().story()


def hung() -> Story:
    told = tale()
    told.call(1, sent=1)
    return told.story()


def timed_out() -> Story:
    told = tale()
    told.call(1, sent=1, ended=50, outcome="timeout")
    return told.story()


def refused(status: int, *, near_a_kill: bool = False) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.call(1, sent=10, ended=10.5, outcome="refused", status=status)
        if near_a_kill:
            told.fault("kill", "picker-0", begun=10.2, healed=15)
        return told.story()

    return make


def cut(*, hold: str, killed: str) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.call(1, sent=1, ended=2)
        told.call(2, sent=9, ended=10.2, outcome="cut", booking="b")
        told.views(9, 10, "b", owner="picker-0")
        told.status("picker-0", 9, hold=hold)
        told.status("picker-1", 9, hold=hold)
        told.fault("kill", killed, begun=10, healed=15)
        return told.story()

    return make


def sums_off() -> Story:
    told = tale()
    told.view("picker-0", 1, "a", sums={WORKER: [0, 4, 2]})
    return told.story()


def sums_of_nothing() -> Story:
    told = tale()
    told.view("picker-0", 1, sums={WORKER: [0, 4, 1]})
    return told.story()


def lost_while_carried() -> Story:
    told = tale()
    told.carried("a", 1, 20)
    told.views(1.5, 8, "a")
    told.views(8, 20)
    return told.story()


def never_seen() -> Story:
    told = tale()
    told.carried("a", 1, 20)
    told.views(0, 20)
    return told.story()


def one_taken_for_another(
    *, kind: str = "freeze", target: str = "picker-0", at: float = 9.0, booked: int = 2
) -> Callable[[], Story]:
    """Two run, and as one that ended was taken for ``b``, ``b`` is gone for a second; ``booked`` remain meanwhile."""

    def make() -> Story:
        told = tale()
        told.carried("a", 1, 30)
        told.carried("b", 1, 30)
        told.carried("c", 1, at - 1)
        told.views(1.5, at, "a", "b", "c")
        told.fault(kind, target, begun=5, healed=17)
        told.views(at, at + 1, *("a", "c")[:booked])
        told.views(at + 1, 30, "a", "b")
        return told.story()

    return make


def unseen_while_the_plane_was_frozen() -> Story:
    told = tale()
    told.fault("freeze", "plane", begun=0.5, healed=17)
    told.carried("a", 1, 18)
    told.views(0, 18)
    return told.story()


def lost_while_the_plane_was_frozen() -> Story:
    told = tale()
    told.carried("a", 1, 18)
    told.views(1.5, 5, "a")
    told.fault("freeze", "plane", begun=5, healed=17)
    told.views(5, 18)
    return told.story()


def lost_for_a_moment_after_a_restart_of_the_plane() -> Story:
    told = tale()
    told.carried("a", 1, 18)
    told.views(1.5, 5, "a")
    told.fault("restart", "plane", begun=5, healed=5.5)
    told.views(5.5, 7, epoch=2)
    told.views(7, 18, "a", epoch=2)
    return told.story()


def outlived(by: float, *, fault: tuple[str, str, float, float] | None = None) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.carried("a", 1, 5)
        told.views(1.5, 5 + by, "a")
        if fault:
            kind, target, begun, healed = fault
            told.fault(kind, target, begun=begun, healed=healed)
        return told.story()

    return make


def outlived_over_a_stall() -> Story:
    told = tale()
    told.carried("a", 1, 5)
    told.views(1.5, 14, "a")
    told.stall(7, 9)
    return told.story()


def views_differ_over_a_stall() -> Story:
    told = tale()
    told.stall(14, 16)
    for number in range(40):
        told.view("picker-0", 10 + number / 4, "a")
        told.view("picker-1", 10 + number / 4)
    told.views(21, 40)
    return told.story()


def stalled(*spans: tuple[float, float]) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        for begin, end in spans:
            told.stall(begin, end)
        return told.story()

    return make


def two_active() -> Story:
    told = tale()
    told.view("picker-0", 1, "a", "a~2")
    return told.story()


def one_moved() -> Story:
    told = tale()
    told.view("picker-0", 1, "a")
    told.view("picker-0", 2, "a~2", state="draining")
    return told.story()


def left_over() -> Story:
    told = tale()
    told.carried("a", 1, 5)
    told.views(0, 60, "a")
    return told.story()


def left_over_too_soon_to_tell() -> Story:
    told = Tale(ends=6)
    told.carried("a", 1, 5)
    told.views(0, 6, "a")
    return told.story()


def one_view_differs() -> Story:
    told = tale()
    told.fault("kill", "picker-1", begun=1, healed=5)
    for number in range(80):
        told.view("picker-0", 10 + number / 4, "a")
        told.view("picker-1", 10 + number / 4)
    return told.story()


def views_differ_before_the_heal() -> Story:
    told = tale()
    for number in range(40):
        told.view("picker-0", 1 + number / 4, "a")
        told.view("picker-1", 1 + number / 4)
    told.fault("kill", "picker-1", begun=1, healed=20)
    told.views(21, 40, "a")
    return told.story()


def one_replica_silent() -> Story:
    told = tale()
    told.view("picker-0", 1, "a")
    return told.story()


def decisions(slow: float) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.fault("freeze", "plane", begun=10, healed=20)
        told.decisions("picker-0", 9, {"0.05": 1000, "0.25": 1000, "+Inf": 1000})
        told.decisions("picker-0", 15, {"0.05": 1100, "0.25": 1100 + slow, "+Inf": 1100 + slow})
        return told.story()

    return make


def killed(*, seen: bool = True, healed: float | None = 15) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.call(1, sent=9, ended=12)
        told.view("picker-1", 9.5, "a", owner="picker-0")
        told.fault("kill", "picker-0", begun=10, healed=healed, seen=seen)
        return told.story()

    return make


def rises(to: float) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.counters("picker-0", 1, picker_picks_total=5)
        told.counters("picker-0", 2, picker_picks_total=to)
        return told.story()

    return make


def left_and_picked(late: float) -> Callable[[], Story]:
    def make() -> Story:
        told = tale()
        told.fault("leave", "engine-0", begun=10, healed=30)
        told.carried("a", 10 + late, 25)
        return told.story()

    return make


def a_death(*, believed_until: float, faults: bool) -> Story:
    told = Tale(replicas=("picker-0", "picker-1"))
    if faults:
        told.fault("kill", "picker-0", begun=10, healed=30)
    for number in range(10):
        told.carried(f"r{number}", 5, 12)
    names = [f"r{number}" for number in range(10)]
    for number in range(240):
        t = number / 4
        shown = names if 5 <= t < (believed_until if faults else 12) else []
        told.view("picker-1", t, *shown)
        if not faults or not 10 <= t < 30:
            told.view("picker-0", t, *shown)
    return told.story()


def error_of(believed_until: float) -> Callable[[], Story]:
    def make() -> Story:
        story = a_death(believed_until=believed_until, faults=True)
        story.twins = {"fault_free": a_death(believed_until=12, faults=False)}
        return story

    return make


def loads(*counts: int) -> Story:
    told = Tale(workers={f"engine-{n}": f"10.0.0.{n}:8000" for n in range(len(counts))})
    for engine, count in enumerate(counts):
        for number in range(count):
            told.carried(f"{engine}-{number}", 1, 5, engine=f"engine-{engine}")
    return told.story()


def gauge(*, grows_to: float, looks: int = 100, until: float = 1.0) -> Callable[[], Story]:
    """It grows steadily until that share of the looks."""

    def make() -> Story:
        told = tale()
        for number in range(looks):
            for replica in told.replicas:
                value = 100 + (grows_to - 100) * min(number / looks / until, 1.0)
                told.gauges(replica, number / 4, process_open_fds=value)
        return told.story()

    return make


def balance(ours: tuple[int, ...], one: tuple[int, ...]) -> Callable[[], Story]:
    def make() -> Story:
        story = loads(*ours)
        story.twins = {"one_replica": loads(*one)}
        return story

    return make


@pytest.mark.parametrize(
    ("check", "make", "verdict"),
    [
        (answered(), one_request_kept, PASS),
        (answered(), hung, FAIL),
        (answered(), timed_out, FAIL),
        (answered(), refused(500), FAIL),
        (answered(lost=1), refused(500), FAIL),
        (answered(lost=1), refused(500, near_a_kill=True), PASS),
        (answered(), refused(503), FAIL),
        (answered(refused=1), refused(503), PASS),
        (answered(), nothing_at_all, UNKNOWN),
        (whole(), one_request_kept, PASS),
        (whole(), cut(hold="response", killed="picker-0"), PASS),
        (whole(), cut(hold="response", killed="picker-1"), FAIL),
        (whole(), cut(hold="headers", killed="picker-0"), FAIL),
        (whole(), cut(hold="headers", killed="engine-0"), FAIL),
        (whole(by=("engine-0",)), cut(hold="headers", killed="engine-0"), PASS),
        (whole(), hung, UNKNOWN),
        (sums_exact(), one_request_kept, PASS),
        (sums_exact(), sums_off, FAIL),
        (sums_exact(), sums_of_nothing, FAIL),
        (sums_exact(), nothing_at_all, UNKNOWN),
        (no_live_gone(), one_request_kept, PASS),
        (no_live_gone(), lost_while_carried, FAIL),
        (no_live_gone(), never_seen, FAIL),
        (no_live_gone(), one_taken_for_another(), PASS),
        (no_live_gone(), one_taken_for_another(booked=1), FAIL),
        (no_live_gone(), one_taken_for_another(at=12.0), FAIL),
        (no_live_gone(), one_taken_for_another(kind="kill"), FAIL),
        (no_live_gone(), one_taken_for_another(target="engine-0"), FAIL),
        (no_live_gone(), one_taken_for_another(kind="half-open", target="envoy>picker-0", at=12.0), PASS),
        (no_live_gone(), unseen_while_the_plane_was_frozen, PASS),
        (no_live_gone(), lost_while_the_plane_was_frozen, FAIL),
        (no_live_gone(), lost_for_a_moment_after_a_restart_of_the_plane, PASS),
        (no_live_gone(), nothing_at_all, UNKNOWN),
        (none_outlives(), one_request_kept, PASS),
        (none_outlives(), outlived(7), PASS),
        (none_outlives(), outlived(10), FAIL),
        (none_outlives(), outlived(14, fault=("freeze", "plane", 4, 12)), PASS),
        (none_outlives(), outlived(22, fault=("freeze", "plane", 4, 12)), FAIL),
        (none_outlives(), outlived(10, fault=("kill", "picker-0", 8, 50)), PASS),
        (none_outlives(), outlived(16, fault=("kill", "picker-0", 8, 50)), FAIL),
        (none_outlives(), outlived(16, fault=("kill", "engine-7", 8, 50)), FAIL),
        (none_outlives(), nothing_at_all, UNKNOWN),
        (none_outlives(), outlived_over_a_stall, PASS),
        (views_agree(), views_differ_over_a_stall, PASS),
        (KeptPace(), stalled(), PASS),
        (KeptPace(), stalled((5, 6)), PASS),
        (KeptPace(), stalled((5, 9)), UNKNOWN),
        (KeptPace(), stalled(*((each, each + 2) for each in range(5, 50, 3))), UNKNOWN),
        (one_active_each(), one_request_kept, PASS),
        (one_active_each(), one_moved, PASS),
        (one_active_each(), two_active, FAIL),
        (one_active_each(), nothing_at_all, UNKNOWN),
        (nothing_left(), one_request_kept, PASS),
        (nothing_left(), left_over, FAIL),
        (nothing_left(), left_over_too_soon_to_tell, UNKNOWN),
        (nothing_left(), one_replica_silent, UNKNOWN),
        (views_agree(), one_request_kept, PASS),
        (views_agree(), views_differ_before_the_heal, PASS),
        (views_agree(), one_view_differs, FAIL),
        (views_agree(), one_replica_silent, UNKNOWN),
        (picks_within(50, during="freeze"), decisions(slow=0), PASS),
        (picks_within(50, during="freeze"), decisions(slow=50), FAIL),
        (picks_within(250, during="freeze"), decisions(slow=50), PASS),
        (picks_within(50, during="kill"), decisions(slow=0), UNKNOWN),
        (picks_within(50), nothing_at_all, UNKNOWN),
        (calls_made(1), one_request_kept, PASS),
        (calls_made(2), one_request_kept, FAIL),
        (fault_seen("kill"), killed(), PASS),
        (fault_seen("kill", "picker-0"), killed(), PASS),
        (fault_seen("kill", "picker-1"), killed(), FAIL),
        (fault_seen("kill", lasting=10), killed(), FAIL),
        (fault_seen("kill"), killed(seen=False), FAIL),
        (fault_seen("kill"), killed(healed=None), FAIL),
        (in_flight("kill", 1), killed(), PASS),
        (in_flight("kill", 2), killed(), FAIL),
        (in_flight("kill", 1, on="target"), killed(), PASS),
        (in_flight("freeze", 1), killed(), FAIL),
        (counted("picker_picks_total", 3), rises(8), PASS),
        (counted("picker_picks_total", 4), rises(8), FAIL),
        (counted("picker_picks_total", 0, at_most=2), rises(8), FAIL),
        (counted("picker_picks_total"), nothing_at_all, UNKNOWN),
        (no_pick_of_the_gone(), left_and_picked(1), PASS),
        (no_pick_of_the_gone(), left_and_picked(5), FAIL),
        (no_pick_of_the_gone(), nothing_at_all, UNKNOWN),
        (booking_error(), error_of(believed_until=12.5), PASS),
        (booking_error(), error_of(believed_until=50), FAIL),
        (booking_error(), nothing_at_all, UNKNOWN),
        (flat("process_open_fds"), gauge(grows_to=105), PASS),
        (flat("process_open_fds"), gauge(grows_to=150), FAIL),
        (flat("process_open_fds", least=60), gauge(grows_to=150), PASS),
        (flat("process_open_fds"), gauge(grows_to=100, looks=5), UNKNOWN),
        (flat("process_open_fds", only=("picker-0",)), gauge(grows_to=150), FAIL),
        (flat("process_open_fds"), gauge(grows_to=150, until=0.5), FAIL),
        (flat("process_open_fds", filling=0.5), gauge(grows_to=150, until=0.5), PASS),
        (flat("process_open_fds", filling=0.5), gauge(grows_to=250), FAIL),
        (flat("process_open_fds", only=("picker-9",)), gauge(grows_to=150), UNKNOWN),
        (balanced(), balance((10, 10), (10, 10)), PASS),
        (balanced(), balance((20, 2), (10, 10)), FAIL),
        (balanced(), lambda: loads(1, 1), UNKNOWN),
    ],
)
def test_a_check_says_of_a_history(check: Check, make: Callable[[], Story], verdict: Verdict) -> None:
    finding = judge(check, make())
    assert finding.verdict is verdict, finding
    assert finding.summary
    if verdict is FAIL and finding.kind == "invariant" and "picked" in finding.name:
        assert finding.evidence


def test_a_check_that_breaks_is_unknown() -> None:
    class Broken:
        name = "broken"

        def judge(self, story: Story) -> None:
            raise ZeroDivisionError("on purpose")

    finding = judge(Broken(), nothing_at_all())  # type: ignore[arg-type]
    assert finding.verdict is UNKNOWN
    assert "on purpose" in finding.summary


def test_a_gauge_is_never_compared_with_itself() -> None:
    with pytest.raises(ValueError, match="filling"):
        flat("process_open_fds", filling=0.7)
