from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.events import records
from picker.events.records import SCHEMA, Answer, Ask, Blocks, Epoch, Event, Fault

u64 = st.integers(0, 2**64 - 1)
hashes = st.lists(u64, max_size=20)
tiers = st.integers(0, 2)

events = st.builds(
    Event, st.just(SCHEMA), u64, u64, u64, st.sampled_from(["stored", "removed", "cleared", "beat"]),
    hashes, tiers, st.booleans(), st.text(max_size=20),
)  # fmt: skip
answers = st.builds(
    Answer, st.just(SCHEMA), u64, u64, st.sampled_from(["events", "snapshot", "busy"]), u64, u64,
    st.booleans(), st.booleans(), st.text(max_size=20), st.lists(st.binary(max_size=20), max_size=5),
    st.lists(st.builds(Blocks, tiers, hashes), max_size=3),
)  # fmt: skip
READERS: list[Any] = [records.decode_event, records.decode_ask, records.decode_answer]


@given(events)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert records.decode_event(records.encode(event)) == event


@given(answers)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    assert records.decode_answer(records.encode(answer)) == answer


@given(st.builds(Ask, st.just(SCHEMA), u64, u64, u64))
def test_a_question_comes_back_as_it_was(ask: Ask) -> None:
    assert records.decode_ask(records.encode(ask)) == ask


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    for read in READERS:
        read(data)


@given(events, st.data())
def test_a_damaged_event_never_raises(event: Event, data: st.DataObject) -> None:
    raw = bytearray(records.encode(event))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    records.decode_event(bytes(raw))
    records.decode_event(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(plain, max_size=9))
def test_well_formed_nonsense_never_raises(value: list[Any]) -> None:
    for read in READERS:
        read(msgspec.msgpack.encode(value))


def test_deep_nesting_never_raises() -> None:
    for read in READERS:
        assert isinstance(read(b"\x91" * 100_000), Fault)


def test_elements_of_a_later_version_are_ignored() -> None:
    raw = msgspec.msgpack.decode(records.encode(Event(SCHEMA, 1, 2, 3, "stored", [4], 0)))
    event = records.decode_event(msgspec.msgpack.encode([*raw, "new", {"more": 1}]))
    assert event == Event(SCHEMA, 1, 2, 3, "stored", [4], 0)


@pytest.mark.parametrize(
    "shape", [[SCHEMA + 1, 0, 0, 0, "stored"], [SCHEMA + 1, {"quite": "other"}], [0, 1, 2, 3, "beat"]]
)
def test_an_unknown_schema_is_told_from_garbage(shape: list[Any]) -> None:
    assert records.decode_event(msgspec.msgpack.encode(shape)) == Fault("schema")


@pytest.mark.parametrize(
    "shape",
    [
        [SCHEMA, 1, 2, 3, "exploded"],
        [SCHEMA, 1, 2, -3, "stored"],
        [SCHEMA, 1, 2, 3, "stored", [-1]],
        [SCHEMA, 1, 2, 3, "stored", [1], 3],
        [SCHEMA, 1, 2, 3, "stored", [0] * (records.MAX_EVENT_HASHES + 1)],
        {"schema": SCHEMA},
    ],
)
def test_what_is_out_of_bounds_is_malformed(shape: Any) -> None:
    assert records.decode_event(msgspec.msgpack.encode(shape)) == Fault("malformed")


def test_a_message_beyond_the_limit_is_not_even_read() -> None:
    assert records.decode_event(bytes(records.MAX_MESSAGE_BYTES + 1)) == Fault("size")


def test_epochs_are_ordered_by_the_bridges_start_first() -> None:
    assert Epoch(bridge=2, engine=1) > Epoch(bridge=1, engine=9)
    assert Epoch(bridge=2, engine=2) > Epoch(bridge=2, engine=1)
