"""What a replica answers to the plane's word on its own bookings, at once and without a tick between."""

from __future__ import annotations

from dataclasses import replace

from stateplane.booking import (
    Amount,
    Booked,
    Booking,
    Cause,
    Gone,
    Outcome,
    Owner,
    OwnerLapsed,
    Rules,
    Snapshot,
    State,
    Status,
    Version,
)
from stateplane.calls import Adjust, Book, Call, Drain, Move, Reclaim, Release
from stateplane.claims import Claims
from stateplane.hearing import Hearing
from stateplane.table import Table
from stateplane.view import View

ME, OTHER = Owner("a", "1"), Owner("b", "1")
SMALL = Amount(100, 7)


class Hand:
    """One replica's claims, joined to an empty plane at version 1.0."""

    def __init__(self, capacity: int = 100) -> None:
        self.view = View()
        self.table = Table(ME, self.view, rules=Rules(), capacity=capacity)
        self.claims = Claims(self.table)
        self.hearing = Hearing(self.table)
        self.hearing.fold(Snapshot(Version(1, 0), (), ()), 0.0)

    def next(self) -> Call | None:
        id_ = self.table.outbox.take()
        return None if id_ is None else self.claims.begin(id_, 0.0)

    def book(self, id_: str = "x") -> Book:
        self.claims.book(id_, key="", worker="w1", amount=SMALL, now=0.0)
        call = self.next()
        assert isinstance(call, Book)
        return call

    def booked(self, id_: str = "x", number: int = 1) -> Booking:
        """Booked, answered and heard."""
        call = self.book(id_)
        standing = replace(call.booking, term=1)
        self.answer(call, Outcome(Status.DONE, standing, version=Version(1, number)))
        assert self.hearing.hear(Booked(Version(1, number), standing), 0.0)
        return standing

    def answer(self, call: Call, outcome: Outcome) -> None:
        id_ = call.booking.id if isinstance(call, Book) else call.id
        self.claims.answered(id_, call, outcome, 0.0)


def test_a_lapse_of_our_own_lease_is_contradicted_at_once() -> None:
    hand = Hand()
    hand.booked()
    assert hand.hearing.hear(OwnerLapsed(Version(1, 2), ME, 30.0), 0.0)
    assert hand.next() == Reclaim("x")
    assert hand.view.bookings()["x"].state is State.ACTIVE


def test_a_booking_gone_by_deadline_while_we_hold_its_stream_never_reads_zero() -> None:
    hand = Hand()
    hand.booked()
    heard: list[int] = []
    hand.view.listen(lambda worker, requests, blocks, now: heard.append(requests))
    assert hand.hearing.hear(Gone(Version(1, 2), "x", Cause.DEADLINE), 0.0)
    assert heard == []
    assert hand.next() == Reclaim("x")


def test_a_proven_end_told_by_others_is_believed_and_said_no_more() -> None:
    hand = Hand()
    hand.booked()
    assert hand.hearing.hear(Gone(Version(1, 2), "x", Cause.LOGGED), 0.0)
    assert hand.view.bookings() == {}
    hand.claims.end("x", Cause.ENDED, 0.0)
    assert hand.next() is None


def test_an_answer_that_comes_after_later_news_changes_nothing() -> None:
    hand = Hand()
    call = hand.book()
    standing = replace(call.booking, term=1)
    hand.hearing.hear(Booked(Version(1, 1), standing), 0.0)
    hand.hearing.hear(Gone(Version(1, 2), "x", Cause.LOGGED), 0.0)
    hand.answer(call, Outcome(Status.DONE, standing, version=Version(1, 1)))
    assert "x" not in hand.table.claims
    assert hand.view.bookings() == {}


def test_an_answer_that_comes_after_an_adoption_does_not_make_it_ours_again() -> None:
    hand = Hand()
    call = hand.book()
    standing = replace(call.booking, term=1)
    adopted = replace(standing, owner=OTHER, term=3)
    hand.hearing.hear(Booked(Version(1, 1), standing), 0.0)
    hand.hearing.hear(Booked(Version(1, 2), adopted), 0.0)
    hand.answer(call, Outcome(Status.DONE, standing, version=Version(1, 1)))
    assert "x" not in hand.table.claims
    assert hand.view.bookings()["x"] == adopted


def test_an_answer_of_an_epoch_that_is_over_is_no_answer() -> None:
    hand = Hand()
    call = hand.book()
    hand.hearing.fold(Snapshot(Version(2, 0), (), ()), 0.0)
    hand.answer(call, Outcome(Status.DONE, replace(call.booking, term=1), version=Version(1, 1)))
    again = hand.next()
    assert isinstance(again, Book)
    assert again.booking.id == "x"
    assert hand.table.owing == 1


