"""Reconciliation: one judge a worker, drift shown, draining bookings ended by what the worker reports."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import Report
from picker.reconciling import Reconciling, judge_of
from stateplane.booking import Amount, Booking, Cause, Member, Owner, Rules, State
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore

W = "10.0.0.1:8000"
ME = Owner("a", "1")


class World:
    def __init__(self) -> None:
        self.now = 100.0
        plane = MemoryPlane(MemoryStore(Rules(), clock=lambda: self.now), owner=ME)
        self.desk = Desk(plane, ME, mode="isolated", clock=lambda: self.now)
        self.reconciling = Reconciling(self.desk, clock=lambda: self.now)

    def book(self, *ids: str) -> None:
        for booking_id in ids:
            self.desk.book(booking_id, key="", worker=W, amount=Amount(10, 2), now=self.now)

    def report(self, requests: int) -> None:
        self.now += 0.5
        self.reconciling.asked(W)
        report = Report(begun=self.now, ended=self.now, running=requests, waiting=0)
        self.reconciling.reported(W, report)


def test_drift_is_what_the_worker_reports_less_what_is_booked() -> None:
    world = World()
    world.book("a", "b")
    world.report(5)
    assert world.reconciling.drift == {W: 3}
    world.report(1)
    assert world.reconciling.drift == {W: -1}
    world.reconciling.left(W)
    assert world.reconciling.drift == {}


def test_a_report_of_nothing_ends_what_drains_but_never_what_is_active() -> None:
    world = World()
    world.book("a", "b", "c")
    world.desk.lose("a", Cause.BROKEN)
    world.report(0)
    world.now += 1
    world.report(0)
    assert set(world.desk.view.bookings()) == {"b", "c"}
    assert world.reconciling.counts.ended_by_evidence == 1


def test_what_the_worker_still_carries_goes_on_counting() -> None:
    world = World()
    world.book("a", "b")
    world.report(2)
    world.desk.lose("a", Cause.BROKEN)
    for _ in range(20):
        world.report(2)
    assert set(world.desk.view.bookings()) == {"a", "b"}


def test_requests_that_come_between_two_scrapes_do_not_hide_what_is_over() -> None:
    world = World()
    world.book("dead", "a", "b")
    world.report(3)
    world.desk.lose("dead", Cause.BROKEN)
    for n in range(12):
        world.book(f"new {n}")
        world.report(3 + n)
    assert "dead" not in world.desk.view.bookings()
    assert world.reconciling.counts.ended_by_evidence == 1


def test_a_replica_that_begins_to_judge_knows_how_the_worker_usually_reports() -> None:
    """Two bookings stand for nothing at every report, as was so under the judge that died."""
    world = World()
    others = [Member(Owner(f"o{n}", "1")) for n in range(50)]
    desk = Standing(world.desk, others)
    reconciling = Reconciling(desk, clock=lambda: world.now)
    world.book("a", "b", "c", "d")
    for n in range(80):
        if n == 20:
            world.desk.lose("a", Cause.BROKEN)
            desk.members = [Member(ME)]
        world.now += 0.5
        reconciling.asked(W)
        reconciling.reported(W, Report(begun=world.now, ended=world.now, running=2, waiting=0))
    assert desk.ended == []


class Standing:
    """A desk whose word on others' bookings may be old."""

    def __init__(self, desk: Desk, members: list[Member], *, degraded: bool = False) -> None:
        self.view, self.owner, self.members, self.degraded = desk.view, desk.owner, members, degraded
        self.ended: list[str] = []

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        self.ended.append(booking_id)


def test_while_the_plane_is_away_what_others_have_long_ended_is_no_evidence_against_what_drains() -> None:
    world = World()
    world.book("mine", "theirs", "theirs too")
    world.report(3)
    world.desk.lose("mine", Cause.SILENT)
    for degraded in (True, False):
        desk = Standing(world.desk, [Member(ME)], degraded=degraded)
        reconciling = Reconciling(desk, clock=lambda: world.now)
        for _ in range(6):
            world.now += 1
            reconciling.asked(W)
            reconciling.reported(W, Report(begun=world.now, ended=world.now, running=1, waiting=0))
        assert bool(desk.ended) is not degraded


