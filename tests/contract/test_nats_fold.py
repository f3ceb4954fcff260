"""The log folded: the same everywhere, from wherever it is taken up."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import SCHEMA, Amount, Booking, Cause, Gap, Owner, Rules, Version
from stateplane.errors import PlaneEpochError, PlaneRefusedError
from stateplane.ledger import Ledger
from stateplane.nats import codec
from stateplane.nats.address import Names, token_of
from stateplane.nats.codec import Body, Command
from stateplane.nats.fold import Counts, Fold
from stateplane.nats.follower import BrokenLogError, position_of

EPOCH = 7
RULES = Rules(lease=3.0, heartbeat=1.0, drain=5.0, superseded_drain=2.0, tombstone=6.0)
OWNERS = ("a", "b", "c")
IDS = ("1", "2", "3", "4")


def command(body: Body, *, owner: str = "a", epoch: int = EPOCH, number: int = 1) -> Command:
    return Command(SCHEMA, f"plane {owner}", number, epoch, (owner, "1"), codec.times_of(RULES), body)


def begun(run: str = "life", epoch: int = EPOCH) -> Fold:
    fold = Fold()
    feed(fold, 1, command(codec.Begin(run, epoch, lose=False)), now=1_000)
    return fold


def feed(fold: Fold, sequence: int, one: Command, *, now: int, counts: Counts | None = None) -> object:
    done = fold.apply(sequence, now * 1_000_000, codec.pack(one), now=now, counts=counts or Counts())
    return done[1] if done is not None else None


def any_body(rng: random.Random) -> Body:
    id_, term, op = rng.choice(IDS), rng.randint(1, 3), rng.randint(1, 3)
    amount = Amount(rng.randint(0, 50), rng.randint(0, 9))
    booking = Booking(id_, rng.choice(("", "k", "l")), rng.choice("vw"), Owner("x", "x"), amount)
    return rng.choice(
        (
            codec.Book(booking),
            codec.Book(booking),
            codec.Move(id_, term, op, rng.choice("vw"), amount),
            codec.Adjust(id_, term, op, amount),
            codec.Drain(id_, term, op, Cause.BROKEN, rng.choice((None, 0.0, 3.0))),
            codec.Reclaim(id_),
            codec.Release(id_, rng.choice((Cause.ENDED, Cause.EVIDENCE, Cause.EVIDENCE)), term),
            codec.Heartbeat({"digest": "x"}, 2, 0, 0),
            codec.Reap(1),
            codec.Join({}, 2),
            codec.Rebook(),
            codec.Leave(),
        )
    )


@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 120))
def test_a_fold_taken_up_from_its_checkpoint_goes_on_in_the_same_way(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    whole, now = begun(), 1_000
    taken_up = begun()
    for sequence in range(2, steps + 2):
        now += rng.choice((0, 100, 900, 1000, 1000, 1400, 9000))
        one = command(any_body(rng), owner=rng.choice(OWNERS), number=sequence)
        assert feed(whole, sequence, one, now=now) == feed(taken_up, sequence, one, now=now)
        assert whole.ledger is not None
        assert taken_up.ledger is not None
        if rng.random() < 0.3:
            whole.ledger.snapshot(now=now)  # looking must change nothing
        if rng.random() < 0.3:
            state = codec.state_of(codec.pack_state(taken_up.ledger.state()))
            taken_up = Fold(sequence=sequence, stamp=0, run=taken_up.run, ledger=Ledger.of(state))
        assert whole.ledger is not None
        assert taken_up.ledger is not None
        assert whole.ledger.sums() == taken_up.ledger.sums()
        assert whole.ledger.version == taken_up.ledger.version
        pictures = [fold.ledger.snapshot(now=now) for fold in (whole, taken_up) if fold.ledger]
        assert sorted(map(repr, pictures[0].bookings)) == sorted(map(repr, pictures[1].bookings))
        assert pictures[0].members == pictures[1].members


def test_a_command_of_another_epoch_is_answered_by_its_error_and_changes_nothing() -> None:
    fold = begun()
    book = codec.Book(Booking("1", "", "w", Owner("a", "1"), Amount(1, 1)))
    assert isinstance(feed(fold, 2, command(book, epoch=EPOCH - 1), now=2_000), PlaneEpochError)
    assert fold.ledger is not None
    assert fold.ledger.sums() == {}


def test_one_life_of_the_server_begins_one_epoch_however_often_it_is_told() -> None:
    fold = begun("life one")
    feed(fold, 2, command(codec.Begin("life two", 3, lose=False)), now=2_000)
    assert fold.epoch == EPOCH + 1
    feed(fold, 3, command(codec.Begin("life two", 99, lose=False)), now=2_000)
    assert fold.epoch == EPOCH + 1


def test_an_epoch_that_loses_all_is_the_same_for_who_knew_more_and_who_did_not() -> None:
    knew, fresh = begun(), Fold(sequence=8)
    for sequence in range(2, 9):
        feed(knew, sequence, command(codec.Join({}, 9)), now=2_000)
    for fold in (knew, fresh):
        feed(fold, 9, command(codec.Begin("cut", 50, lose=True)), now=3_000)
    assert knew.ledger is not None
    assert fresh.ledger is not None
    assert codec.pack_state(knew.ledger.state()) == codec.pack_state(fresh.ledger.state())


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\xc1", b"\x90", b"\x91\xa1x", msgspec.msgpack.encode({"a": 1}), b"\x93\x01\x02\x03"],
)
def test_a_foreign_message_is_passed_over_and_counted(data: bytes) -> None:
    fold, counts = begun(), Counts()
    assert fold.apply(2, 0, data, now=2_000, counts=counts) is None
    assert (fold.sequence, counts.foreign) == (2, 1)


def test_a_message_of_a_newer_schema_is_never_passed_over() -> None:
    newer = msgspec.msgpack.encode([SCHEMA + 1, "something", {"of": "the future"}])
    with pytest.raises(PlaneRefusedError, match="upgrade the replica"):
        begun().apply(2, 0, newer, now=2_000, counts=Counts())


@pytest.mark.parametrize(
    "body",
    [
        codec.Book(Booking("", "", "w", Owner("a", "1"), Amount(1, 1))),
        codec.Book(Booking("1", "", "w", Owner("a", "1"), Amount(-5, 1))),
        codec.Adjust("1", 1, 0, Amount(1, 1)),
        codec.Release("1", Cause.BROKEN, None),
        codec.Drain("1", 1, 1, Cause.BROKEN, float("nan")),
    ],
)
def test_a_hostile_command_harms_nothing_and_is_the_same_fault_everywhere(body: Body) -> None:
    fold, counts = begun(), Counts()
    feed(fold, 2, command(codec.Join({}, 9)), now=2_000)
    feed(fold, 3, command(codec.Book(Booking("1", "", "w", Owner("a", "1"), Amount(1, 1)))), now=2_000)
    feed(fold, 4, command(body), now=2_000, counts=counts)
    assert counts.faults == 1
    assert fold.ledger is not None
    assert fold.ledger.sums() == {"w": Amount(1, 1)}
    assert fold.sequence == 4


def test_replicas_that_come_to_different_numbers_are_told() -> None:
    fold, counts = begun(), Counts()
    feed(fold, 2, command(codec.Join({}, 9)), now=2_000)
    feed(fold, 3, command(codec.Heartbeat({}, 9, 2, 0)), now=2_100, counts=counts)
    assert counts.diverged == 0
    feed(fold, 4, command(codec.Heartbeat({}, 9, 2, 5)), now=2_200, counts=counts)
    assert counts.diverged == 1


def test_changes_are_kept_for_a_watcher_that_is_a_little_behind() -> None:
    fold = begun()
    for n in range(3):
        booking = Booking(str(n), "", "w", Owner("a", "1"), Amount(1, 1))
        feed(fold, n + 2, command(codec.Book(booking)), now=2_000)
    assert [
        change.version.number for change in fold.since(Version(EPOCH, 1)) if not isinstance(change, Gap)
    ] == [2, 3]
    assert fold.since(Version(EPOCH, 3)) == []
    for after in (Version(EPOCH - 1, 1), Version(EPOCH, 4)):
        (gap,) = fold.since(after)
        assert isinstance(gap, Gap)
    fold.forget()
    assert isinstance(fold.since(Version(EPOCH, 1))[0], Gap)


def test_a_message_tells_its_place_in_the_old_and_the_new_form() -> None:
    assert position_of("$JS.ACK.log.consumer.1.42.7.1700000000000000001.0") == (42, 1700000000000000001)
    assert position_of("$JS.ACK._.hash.log.consumer.1.42.7.1700000000000000001.0.x") == (
        42,
        1700000000000000001,
    )
    for reply in ("", "inbox.1", "$JS.ACK.log.consumer.1.x.7.y.0"):
        with pytest.raises(BrokenLogError):
            position_of(reply)


@given(one=st.text(max_size=400), other=st.text(max_size=400))
def test_pools_have_streams_of_their_own(one: str, other: str) -> None:
    assert (token_of(one) == token_of(other)) == (one == other)
    for name in (Names.of(one).log, Names.of(one).bucket):
        assert name.replace("-", "").replace("_", "").isalnum()
        assert name.isascii()
        assert len(name) < 250
