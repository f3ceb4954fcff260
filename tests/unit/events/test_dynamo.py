"""Dynamo's own records: every shape of them, one rank's numbers and recoveries, and hostile bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.core.blocks import block_hash, chain, sequence_hashes
from picker.events.bridge.engine_events import Cleared, Removed, Stored
from picker.events.bridge.publisher import Counts as PublisherCounts
from picker.events.dynamo.rank import MAX_EARLY, Counts, DynamoRank
from picker.events.dynamo.source import instances
from picker.events.dynamo.wire import Answered, Told, decode_answer, decode_events, encode_query
from picker.events.records import Epoch, Event, decode_event
from picker.settings import SettingsError

INSTANCE = 7587884888253033398
STORED = {
    "worker_id": INSTANCE,
    "storage_tier": "device",
    "residency_domain": "worker",
    "event": {
        "event_id": 4,
        "dp_rank": 1,
        "data": {
            "stored": {
                "parent_hash": None,
                "start_position": None,
                "blocks": [
                    {"block_hash": 11, "tokens_hash": 21, "mm_extra_info": None},
                    {"block_hash": 12, "tokens_hash": 22},
                ],
            }
        },
    },
}


def event(number: int, data: Any, *, tier: str = "device", **more: Any) -> dict[str, Any]:
    return {
        "worker_id": 7,
        "storage_tier": tier,
        "event": {"event_id": number, "data": data, "dp_rank": 0},
    } | more


def stored(number: int, *blocks: int, parent: int | None = None) -> dict[str, Any]:
    told = [{"block_hash": each, "tokens_hash": 1000 + each} for each in blocks]
    return event(number, {"stored": {"parent_hash": parent, "blocks": told}})


def removed(number: int, *blocks: int) -> dict[str, Any]:
    return event(number, {"removed": {"block_hashes": list(blocks)}})


def envelope(payload: Any) -> bytes:
    return msgspec.msgpack.encode(
        {"publisher_id": 1, "sequence": 3, "published_at": 5, "topic": "kv-events",
         "payload": payload, "published_at_ns": 6}
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(STORED).encode(),
        json.dumps([STORED]).encode(),
        envelope(msgspec.msgpack.encode(STORED)),
        envelope(list(msgspec.msgpack.encode(STORED))),
        envelope(msgspec.msgpack.encode([STORED])),
        envelope(json.dumps(STORED).encode()),
        msgspec.msgpack.encode(STORED),
    ],
    ids=[
        "json",
        "json list",
        "envelope",
        "envelope of numbers",
        "envelope list",
        "envelope json",
        "bare msgpack",
    ],
)
def test_every_wrapping_is_read(data: bytes) -> None:
    told = decode_events(data)
    assert told.skipped == 0
    (found,) = told.events
    assert (found.worker_id, found.rank, found.number) == (INSTANCE, 1, 4)
    assert isinstance(found.event, Stored)
    assert (found.event.hashes, found.event.owns, found.event.parent, found.event.tier) == (
        (11, 12),
        (21, 22),
        None,
        0,
    )


def test_old_events_without_tier_or_rank_and_with_signed_hashes_are_read() -> None:
    raw = {"worker_id": -1, "event": {"event_id": 0, "data": {"removed": {"block_hashes": [-1]}}}}
    (found,) = decode_events(json.dumps(raw).encode()).events
    assert (found.worker_id, found.rank, found.event) == (2**64 - 1, 0, Removed((2**64 - 1,), 0, None))


@pytest.mark.parametrize(("tier", "number"), [("device", 0), ("host_pinned", 1), ("disk", 2)])
def test_tiers(tier: str, number: int) -> None:
    (found,) = decode_events(
        json.dumps(event(1, {"removed": {"block_hashes": [1]}}, tier=tier)).encode()
    ).events
    assert found.event == Removed((1,), number, None)


@pytest.mark.parametrize(
    "raw",
    [
        event(1, {"removed": {"block_hashes": [1]}}, tier="external"),
        event(1, {"removed": {"block_hashes": [1]}}, residency_domain="cache_owner"),
        event(1, {"unheard": {}}),
        event(
            1,
            {
                "stored": {
                    "parent_hash": None,
                    "start_position": 3,
                    "blocks": [{"block_hash": 1, "tokens_hash": 2}],
                }
            },
        ),
        event(1, {"stored": {"parent_hash": None, "blocks": []}}),
    ],
)
def test_what_is_none_of_ours_still_counts_its_number(raw: dict[str, Any]) -> None:
    (found,) = decode_events(json.dumps(raw).encode()).events
    assert (found.number, found.event) == (1, None)


def test_clears_are_read() -> None:
    (found,) = decode_events(json.dumps(event(1, "cleared")).encode()).events
    assert found.event == Cleared()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"Events": {"events": [STORED], "last_event_id": 4}}, ("events", 1, 4, "")),
        ({"Events": [STORED]}, ("events", 1, None, "")),
        ({"TreeDump": {"events": [], "last_event_id": 9, "reset_scope": "rank"}}, ("dump", 0, 9, "")),
        ({"TreeDump": [STORED]}, ("dump", 1, None, "")),
        (
            {"TooNew": {"requested_start": 5, "requested_end": None, "newest_available": 3}},
            ("none", 0, 3, "TooNew"),
        ),
        ({"InvalidRange": {"start_id": 5, "end_id": 3}}, ("none", 0, None, "InvalidRange")),
        ({"Error": "broken"}, ("none", 0, None, "Error")),
        ({"TreeDumpFailed": {"last_event_id": 1, "message": "x"}}, ("none", 0, None, "TreeDumpFailed")),
        ({"News": 1}, ("none", 0, None, "unknown")),
        ({"Events": {"events": 1}}, ("none", 0, None, "malformed")),
        ([], ("none", 0, None, "malformed")),
    ],
)
def test_answers_of_every_kind_are_read(raw: Any, expected: tuple[str, int, int | None, str]) -> None:
    for data in (json.dumps(raw).encode(), msgspec.msgpack.encode(raw)):
        answer = decode_answer(data)
        assert (answer.kind, len(answer.told.events), answer.last, answer.why) == expected


def test_a_query_says_what_workers_of_every_version_need() -> None:
    assert json.loads(encode_query(7, 1, None)) == {
        "worker_id": 7, "dp_rank": 1, "start_event_id": None, "end_event_id": None,
    }  # fmt: skip


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.floats(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["worker_id", "event", "data", "stored", "removed", "blocks", "block_hashes", "event_id",
                         "payload", "Events", "TreeDump", "events", "last_event_id", "cleared", "TooNew"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(odd | st.binary(max_size=80))
def test_arbitrary_bytes_never_raise(content: Any) -> None:
    data = content if isinstance(content, bytes) else msgspec.msgpack.encode(content)
    decode_events(data)
    decode_answer(data)
    decode_events(b"{" + data)


class Followed:
    """One rank, and what a replica makes of its records."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.held: set[int] = set()
        self._life = 0
        self.rank = DynamoRank(
            "a:1", 7, 0, epoch=self._epoch, keep=16, counts=self.counts, published=PublisherCounts()
        )

    def _epoch(self) -> Epoch:
        self._life += 1
        return Epoch(1, self._life)

    def _tell(self, messages: list[bytes]) -> None:
        for message in messages:
            record = decode_event(message)
            assert isinstance(record, Event)
            if record.kind == "stored":
                self.held.update(record.hashes)
            elif record.kind == "removed":
                self.held.difference_update(record.hashes)
            else:
                self.held.clear()

    def hear(self, *raws: dict[str, Any]) -> None:
        for raw in raws:
            (found,) = decode_events(json.dumps(raw).encode()).events
            self._tell(self.rank.take(found, 0.0))

    def answer(self, raw: Any, *, asked: bool = True) -> bool:
        if asked:
            self.rank.ask()
        messages, settled = self.rank.answered(decode_answer(json.dumps(raw).encode()), 0.0)
        self._tell(messages)
        return settled

    def give_up(self) -> None:
        self._tell(self.rank.give_up(0.0))


