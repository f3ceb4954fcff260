"""Sums and lists per worker stay what counting all bookings anew gives, through every change."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import NOTHING, Amount, Booking, Owner, State
from stateplane.tally import Tally

WORKERS = ("10.0.0.1:8000", "10.0.0.2:8000")
OWNERS = (Owner("one", "1"), Owner("two", "2"))

bookings = st.builds(
    Booking,
    id=st.sampled_from("abcd"),
    key=st.sampled_from(("", "k")),
    worker=st.sampled_from(WORKERS),
    owner=st.sampled_from(OWNERS),
    amount=st.builds(Amount, st.integers(0, 9), st.integers(0, 9)),
    state=st.sampled_from(State),
)
changes = st.one_of(bookings, st.sampled_from("abcd"))


@given(st.lists(changes, max_size=30))
def test_what_stands_on_a_worker_is_what_counting_all_anew_gives(made: list[Booking | str]) -> None:
    tally, stand = Tally(OWNERS[0]), dict[str, Booking]()
    for change in made:
        if isinstance(change, str):
            stand.pop(change, None)
            tally.put_one(change, None, 0.0)
        else:
            stand[change.id] = change
            tally.put_one(change.id, change, 0.0)
        for worker in WORKERS:
            there = [one for one in stand.values() if one.worker == worker]
            assert {one.id: one for one in tally.on(worker)} == {one.id: one for one in there}
            load = tally.loads.get(worker, NOTHING)
            assert load.requests == sum(one.amount.requests for one in there)
            assert load.blocks == sum(one.amount.blocks for one in there)


def test_a_workers_bookings_are_the_same_object_until_one_of_them_changes() -> None:
    tally = Tally()
    first = Booking("a", "", WORKERS[0], OWNERS[0], Amount(1, 1))
    tally.put_one("a", first, 0.0)
    seen = tally.on(WORKERS[0])
    tally.put_one("b", Booking("b", "", WORKERS[1], OWNERS[0], Amount(1, 1)), 0.0)
    assert tally.on(WORKERS[0]) is seen
    tally.put_one("a", replace(first, state=State.DRAINING), 0.0)
    assert [one.state for one in tally.on(WORKERS[0])] == [State.DRAINING]


@given(st.lists(changes, max_size=30))
def test_every_listener_ends_with_the_sums_and_own_sums_are_those_of_own_bookings(
    made: list[Booking | str],
) -> None:
    tally, heard = Tally(OWNERS[0]), dict[str, tuple[int, int]]()
    tally.listen(lambda worker, requests, blocks, _now: heard.update({worker: (requests, blocks)}))
    for change in made:
        if isinstance(change, str):
            tally.put_one(change, None, 0.0)
        else:
            tally.put(((change.id, change),), 0.0)
        for worker in WORKERS:
            load = tally.load(worker)
            assert heard.get(worker, (0, 0)) == (load.requests, load.blocks)
            own = [
                one.amount
                for one in tally.bookings.values()
                if (one.worker, one.owner) == (worker, OWNERS[0])
            ]
            assert tally.own(worker) == sum(own, NOTHING)
            assert (worker in tally.loads) == (load != NOTHING)


@given(st.lists(changes, max_size=30))
def test_the_bookings_of_a_key_are_those_that_have_it_by_attempt(made: list[Booking | str]) -> None:
    tally = Tally()
    for change in made:
        if isinstance(change, str):
            tally.put_one(change, None, 0.0)
        else:
            tally.put_one(change.id, change, 0.0)
    found = [one for one in tally.bookings.values() if one.key == "k"]
    assert list(tally.by_key("k")) == sorted(found, key=lambda one: (one.attempt, one.id))
    assert tally.by_key("") == ()
