"""All ranks of one engine: sleep, doubts that bad events leave, and bytes of any kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.blocks import sequence_hashes
from picker.events.bridge.ranks import LOSSES, Ranks
from picker.events.bridge.sleep import sleep_states
from picker.events.records import Epoch, Event, decode_event

PROMPT = list(range(8))
OWN = sequence_hashes(PROMPT, 4)


def store(hashes: list[int], tokens: list[int], **given: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": tokens,
        "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None,
    } | given  # fmt: skip


def batch(*events: Any, rank: int = 0) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), rank])


class Told:
    """Ranks, and a replica that folds what they send."""

    def __init__(self) -> None:
        self.ranks = Ranks("a:1", pool="p/q", first=0, block_size=4, keep=8, piece_bytes=lambda: 10_000)
        self.held: dict[str, dict[int, set[int]]] = {}
        self.fold(self.ranks.begin(Epoch(1, 1), aside=False))
        self.ranks.complete()

    def fold(self, outgoing: list[Any]) -> None:
        for item in outgoing:
            event = decode_event(item.data)
            assert isinstance(event, Event)
            tiers = self.held.setdefault(item.subject, {0: set(), 1: set(), 2: set()})
            if event.kind == "cleared":
                self.held[item.subject] = {0: set(), 1: set(), 2: set()}
            elif event.kind == "stored":
                tiers[event.tier].update(event.hashes)
            elif event.kind == "removed":
                tiers[event.tier].difference_update(event.hashes)

    def apply(self, payload: bytes) -> None:
        self.fold(self.ranks.apply(payload, 0.0))

    def on(self, tier: int, rank: int = 0) -> set[int]:
        worker = self.ranks.by_rank[rank].worker
        held = self.held[self.ranks.subjects.events(worker)][tier]
        assert held == set(self.ranks.by_rank[rank].blocks.announced.tier(tier))
        return held

    def partial(self, rank: int = 0) -> bool:
        return self.ranks.by_rank[rank].publisher.partial


def test_a_rank_that_sleeps_keeps_only_what_lies_below_the_device() -> None:
    told = Told()
    told.apply(batch(store([1, 2], PROMPT), store([1], [], block_size=0, medium="CPU")))
    told.fold(told.ranks.sleep({0: True}))
    assert told.on(0) == set()
    assert told.on(1) == {OWN[0]}
    told.apply(batch(store([3, 4], PROMPT[::-1])))
    assert told.on(0) == set(), "what it said before it slept is not believed while it sleeps"
    told.fold(told.ranks.sleep({0: False}))
    told.apply(batch(store([1, 2], PROMPT)))
    assert told.on(0) == set(OWN)
    assert told.ranks.counts.sleeps == 1


def test_one_rank_sleeps_and_the_other_does_not() -> None:
    told = Told()
    for rank in (0, 1):
        told.apply(batch(store([1, 2], PROMPT), rank=rank))
    told.fold(told.ranks.sleep({0: False, 1: True}))
    assert told.on(0, rank=0) == set(OWN)
    assert told.on(0, rank=1) == set()


def test_a_page_of_one_engine_speaks_for_the_one_rank_whatever_its_number() -> None:
    told = Told()
    told.apply(batch(store([1, 2], PROMPT)))
    told.fold(told.ranks.sleep({3: True}))
    assert told.on(0) == set()
    again = Told()
    again.apply(batch(store([1, 2], PROMPT)))
    again.fold(again.ranks.sleep({None: True}))
    assert again.on(0) == set()


def test_sleep_during_a_rebuilding_is_not_undone_by_its_end() -> None:
    told = Told()
    told.fold(told.ranks.begin(Epoch(1, 2), aside=True))
    told.apply(batch(store([1, 2], PROMPT)))
    told.fold(told.ranks.sleep({0: True}))
    told.fold(told.ranks.end_aside("all"))
    assert told.on(0) == set()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", {}),
        ("vllm:num_requests_running 1.0\n", {}),
        ('vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 0.0\n', {1: True}),
        (
            "".join(
                f'vllm:engine_sleep_state{{model_name="a,b",sleep_state="{state}",engine="{engine}"}} {value}\n'
                for state, engine, value in (
                    ("awake", 0, 1.0),
                    ("weights_offloaded", 0, 0.0),
                    ("awake", 2, 0),
                )
            ),
            {0: False, 2: True},
        ),
        ('vllm:engine_sleep_state{sleep_state="awake"} 0\n', {None: True}),
        ('vllm:engine_sleep_state{sleep_state="awake",engine="x"} 0\n', {None: True}),
    ],
)
def test_sleep_is_read_from_the_engines_page(page: str, expected: dict[int | None, bool]) -> None:
    assert sleep_states(page) == expected


@given(st.text(max_size=60))
def test_a_broken_page_is_a_value_error_or_says_nothing(text: str) -> None:
    try:
        sleep_states(f"vllm:engine_sleep_state{text}")
    except ValueError:
        return


@pytest.mark.parametrize(
    ("event", "doubt"),
    [
        (["BlockRemoved", ["x"], "GPU"], True),
        ("text", True),
        (store([9], [1] * 4, medium="EXTERNAL"), False),
        (store([9, 10], [1] * 4), False),
        (store([9], [1] * 4, lora_id=4), False),
        ({"type": "Unheard"}, False),
    ],
)
def test_a_bad_event_wipes_nothing_and_is_owned_up_to(event: Any, doubt: bool) -> None:
    told = Told()
    told.apply(batch(store([1, 2], PROMPT)))
    told.apply(batch(event))
    assert told.on(0) == set(OWN)
    assert told.partial() is doubt
    assert sum(told.ranks.counts.skipped.values()) == 1
    assert (set(told.ranks.counts.skipped) <= LOSSES) is doubt
    told.apply(batch({"type": "AllBlocksCleared"}))
    assert not told.partial()


def test_bytes_that_are_no_batch_are_counted_wipe_nothing_and_leave_a_doubt() -> None:
    told = Told()
    told.apply(batch(store([1, 2], PROMPT)))
    told.apply(b"\xc1")
    assert told.on(0) == set(OWN)
    assert told.partial()
    assert told.ranks.counts.bad_batches == 1


GOOD = batch(store([1, 2], PROMPT), ["BlockRemoved", [77], "GPU"])


@given(
    st.binary(max_size=200)
    | st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
        lambda damage: GOOD[: damage[0]] + bytes([damage[1]]) + GOOD[damage[0] + 1 :]
    )
)
def test_arbitrary_bytes_never_raise_never_wipe_and_are_counted(payload: bytes) -> None:
    told = Told()
    told.apply(batch(store([5, 6], PROMPT)))
    told.apply(payload)
    counts = told.ranks.counts
    assert counts.batches == 2
    assert counts.bad_batches + counts.other_ranks + sum(counts.skipped.values()) + counts.events >= 1
    blocks = told.ranks.by_rank[0].blocks.counts
    assert blocks.clears or told.on(0) >= set(OWN[:1]) or blocks.removed