def chained(*blocks: int) -> set[int]:
    """Our hashes of engine blocks that follow each other."""
    found: list[int] = []
    for each in blocks:
        found.append(chain(found[-1] if found else None, 1000 + each))
    return set(found)


def dump(last: int | None, *events: Any) -> Any:
    return {"TreeDump": {"events": list(events), "last_event_id": last} if last is not None else list(events)}


def test_the_first_contact_asks_for_everything_and_what_came_meanwhile_follows() -> None:
    followed = Followed()
    followed.hear(stored(5, 3, parent=2))
    assert followed.rank.waiting
    assert followed.answer(dump(4, stored(0, 1, 2)))
    assert followed.held == chained(1, 2, 3)
    assert followed.rank.last == 5
    assert not followed.rank.partial


def test_a_gap_is_mended_by_the_missing_events_alone() -> None:
    followed = Followed()
    followed.answer(dump(1, stored(0, 1)))
    followed.hear(stored(2, 2, parent=1), stored(4, 4, parent=3))
    assert followed.held == chained(1, 2)
    assert followed.answer(
        {"Events": {"events": [stored(3, 3, parent=2), stored(4, 4, parent=3)], "last_event_id": 4}}
    )
    assert followed.held == chained(1, 2, 3, 4)
    assert followed.counts.gaps == 1
    assert followed.counts.dumps == 1


def test_a_dump_from_before_what_is_applied_never_moves_back() -> None:
    followed = Followed()
    followed.answer(dump(1, stored(0, 1)))
    followed.rank.ask()
    followed.hear(stored(2, 2, parent=1), removed(3, 2), stored(4, 5, parent=1))
    assert followed.answer(dump(2, stored(0, 1, 2)), asked=False)
    assert followed.held == chained(1) | chained(1, 5)
    assert followed.rank.last == 4