class Blind(World):
    """A worker that reports only while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reporting = False
        self.reconciling = Reconciling(
            self.desk, clock=lambda: self.now, reports=lambda _: self.reporting, blind_seconds=10.0
        )

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            self.reconciling.tick(self.now)


def test_what_drains_on_a_worker_that_does_not_report_goes_in_a_shorter_time_and_nothing_active_does() -> (
    None
):
    world = Blind()
    world.book("a", "b")
    world.wait(60)
    world.desk.lose("a", Cause.BROKEN)
    world.wait(9.5)
    assert set(world.desk.view.bookings()) == {"a", "b"}
    world.wait(1.5)
    assert set(world.desk.view.bookings()) == {"b"}
    assert world.reconciling.counts.ended_blind == 1


def test_a_report_that_is_late_for_a_moment_ends_nothing() -> None:
    world = Blind()
    world.book("a")
    world.reporting = True
    world.desk.lose("a", Cause.BROKEN)
    world.wait(20)
    world.reporting = False
    world.wait(6)
    world.reporting = True
    world.report(1)
    world.wait(3)
    assert set(world.desk.view.bookings()) == {"a"}


@given(st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=6), st.text(min_size=1, max_size=20))
def test_every_member_names_the_same_judge_whatever_the_order(names: set[str], worker: str) -> None:
    owners = [Owner(name, "1") for name in names]
    assert judge_of(worker, owners) == judge_of(worker, reversed(owners))


def test_judging_spreads_over_the_members() -> None:
    owners = [Owner(name, "1") for name in "abc"]
    judged = [judge_of(f"10.0.0.{n}:8000", owners) for n in range(60)]
    assert all(judged.count(owner) >= 10 for owner in owners)


def test_a_worker_that_another_member_judges_is_left_to_it() -> None:
    world = World()
    others = [Owner(f"o{n}", "1") for n in range(50)]
    desk = Standing(world.desk, [Member(owner) for owner in others])
    reconciling = Reconciling(desk, clock=lambda: world.now)
    world.book("a")
    world.desk.lose("a", Cause.BROKEN)
    for _ in range(5):
        world.now += 1
        reconciling.reported(W, Report(begun=world.now, ended=world.now, running=0, waiting=0))
    assert desk.ended == []


class Shown:
    """A desk whose view shows just that."""

    def __init__(self, *bookings: Booking) -> None:
        self.owner, self.members, self.degraded = ME, [Member(ME)], False
        self.view = self
        self.bookings = bookings
        self.ended: list[str] = []

    def on(self, worker: str) -> tuple[Booking, ...]:
        return tuple(one for one in self.bookings if one.worker == worker)

    def load(self, worker: str) -> Amount:
        return Amount(0, 0, sum(one.amount.requests for one in self.on(worker)))

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        self.ended.append(booking_id)


def _scrapes_until_ended(cause: Cause, *, log: bool = False) -> int:
    """Of a worker that has nothing, from the first one begun after its one booking turned draining."""
    drains = Booking("a", "", W, ME, Amount(10, 2), state=State.DRAINING, cause=cause)
    desk, now = Shown(drains), 100.0
    reconciling = Reconciling(cast("Desk", desk), clock=lambda: now, log_expected=lambda: log)
    for scrape in range(1, 9):
        reconciling.asked(W)
        now += 0.01
        begun = now
        now += 0.01
        reconciling.reported(W, Report(begun=begun, ended=now, running=0, waiting=0))
        if desk.ended:
            return scrape
        now += 0.5
    return 0


def test_the_first_scrape_after_a_lease_fell_tells_what_is_over() -> None:
    assert _scrapes_until_ended(Cause.LEASE) == 1


def test_where_a_log_tells_which_requests_run_it_is_given_time_to_find_another_replica_first() -> None:
    assert _scrapes_until_ended(Cause.LEASE, log=True) == 2


def test_what_drains_since_its_stream_broke_may_be_on_its_way_at_the_first_scrape() -> None:
    assert _scrapes_until_ended(Cause.BROKEN) == 2


def test_what_turns_draining_while_a_scrape_is_under_way_is_not_judged_by_it() -> None:
    world = World()
    world.book("a")
    world.report(1)
    world.now += 0.5
    world.reconciling.asked(W)
    begun = world.now
    world.now += 0.1
    world.desk.lose("a", Cause.LEASE)
    world.reconciling.reported(W, Report(begun=begun, ended=world.now, running=0, waiting=0))
    assert set(world.desk.view.bookings()) == {"a"}


def test_a_dead_owners_load_goes_with_the_reports_that_are_asked_for_after_its_lease_fell() -> None:
    """One where nothing runs beside it, four where others do and the worker's usual deficit is known, else seven."""
    assert [_reports_needed(others=0, known=True), _reports_needed(others=4, known=True)] == [1, 4]
    assert _reports_needed(others=4, known=False) == 7


def _reports_needed(*, others: int, known: bool) -> int:
    active = [Booking(f"b{number}", "", W, ME, Amount(10, 2)) for number in range(others)]
    desk, now = Shown(*active), 100.0
    reconciling = Reconciling(cast("Desk", desk), clock=lambda: now)

    def scrape() -> None:
        nonlocal now
        reconciling.asked(W)
        now += 0.01
        begun = now
        now += 0.01
        reconciling.reported(W, Report(begun=begun, ended=now, running=others, waiting=0))
        now += 0.48

    if known:
        for _ in range(10):
            scrape()
    now += 10.0
    desk.bookings = (
        *active,
        Booking("dead", "", W, ME, Amount(10, 2), state=State.DRAINING, cause=Cause.LEASE),
    )
    for report in range(1, 20):
        scrape()
        if desk.ended:
            return report
    return 0
