"""What a heartbeat tells of the members, against a feed that is behind it."""

from __future__ import annotations

import random

from stateplane.booking import (
    Amount,
    Beat,
    Booked,
    Booking,
    Member,
    Owner,
    Rebooked,
    Rules,
    Snapshot,
    Version,
)
from stateplane.link import Link
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.table import Table
from stateplane.view import View

ME, OTHER = Owner("a", "1"), Owner("b", "1")


def test_an_older_epochs_bookings_stay_until_the_feed_has_brought_what_their_owner_booked_again() -> None:
    rules, view = Rules(), View()
    table = Table(ME, view, rules=rules, capacity=16)
    link = Link(
        MemoryPlane(MemoryStore(rules), owner=ME), table, rules=rules, info={}, clock=lambda: 10.0,
        parallel=4, timeout=0.25, rng=random.Random(1),
    )  # fmt: skip
    booking = Booking("1", "", "w", OTHER, Amount(10, 2), term=1)
    view.reset(Snapshot(Version(1, 5), (booking,), ()), 9.0)
    view.reset(Snapshot(Version(2, 1), (), (Member(OTHER, rebooked=False),)), 9.0)
    assert view.load("w") == Amount(10, 2)

    link._heard(Beat(Version(2, 3), (Member(OTHER, rebooked=True),)))
    assert view.load("w") == Amount(10, 2)
    view.apply(Booked(Version(2, 2), booking), 10.0)
    view.apply(Rebooked(Version(2, 3), OTHER), 10.0)
    assert view.load("w") == Amount(10, 2)
    assert not view.kept()


def test_a_heartbeat_that_the_view_is_level_with_lets_go_of_them() -> None:
    rules, view = Rules(), View()
    table = Table(ME, view, rules=rules, capacity=16)
    link = Link(
        MemoryPlane(MemoryStore(rules), owner=ME), table, rules=rules, info={}, clock=lambda: 10.0,
        parallel=4, timeout=0.25, rng=random.Random(1),
    )  # fmt: skip
    view.reset(Snapshot(Version(1, 5), (Booking("1", "", "w", OTHER, Amount(10, 2), term=1),), ()), 9.0)
    view.reset(Snapshot(Version(2, 3), (), (Member(OTHER, rebooked=False),)), 9.0)
    link._heard(Beat(Version(2, 3), (Member(OTHER, rebooked=True),)))
    assert not view.kept()
    assert view.loads() == {}