def test_an_old_workers_dump_without_a_number_is_completed_by_what_came_since() -> None:
    followed = Followed()
    followed.hear(stored(9, 3, parent=2))
    assert followed.answer(dump(None, stored(0, 1, 2, 3)))
    assert followed.held == chained(1, 2, 3)
    assert followed.rank.last == 9
    followed.hear(removed(10, 3))
    assert followed.held == chained(1, 2)


def test_a_worker_that_counts_anew_is_asked_and_then_replaced() -> None:
    followed = Followed()
    followed.answer(dump(50, stored(0, 1, 2)))
    followed.hear(stored(1, 8))
    assert followed.rank.waiting
    assert followed.held == chained(1, 2), "nothing is wiped before it is known better"
    assert followed.answer(dump(1, stored(0, 8)))
    assert followed.held == chained(8)


def test_too_new_means_level_or_a_new_life() -> None:
    followed = Followed()
    followed.answer(dump(5, stored(0, 1)))
    assert followed.answer({"TooNew": {"newest_available": 5}})
    assert not followed.answer({"TooNew": {"newest_available": 2}})
    assert followed.rank.last is None
    assert followed.held == chained(1)


def test_a_worker_that_never_answers_is_partial_and_followed_all_the_same() -> None:
    followed = Followed()
    followed.give_up()
    assert followed.rank.partial
    followed.hear(stored(40, 1), stored(41, 2, parent=1))
    assert followed.held == chained(1, 2)
    followed.hear(stored(42, 4, parent=3))
    assert followed.held == chained(1, 2), "a store whose parent is not known is never hung on the root"
    followed.hear(stored(44, 5, parent=2))
    followed.give_up()
    assert followed.held == set(), "a removal may have been lost"
    assert followed.rank.partial
    followed.hear(event(45, "cleared"), stored(46, 1))
    assert followed.held == chained(1)
    assert not followed.rank.partial


def test_early_events_are_bounded() -> None:
    followed = Followed()
    for number in range(MAX_EARLY + 10):
        followed.hear(stored(number, number))
    assert followed.counts.early_dropped == 10


def test_hashes_are_those_of_the_pools_prompts() -> None:
    followed = Followed()
    tokens = list(range(8))
    blocks = [{"block_hash": n, "tokens_hash": block_hash(tokens[4 * n : 4 * n + 4])} for n in range(2)]
    followed.answer(dump(0))
    followed.hear(event(1, {"stored": {"parent_hash": None, "blocks": blocks}}))
    assert followed.held == set(sequence_hashes(tokens, 4))


steps = st.lists(
    st.tuples(st.sampled_from(["store", "evict", "lose", "double", "ask", "restart"]), st.integers(0, 9)),
    max_size=40,
)


@settings(max_examples=300)
@given(steps)
def test_whatever_is_lost_or_doubled_a_last_answer_makes_the_rank_equal(taken: list[tuple[str, int]]) -> None:
    followed = Followed()
    held: list[int] = []  # one chain of blocks 0, 1, 2...
    number = 0
    buffer: list[dict[str, Any]] = []

    def whole() -> Any:
        return dump(number, *([stored(0, *held)] if held else []))

    for what, how in taken:
        if what == "restart":
            if not followed.rank.waiting:  # else events of two lives would carry one number
                held, number, buffer = [], 0, []
            continue
        if what == "ask":
            start = None if followed.rank.last is None else followed.rank.last + 1
            if start is None or not buffer or start < buffer[0]["event"]["event_id"]:
                followed.answer(whole())
            elif start > number:
                followed.answer({"TooNew": {"newest_available": number}})
            else:
                events = [each for each in buffer if each["event"]["event_id"] >= start]
                followed.answer({"Events": {"events": events, "last_event_id": number}})
            continue
        if what == "evict" and held:
            raw = removed(number + 1, held.pop())
        else:
            block = len(held)
            raw = stored(number + 1, block, parent=held[-1] if held else None)
            held.append(block)
        number += 1
        buffer = [*buffer, raw][-(how + 1) :]
        if what != "lose":
            followed.hear(raw)
        if what == "double" and number > 1:
            followed.hear(raw)
    followed.answer(whole())
    assert followed.held == chained(*held)


def test_instances_are_named_or_the_start_stops() -> None:
    assert instances(("7=10.0.0.1:8000", "8=[fd00::1]:8000")) == {7: "10.0.0.1:8000", 8: "[fd00::1]:8000"}
    for bad in ("7", "x=a:1", "7=a"):
        with pytest.raises(SettingsError, match="PICKER_DYNAMO_WORKERS"):
            instances((bad,))


def test_nothing_told_is_nothing_done() -> None:
    assert Answered("none").told == Told()