def test_a_repeated_operation_keeps_its_number_and_a_newer_one_gets_the_next() -> None:
    hand = Hand()
    hand.booked()
    hand.claims.adjust("x", Amount(0, 7), 0.0)
    first = hand.next()
    assert first == Adjust("x", 1, 1, Amount(0, 7))
    hand.claims.unanswered("x", first, 0.0)
    assert hand.next() == first
    hand.answer(first, Outcome(Status.SAME, replace(hand.view.bookings()["x"], op=1)))
    hand.claims.lose("x", Cause.BROKEN, 0.0)
    assert hand.next() == Drain("x", 1, 2, Cause.BROKEN, 30.0)


def test_moves_made_before_the_book_was_sent_are_told_in_order() -> None:
    hand = Hand()
    hand.claims.book("x", key="", worker="w1", amount=SMALL, now=0.0)
    hand.claims.serve("x", "w2", Amount(80, 7), 0.0)
    hand.claims.serve("x", "w3", Amount(60, 7), 0.0)
    call = hand.next()
    assert isinstance(call, Book)
    assert (call.booking.worker, call.booking.amount) == ("w1", SMALL)
    hand.answer(call, Outcome(Status.DONE, replace(call.booking, term=1), version=Version(1, 1)))
    move = hand.next()
    assert move == Move("x", 1, 1, "w2", Amount(80, 7))
    moved = replace(call.booking, term=2, worker="w2", amount=Amount(80, 7))
    hand.answer(move, Outcome(Status.DONE, moved, version=Version(1, 3)))
    assert hand.next() == Move("x", 2, 1, "w3", Amount(60, 7))
    assert {worker: load.requests for worker, load in hand.view.loads().items()} == {
        "w1": 1,
        "w2": 1,
        "w3": 1,
    }


def test_what_drains_for_us_without_a_claim_is_booked_again_as_draining_in_a_new_epoch() -> None:
    hand = Hand()
    left = Booking(
        "x~1", "", "w1", ME, SMALL, 1, 1, 0, State.DRAINING, Cause.MOVED, superseded=True, drain_left=9.0
    )
    hand.hearing.hear(Booked(Version(1, 1), left), 10.0)
    hand.hearing.fold(Snapshot(Version(2, 0), (), ()), 12.0)
    id_ = hand.table.outbox.take()
    assert id_ == "x~1"
    call = hand.claims.begin(id_, 12.0)
    assert call == Book(replace(left, drain_left=7.0))
    hand.claims.answered(id_, call, Outcome(Status.DONE, left, version=Version(2, 1)), 12.0)
    assert hand.table.owing == 0
    assert "x~1" not in hand.table.claims
    assert hand.view.load("w1") == SMALL


def test_a_booking_that_the_plane_holds_for_us_unknown_to_us_drains_and_one_we_ended_ends() -> None:
    hand = Hand()
    hand.booked("ended")
    hand.claims.end("ended", Cause.ENDED, 0.0)
    call = hand.next()
    assert call == Release("ended", Cause.ENDED, None)
    hand.answer(call, Outcome(Status.DONE, cause=Cause.ENDED, version=Version(1, 2)))
    stray = Booking("stray", "", "w1", ME, SMALL, term=4)
    ended = Booking("ended", "", "w1", ME, SMALL, term=1)
    hand.hearing.fold(Snapshot(Version(2, 5), (stray, ended), ()), 0.0)
    assert hand.view.load("w1").requests == 1
    calls = {type(call) for call in (hand.next(), hand.next())}
    assert calls == {Drain, Release}
    assert hand.table.counts.strays == 2


def test_a_booking_that_brings_no_progress_waits_for_the_next_heartbeat() -> None:
    hand = Hand()
    standing = hand.booked()
    hand.claims.adjust("x", Amount(0, 7), 0.0)
    tries = 0
    while (call := hand.next()) is not None:
        tries += 1
        hand.answer(call, Outcome(Status.STALE, standing))
        assert tries < 20
    assert hand.table.counts.fruitless == 1
    hand.hearing.beat(Version(1, 1), 1.0)
    assert isinstance(hand.next(), Adjust)


def test_an_unsent_booking_that_drains_goes_at_its_deadline_by_our_own_clock() -> None:
    hand = Hand()
    hand.claims.book("x", key="", worker="w1", amount=SMALL, now=0.0)
    hand.claims.lose("x", Cause.BROKEN, 0.0, seconds=10.0)
    hand.hearing.sweep(9.9)
    assert hand.view.load("w1") == SMALL
    hand.hearing.sweep(10.0)
    assert hand.view.bookings() == {}
    assert hand.next() is None


def test_another_replicas_booking_that_we_saw_end_before_its_book_stays_ended() -> None:
    hand = Hand()
    hand.claims.end("y", Cause.LOGGED, 0.0)
    assert hand.view.load("w1").requests == 0
    assert hand.hearing.hear(Booked(Version(1, 1), Booking("y", "", "w1", OTHER, SMALL, term=1)), 0.0)
    assert hand.view.load("w1").requests == 0
    assert hand.next() == Release("y", Cause.LOGGED, None)
