"""A replica's cursor against a bridge's publisher, over a channel that loses, doubles, delays and turns around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from picker.events import cursor as cursors
from picker.events.bridge.changes import Announced
from picker.events.bridge.publisher import Counts, RankPublisher
from picker.events.cursor import Cursor, Step
from picker.events.records import SCHEMA, Answer, Ask, Epoch, Event, decode_answer, decode_event


class Bridge:
    """Holds blocks, and says so."""

    def __init__(self, keep: int, piece: int = 4096) -> None:
        self.publisher = RankPublisher(keep=keep, piece_bytes=lambda: piece, counts=Counts())
        self.announced = Announced()

    def begin(self, epoch: Epoch) -> list[bytes]:
        self.announced = Announced()
        return self.publisher.begin(epoch, self.announced)

    def toggle(self, blocks: set[int]) -> list[bytes]:
        for block in sorted(blocks):
            if block in set(self.announced.tier(0)):
                self.announced.take(block, 0)
            else:
                self.announced.put(block, 0)
        return self.publisher.emit(self.announced.collect())


class Replica:
    def __init__(self) -> None:
        self.cursor = Cursor(cursors.Counts())
        self.held: set[int] = set()

    def step(self, step: Step) -> None:
        if step.clear:
            self.held.clear()
        for event in step.apply:
            if event.kind == "stored":
                self.held.update(event.hashes)
            else:
                self.held.difference_update(event.hashes)

    def hear(self, message: bytes) -> None:
        event = decode_event(message)
        assert isinstance(event, Event)
        self.step(self.cursor.take(event))

    def accept(self, messages: list[bytes], asked: Epoch | None, between: Sequence[bytes] = ()) -> None:
        pieces: list[Answer] = []
        for message in messages:
            piece = decode_answer(message)
            assert isinstance(piece, Answer)
            pieces.append(piece)
        if not self.cursor.accept(pieces[0], asked):
            return
        if pieces[0].kind == "events":
            for piece in pieces:
                for data in piece.events:
                    self.hear(data)
            self.step(self.cursor.settle(pieces[-1]))
            return
        life = self.cursor.begin_snapshot(pieces[0].epoch)
        self.held.clear()
        for message in between:
            self.hear(message)
        for piece in pieces:
            for part in piece.blocks:
                if self.cursor.lives != life:
                    return
                self.held.update(part.hashes)
        self.step(self.cursor.end_snapshot(pieces[-1], life))

    def recover(self, bridge: Bridge) -> None:
        for _ in range(20):
            if self.cursor.current:
                return
            self.accept(list(bridge.publisher.answers(self.cursor.ask())), self.cursor.epoch)
        raise AssertionError("never current")


moves = st.one_of(
    st.tuples(st.just("toggle"), st.sets(st.integers(0, 12), min_size=1, max_size=6)),
    st.tuples(st.just("deliver"), st.integers(0, 10_000)),
    st.tuples(st.just("double"), st.integers(0, 10_000)),
    st.tuples(st.just("lose"), st.integers(0, 10_000)),
    st.tuples(st.just("beat")),
    st.tuples(st.just("ask"), st.integers(0, 8)),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("doubt")),
)


@settings(max_examples=500)
@given(st.integers(1, 8), st.lists(moves, max_size=60))
def test_whatever_the_channel_does_one_answer_in_the_end_makes_the_replica_equal(
    keep: int, steps: list[tuple[Any, ...]]
) -> None:
    bridge, replica = Bridge(keep), Replica()
    wire = bridge.begin(Epoch(100, 1))
    asked: list[tuple[list[bytes], Epoch | None]] = []
    life = 1
    for what, *how in steps:
        if what == "toggle":
            wire += bridge.toggle(how[0])
        elif what in ("deliver", "double", "lose") and wire:
            place = how[0] % len(wire)
            message = wire[place] if what == "double" else wire.pop(place)
            if what != "lose":
                replica.hear(message)
        elif what == "beat":
            wire.append(bridge.publisher.beat())
        elif what == "ask":
            asked.append((list(bridge.publisher.answers(replica.cursor.ask())), replica.cursor.epoch))
            if len(asked) > 1:
                between, wire = wire[: how[0]], wire[how[0] :]
                replica.accept(*asked.pop(0), between)
        elif what == "restart":
            life += 1
            # A clock that was set back: the newer epoch looks older.
            wire += bridge.begin(Epoch(100 - life if how[0] else 100 + life, life))
        elif what == "doubt":
            replica.cursor.doubt()
    replica.hear(bridge.publisher.beat())
    replica.recover(bridge)
    assert replica.held == set(bridge.announced.tier(0))
    assert replica.cursor.epoch == bridge.publisher.epoch
    for message in wire:
        replica.hear(message)
    replica.hear(bridge.publisher.beat())
    replica.recover(bridge)
    assert replica.held == set(bridge.announced.tier(0)), "late messages change nothing"


def test_an_event_seen_twice_is_applied_once() -> None:
    bridge, replica = Bridge(8), Replica()
    messages = bridge.begin(Epoch(1, 1)) + bridge.toggle({1, 2})
    for message in [*messages, *messages]:
        replica.hear(message)
    assert replica.cursor.counts.applied == 2
    assert replica.cursor.counts.old == 2


def test_a_gap_that_fills_by_itself_needs_no_answer() -> None:
    bridge, replica = Bridge(8), Replica()
    (begin,), (one,), (two,) = bridge.begin(Epoch(1, 1)), bridge.toggle({1}), bridge.toggle({2})
    replica.hear(begin)
    replica.hear(two)
    assert not replica.cursor.current
    replica.hear(one)
    assert replica.cursor.current
    assert replica.held == {1, 2}


def test_a_beat_shows_a_lost_last_event() -> None:
    bridge, replica = Bridge(8), Replica()
    replica.hear(bridge.begin(Epoch(1, 1))[0])
    bridge.toggle({1})
    replica.hear(bridge.publisher.beat())
    assert not replica.cursor.current
    assert replica.cursor.ask() == Ask(SCHEMA, 1, 1, 2)


def test_late_events_of_an_older_epoch_are_dropped() -> None:
    bridge, replica = Bridge(8), Replica()
    old = bridge.begin(Epoch(1, 1)) + bridge.toggle({1})
    for message in [*old, *bridge.begin(Epoch(1, 2)), *old]:
        replica.hear(message)
    assert replica.held == set()
    assert replica.cursor.counts.left_epoch == 2


def test_missing_events_come_from_the_kept_ones_and_older_gaps_from_a_snapshot() -> None:
    bridge = Bridge(3)
    bridge.begin(Epoch(1, 1))
    for block in range(10):
        bridge.toggle({block})
    kinds = []
    for wanted in (12, 11, 9, 8, 0, 13):
        pieces = [decode_answer(each) for each in bridge.publisher.answers(Ask(SCHEMA, 1, 1, wanted))]
        kinds.append(pieces[0].kind if isinstance(pieces[0], Answer) else "")
    assert kinds == ["events", "events", "events", "snapshot", "snapshot", "snapshot"]


def test_a_snapshot_comes_in_pieces_below_the_limit() -> None:
    bridge = Bridge(1, piece=4096)
    bridge.begin(Epoch(2**63, 2**63))
    bridge.toggle({2**64 - 1 - each for each in range(5000)})
    pieces = list(bridge.publisher.answers(Ask(SCHEMA, 0, 0, 0)))
    assert len(pieces) > 10
    assert max(map(len, pieces)) <= 4096
    decoded = [decode_answer(each) for each in pieces]
    assert [each.last for each in decoded if isinstance(each, Answer)] == [False] * (len(pieces) - 1) + [True]


def test_events_are_cut_below_the_limit_and_replayed_in_pieces_below_it() -> None:
    bridge = Bridge(100, piece=4096)
    bridge.begin(Epoch(1, 1))
    messages = bridge.toggle({2**64 - 1 - each for each in range(5000)})
    assert max(map(len, messages)) <= 4096
    pieces = list(bridge.publisher.answers(Ask(SCHEMA, 1, 1, 1)))
    assert max(map(len, pieces)) <= 4096
    replica = Replica()
    replica.hear(messages[-1])
    replica.recover(bridge)
    assert len(replica.held) == 5000


def test_a_bridge_that_rebuilds_says_so() -> None:
    bridge = Bridge(8)
    bridge.begin(Epoch(1, 1))
    bridge.publisher.busy = True
    (only,) = [decode_answer(each) for each in bridge.publisher.answers(Ask(SCHEMA, 0, 0, 0))]
    assert isinstance(only, Answer)
    assert only.kind == "busy"


def test_early_events_are_bounded_and_the_rest_is_asked_for_again() -> None:
    bridge, replica = Bridge(5000), Replica()
    replica.hear(bridge.begin(Epoch(1, 1))[0])
    bridge.toggle({0})
    for block in range(1, 1500):
        replica.hear(bridge.toggle({block})[0])
    assert replica.cursor.counts.early_dropped > 0
    replica.recover(bridge)
    assert replica.held == set(range(1500))
