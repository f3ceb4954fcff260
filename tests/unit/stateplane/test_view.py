"""The view is a fold: its sums are the sums of its bookings, and it never forgets what may still run."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from stateplane.booking import (
    NOTHING,
    Amount,
    Booked,
    Booking,
    Cause,
    Gap,
    Gone,
    Member,
    Owner,
    OwnerLapsed,
    Rebooked,
    Snapshot,
    State,
    Version,
)
from stateplane.tally import SHOWN_ATTEMPTS
from stateplane.view import View

A, B = Owner("a", "1"), Owner("b", "1")


def booking(
    id_: str, worker: str = "w1", owner: Owner = A, tokens: int = 100, blocks: int = 7, **more: object
) -> Booking:
    return replace(Booking(id_, "", worker, owner, Amount(tokens, blocks)), **more)  # type: ignore[arg-type]


def snapshot(number: int, *bookings: Booking, epoch: int = 1, members: tuple[Member, ...] = ()) -> Snapshot:
    return Snapshot(Version(epoch, number), bookings, members)


def folded(*bookings: Booking) -> View:
    view = View(lease=4.0)
    view.reset(snapshot(0, *bookings), now=0.0)
    return view


def summed(view: View) -> dict[str, Amount]:
    sums: dict[str, Amount] = {}
    for one in view.bookings().values():
        sums[one.worker] = sums.get(one.worker, NOTHING) + one.amount
    return {worker: amount for worker, amount in sums.items() if amount != NOTHING}


def test_a_booking_moved_to_another_worker_counts_there_only() -> None:
    view = folded(booking("x"))
    assert view.apply(Booked(Version(1, 1), booking("x", worker="w2", tokens=5)), 1.0)
    assert view.load("w1") == NOTHING
    assert view.load("w2") == Amount(5, 7)
    assert dict(view.loads()) == {"w2": Amount(5, 7)}


def test_a_change_published_twice_is_seen_once() -> None:
    view = folded()
    change = Booked(Version(1, 1), booking("x"))
    assert view.apply(change, 1.0)
    assert view.apply(change, 1.0)
    assert view.load("w1").requests == 1


def test_a_missed_change_a_gap_and_another_epoch_ask_for_a_picture_and_change_nothing() -> None:
    view = folded(booking("x"))
    for change in (Gone(Version(1, 2), "x", Cause.ENDED), Gap("lost"), Gone(Version(2, 1), "x", Cause.ENDED)):
        assert not view.apply(change, 1.0)
        assert view.load("w1").requests == 1
    assert view.version == Version(1, 0)


def test_nothing_is_followed_before_the_first_picture() -> None:
    assert not View().apply(Booked(Version(0, 1), booking("x")), 0.0)


def test_a_picture_older_than_the_view_is_ignored() -> None:
    view = folded()
    view.apply(Booked(Version(1, 1), booking("x")), 1.0)
    view.reset(snapshot(0), 1.0)
    assert view.booking("x") is not None


def test_a_lapse_turns_active_bookings_of_its_owner_draining_and_they_count_on() -> None:
    outrun = booking("o", outrun=True)
    view = folded(booking("x"), outrun, booking("y", owner=B))
    assert view.apply(OwnerLapsed(Version(1, 1), A, 30.0), 5.0)
    lapsed, superseded = view.bookings()["x"], view.bookings()["o"]
    assert (lapsed.state, lapsed.cause, lapsed.superseded) == (State.DRAINING, Cause.LEASE, False)
    assert superseded.superseded
    assert view.bookings()["y"].state is State.ACTIVE
    assert view.load("w1").requests == 3


def test_a_drain_deadline_of_the_own_clock_only_marks_a_suspect() -> None:
    view = folded()
    view.apply(Booked(Version(1, 1), booking("x", state=State.DRAINING, drain_left=2.0)), 10.0)
    assert view.suspects(11.0) == ()
    assert view.suspects(12.0) == ("x",)
    assert view.load("w1").requests == 1
    view.apply(Gone(Version(1, 2), "x", Cause.DEADLINE), 13.0)
    assert view.suspects(14.0) == ()
    assert view.load("w1") == NOTHING


def test_an_own_booking_counts_before_the_plane_knows_it_and_once_when_it_does() -> None:
    view = folded()
    view.lay(booking("x"), 1.0)
    assert view.load("w1").requests == 1
    view.apply(Booked(Version(1, 1), booking("x", tokens=60)), 1.1)
    assert view.load("w1") == Amount(100, 7)
    view.lift("x", 1.2)
    assert view.load("w1") == Amount(60, 7)


def test_an_own_end_hides_a_booking_until_the_plane_says_gone() -> None:
    view = folded(booking("x"))
    view.hide("x", 1.0)
    assert view.load("w1") == NOTHING
    assert view.hidden("x")
    view.apply(Gone(Version(1, 1), "x", Cause.ENDED), 1.1)
    view.lift("x", 1.1)
    assert view.booking("x") is None


def test_attempts_of_one_request_key_are_found_together_and_an_empty_key_joins_nothing() -> None:
    first, second = booking("x", key="k", attempt=1), booking("y", key="k", attempt=2)
    view = folded(second, first, booking("z"), booking("u"))
    assert view.by_key("k") == (first, second)
    assert view.by_key("") == ()
    view.apply(Gone(Version(1, 1), "x", Cause.ENDED), 1.0)
    assert view.by_key("k") == (second,)


def test_of_very_many_attempts_the_latest_are_looked_at_and_a_change_of_an_old_one_moves_none() -> None:
    view = View()
    for number in range(1, 1001):
        view.lay(booking(f"b{number}", key="k", attempt=number), 1.0)
    view.lay(replace(booking("b1", key="k", attempt=1), amount=Amount(0, 1)), 2.0)
    latest = [one.attempt for one in view.by_key("k")]
    assert latest == list(range(1001 - SHOWN_ATTEMPTS, 1001))
    for number in range(10, 1001):
        view.hide(f"b{number}", 3.0)
    assert [one.attempt for one in view.by_key("k")] == list(range(1, 10))


def test_an_old_epoch_counts_until_its_owner_has_booked_again() -> None:
    view = folded(booking("x"), booking("y", owner=B))
    members = (Member(A, {}, rebooked=False), Member(B, {}, rebooked=False))
    view.reset(snapshot(0, epoch=2, members=members), 1.0)
    assert view.load("w1").requests == 2
    view.apply(Booked(Version(2, 1), booking("x", tokens=50)), 2.0)
    assert view.load("w1") == Amount(150, 14, 2)
    view.apply(Rebooked(Version(2, 2), A), 2.0)
    view.apply(Rebooked(Version(2, 3), B), 2.0)
    assert view.load("w1") == Amount(50, 7, 1)


def test_an_owner_that_joined_the_new_epoch_is_waited_for_longer_than_its_lease() -> None:
    view = folded(booking("x"))
    member = Member(A, {}, rebooked=False)
    view.reset(snapshot(0, epoch=2, members=(member,)), 1.0)
    view.members_seen((member,), 60.0)
    assert view.load("w1").requests == 1
    view.apply(OwnerLapsed(Version(2, 1), A, 30.0), 61.0)
    assert view.load("w1") == NOTHING


def test_an_owner_that_never_joins_the_new_epoch_is_believed_for_its_lease() -> None:
    view = folded(booking("x"))
    view.reset(snapshot(0, epoch=2), 1.0)
    view.members_seen((), 4.9)
    assert view.load("w1").requests == 1
    view.members_seen((), 5.0)
    assert view.load("w1") == NOTHING


def test_a_member_that_declared_before_the_picture_leaves_nothing_of_the_old_epoch() -> None:
    view = folded(booking("x"), booking("y", owner=B))
    view.reset(snapshot(9, booking("z"), epoch=2, members=(Member(A, {}, rebooked=True),)), 1.0)
    assert sorted(view.bookings()) == ["y", "z"]


def test_an_epoch_that_went_backwards_is_a_new_one_too() -> None:
    view = folded(booking("x"))
    view.reset(snapshot(3, booking("y"), epoch=0), 1.0)
    assert view.version == Version(0, 3)
    assert sorted(view.bookings()) == ["x", "y"]


def test_listeners_hear_final_sums_once_and_never_a_zero_between_two_pictures() -> None:
    view = folded(booking("x"), booking("y"))
    heard: list[tuple[str, int, int, float]] = []
    view.listen(lambda worker, requests, blocks, now: heard.append((worker, requests, blocks, now)))
    view.reset(snapshot(5, booking("x", tokens=3), booking("z", worker="w2")), 2.0)
    assert sorted(heard) == [("w1", 1, 7, 2.0), ("w2", 1, 7, 2.0)]
    heard.clear()
    view.reset(snapshot(6, booking("x", tokens=3), booking("z", worker="w2")), 3.0)
    assert heard == []


def _random_change(rng: random.Random, version: Version, naive: dict[str, Booking]) -> object:
    kind = rng.choice(["book", "book", "gone", "lapse"])
    owner = rng.choice([A, B])
    if kind == "book":
        one = booking(
            f"b{rng.randrange(8)}", rng.choice(["w1", "w2"]), owner, rng.randrange(9), rng.randrange(9)
        )
        if rng.random() < 0.3:
            one = replace(one, state=State.DRAINING, drain_left=1.0)
        naive[one.id] = one
        return Booked(version, one)
    if kind == "gone":
        id_ = f"b{rng.randrange(8)}"
        naive.pop(id_, None)
        return Gone(version, id_, Cause.ENDED)
    for id_, one in naive.items():
        if one.owner == owner and one.state is State.ACTIVE:
            naive[id_] = replace(one, state=State.DRAINING, cause=Cause.LEASE, drain_left=3.0)
    return OwnerLapsed(version, owner, 3.0)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 48), steps=st.integers(1, 60))
def test_the_view_equals_a_naive_fold_and_its_sums_its_bookings_at_every_step(seed: int, steps: int) -> None:
    rng, view = random.Random(seed), folded()
    naive: dict[str, Booking] = {}
    own: dict[str, Booking | None] = {}
    number = 0
    for step in range(steps):
        act = rng.choice(["change", "change", "change", "lay", "hide", "lift", "reset"])
        id_ = f"b{rng.randrange(8)}"
        if act == "change":
            number += 1
            assert view.apply(_random_change(rng, Version(1, number), naive), step)  # type: ignore[arg-type]
        elif act == "lay":
            own[id_] = booking(id_, rng.choice(["w1", "w3"]), A, rng.randrange(9))
            view.lay(own[id_], step)  # type: ignore[arg-type]
        elif act == "hide":
            own[id_] = None
            view.hide(id_, step)
        elif act == "lift":
            own.pop(id_, None)
            view.lift(id_, step)
        else:
            number += 3
            view.reset(snapshot(number, *naive.values()), step)
        expected = {key: one for key, one in {**naive, **own}.items() if one is not None}
        assert dict(view.bookings()) == expected
        assert dict(view.loads()) == summed(view)
