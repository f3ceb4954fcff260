"""The life of a booking, where the contract suite does not reach: other rules, exact moments, invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateplane.booking import (
    NOTHING,
    Amount,
    Booked,
    Booking,
    Cause,
    Change,
    Gap,
    Gone,
    Outcome,
    Owner,
    OwnerLapsed,
    Rules,
    State,
    Status,
)
from stateplane.ledger import Ledger

A, B, C = (Owner(name, "1") for name in "abc")
RULES = Rules(lease=3.0, heartbeat=1.0, drain=30.0, tombstone=60.0)


def booking(booking_id: str, key: str = "") -> Booking:
    return Booking(booking_id, key, "w", A, Amount(100, 10))


def ledger(rules: Rules = RULES, *owners: Owner) -> Ledger:
    made = Ledger(rules, now=0)
    for owner in owners or (A, B):
        made.join(owner, {}, now=0)
    return made


def live(made: Ledger, since: int, until: int, *owners: Owner) -> int:
    """Heartbeats each second; the time at their end."""
    for now in range(since + 1000, until + 1, 1000):
        for owner in owners:
            made.beat(owner, {}, now=now)
    return until


def standing(made: Ledger, booking_id: str, now: int) -> Booking | None:
    return next((one for one in made.snapshot(now=now).bookings if one.id == booking_id), None)


def test_a_superseded_attempt_drains_for_its_own_time() -> None:
    made = ledger(replace(RULES, superseded_drain=5.0))
    made.book(A, booking("1", "k"), now=0)
    made.drain(A, "1", term=1, op=1, cause=Cause.BROKEN, now=0)
    made.book(B, booking("2", "k"), now=0)
    older = standing(made, "1", 0)
    assert older is not None
    assert older.drain_left == 5.0


def test_superseding_never_lengthens_a_drain() -> None:
    made = ledger(replace(RULES, superseded_drain=20.0))
    made.book(A, booking("1", "k"), now=0)
    made.drain(A, "1", term=1, op=1, cause=Cause.BROKEN, seconds=2, now=0)
    made.book(B, booking("2", "k"), now=0)
    older = standing(made, "1", 0)
    assert older is not None
    assert older.drain_left == 2.0


def test_with_no_superseded_drain_the_older_attempt_goes_at_the_next_heartbeat() -> None:
    made = ledger(replace(RULES, superseded_drain=0.0))
    made.book(A, booking("1", "k"), now=0)
    made.drain(A, "1", term=1, op=1, cause=Cause.BROKEN, now=0)
    made.book(B, booking("2", "k"), now=0)
    assert made.beat(A, {}, now=1000).reaped == 1
    assert standing(made, "1", 1000) is None


def test_what_a_move_leaves_behind_drains_as_superseded() -> None:
    made = ledger(replace(RULES, superseded_drain=5.0))
    made.book(A, booking("1"), now=0)
    made.move(A, "1", term=1, op=1, worker="w2", amount=Amount(1, 1), now=0)
    left = standing(made, "1~1", 0)
    assert left is not None
    assert (left.superseded, left.drain_left) == (True, 5.0)


def test_a_lease_falls_at_its_moment_and_not_before() -> None:
    made = ledger()
    made.book(A, booking("1"), now=0)
    now = live(made, 0, 2000, B)
    made.beat(B, {}, now=2999)
    assert standing(made, "1", 2999) == made.book(A, booking("1"), now=now).booking
    assert made.beat(B, {}, now=3000).lapsed == (A,)


def test_a_retry_right_after_its_owners_death_is_superseded_by_the_lapse() -> None:
    made = ledger()
    made.book(A, booking("1", "k"), now=0)
    now = live(made, 0, 1000, B)
    assert made.book(B, booking("2", "k"), now=now).superseded == ()
    live(made, 1000, 4000, B)
    older, newer = standing(made, "1", 4000), standing(made, "2", 4000)
    assert older is not None
    assert newer is not None
    assert (older.state, older.superseded) == (State.DRAINING, True)
    assert (newer.state, newer.attempt, newer.superseded) == (State.ACTIVE, 2, False)


def test_a_revived_booking_is_behind_what_was_booked_since() -> None:
    made = ledger()
    made.book(A, booking("1", "k"), now=0)
    made.drain(A, "1", term=1, op=1, cause=Cause.BROKEN, seconds=0, now=0)
    live(made, 0, 1000, A, B)
    made.book(B, booking("2", "k"), now=1000)
    revived = made.reclaim(B, "1", now=1000).booking
    assert revived is not None
    assert (revived.outrun, revived.state) == (True, State.ACTIVE)
    newer = standing(made, "2", 1000)
    assert newer is not None
    assert not newer.outrun


def test_reaping_goes_in_slices() -> None:
    made = ledger()
    for n in range(50):
        made.book(A, booking(str(n)), now=0)
    now = live(made, 0, 3000, B)
    for now in range(4000, 33_001, 1000):
        assert made.beat(B, {}, now=now, limit=10).reaped == (10 if now >= 33_000 else 0)
    assert [made.beat(B, {}, now=now + 100, limit=10).reaped for _ in range(5)] == [10, 10, 10, 10, 0]
    assert made.sums() == {}


def test_nothing_is_kept_of_what_has_ended() -> None:
    made = ledger()
    for n in range(100):
        made.book(A, booking(str(n), f"k{n}"), now=0)
        if n % 2:
            made.release(str(n), Cause.ENDED, now=0)
        else:
            made.drain(A, str(n), term=1, op=1, cause=Cause.BROKEN, seconds=1, now=0)
    live(made, 0, 63_000, A)
    assert made.snapshot(now=63_000).bookings == ()
    assert made.state().tombstones == {}
    assert made.state().attempts == {}


@pytest.mark.parametrize("cause", [Cause.EVIDENCE, Cause.DEADLINE])
def test_a_superseded_booking_gone_on_an_assumption_stays_away(cause: Cause) -> None:
    made = ledger()
    made.book(A, booking("1", "k"), now=0)
    term = made.drain(A, "1", term=1, op=1, cause=Cause.BROKEN, now=0).booking
    made.book(B, booking("2", "k"), now=0)
    assert term is not None
    assert made.release("1", cause, term=term.term, now=0).status is Status.DONE
    assert made.reclaim(A, "1", now=0) == Outcome(Status.GONE, cause=cause)


# --- invariants over random histories

_ids = st.sampled_from(["1", "2", "3", "1~1"])
_owners = st.sampled_from([A, B, C])
_small = st.integers(1, 4)
_amounts = st.builds(Amount, st.integers(0, 99), st.integers(0, 9), st.just(1))
_calls = st.one_of(
    st.tuples(st.just("book"), _owners, _ids, st.sampled_from(["", "k", "l"]), _amounts),
    st.tuples(st.just("move"), _owners, _ids, _small, _small, _amounts),
    st.tuples(st.just("adjust"), _owners, _ids, _small, _small, _amounts),
    st.tuples(st.just("drain"), _owners, _ids, _small, _small, st.sampled_from([None, 0.0, 2.0])),
    st.tuples(st.just("reclaim"), _owners, _ids),
    st.tuples(st.just("release"), _ids, st.sampled_from([Cause.ENDED, Cause.EVIDENCE]), _small),
    st.tuples(st.just("beats"), st.lists(_owners, min_size=1, max_size=3, unique=True), st.integers(1, 12)),
    st.tuples(st.just("step"), st.sampled_from([-300_000, 20_000, 300_000])),
)


class _History:
    def __init__(self) -> None:
        self.ledger = ledger(RULES, A, B, C)
        self.now = 0
        self.terms: dict[str, int] = {}
        self.folded: dict[str, Booking] = {}
        self.proven: set[str] = set()
        self.number = 0

    def call(self, call: tuple[object, ...]) -> None:
        made, now = self.ledger, self.now
        match call:
            case ("book", Owner() as owner, str(name), str(key), Amount() as amount):
                made.book(owner, Booking(name, key, f"w{name}", owner, amount), now=now)
            case ("move", Owner() as owner, str(name), int(term), int(op), Amount() as amount):
                made.move(owner, name, term=term, op=op, worker=f"v{op}", amount=amount, now=now)
            case ("adjust", Owner() as owner, str(name), int(term), int(op), Amount() as amount):
                made.adjust(owner, name, term=term, op=op, amount=amount, now=now)
            case ("drain", Owner() as owner, str(name), int(term), int(op), None | float() as seconds):
                made.drain(owner, name, term=term, op=op, cause=Cause.BROKEN, seconds=seconds, now=now)
            case ("reclaim", Owner() as owner, str(name)):
                made.reclaim(owner, name, now=now)
            case ("release", str(name), Cause() as cause, int(term)):
                made.release(name, cause, term=term, now=now)
                if cause is Cause.ENDED:
                    self.proven.add(name)
            case ("beats", list(owners), int(times)):
                for _ in range(times):
                    self.now += 1000
                    for owner in owners:
                        made.beat(owner, {}, now=self.now)
            case ("step", int(step)):
                self.now += step
            case _:
                raise AssertionError(call)

    def check(self) -> None:
        for change in self.ledger.take():
            assert not isinstance(change, Gap)
            self.number += 1
            assert change.version.number == self.number
            self.apply(change)
        shown = {one.id: one for one in self.ledger.snapshot(now=self.now).bookings}
        assert {name: replace(one, drain_left=None) for name, one in shown.items()} == self.folded
        sums: dict[str, Amount] = {}
        for one in shown.values():
            sums[one.worker] = sums.get(one.worker, NOTHING) + one.amount
        assert self.ledger.sums() == sums

    def apply(self, change: Change) -> None:
        match change:
            case Booked(booking=one):
                assert one.term >= self.terms.get(one.id, 0)
                self.terms[one.id] = one.term
                before = self.folded.get(one.id)
                if before is not None and before.superseded:
                    assert one.superseded
                    assert one.state is State.DRAINING
                self.folded[one.id] = replace(one, drain_left=None)
            case Gone(id=name):
                del self.folded[name]
            case OwnerLapsed(owner=owner, cause=cause):
                for one in list(self.folded.values()):
                    if one.owner == owner and one.state is State.ACTIVE:
                        self.folded[one.id] = replace(
                            one, state=State.DRAINING, cause=cause, superseded=one.superseded or one.outrun
                        )
            case _:
                pass


@settings(max_examples=150, deadline=None)
@given(st.lists(_calls, max_size=40))
def test_versions_terms_sums_and_changes_hold_through_any_history(calls: list[tuple[object, ...]]) -> None:
    history = _History()
    for call in calls:
        history.call(call)
        history.check()


@settings(max_examples=60, deadline=None)
@given(st.lists(_calls, max_size=25), st.lists(_calls, max_size=25))
def test_a_proven_end_is_never_undone_while_it_is_remembered(
    before: list[tuple[object, ...]], after: list[tuple[object, ...]]
) -> None:
    history = _History()
    for call in before:
        history.call(call)
    history.ledger.release("1", Cause.ENDED, now=history.now)
    ended = history.now
    for call in after:
        history.call(call)
        if 0 <= history.now - ended < RULES.tombstone * 1000:
            assert standing(history.ledger, "1", history.now) is None
        else:
            break
