"""Predictions beside the index: never longer than known or predicted, bounded, judged."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex
from picker.core.match import Overlap
from picker.core.predicted import ENOUGH, MAX_MODELS, OTHER, Predicted
from tests.unit.core.reach import reach

PROMPT = list(range(1, 11))


def seated(*workers: str) -> PrefixIndex:
    index = PrefixIndex()
    for worker in workers:
        index.add(worker)
    return index


SEATS = seated("a", "b")


def predicting(**given: Any) -> Predicted:
    predicted = Predicted(**given)
    predicted.beside(SEATS)
    return predicted


def test_a_prompt_just_sent_is_matched_before_its_events() -> None:
    predicted = predicting(life=5)
    predicted.note("a", PROMPT, 100.0)
    assert reach(predicted, SEATS, "a", PROMPT, now=101.0) == 10
    assert reach(predicted, SEATS, "a", [*PROMPT[:4], 99], now=101.0) == 4
    assert reach(predicted, SEATS, "b", PROMPT, now=101.0) == 0


def test_the_life_is_short_and_renewed_by_the_next_pick() -> None:
    predicted = predicting(life=5)
    predicted.note("a", PROMPT, 100.0)
    predicted.note("a", PROMPT[:4], 104.0)
    assert reach(predicted, SEATS, "a", PROMPT, now=104.9) == 10
    assert reach(predicted, SEATS, "a", PROMPT, now=105.0) == 4
    assert reach(predicted, SEATS, "a", PROMPT, now=109.0) == 0


def test_all_of_a_prompt_just_sent_is_believed_also_what_was_held_and_is_held_no_more() -> None:
    predicted = predicting()
    predicted.note("a", PROMPT, 0.0, held=4)
    assert reach(predicted, SEATS, "a", PROMPT, held=4, now=1.0) == 10
    assert reach(predicted, SEATS, "a", PROMPT, held=3, now=1.0) == 10, (
        "it will be computed anew for that request"
    )
    assert predicted.counts.predicted == 6, "but what was held is no prediction"


def test_a_prompt_that_is_held_says_nothing_new() -> None:
    predicted = predicting()
    predicted.note("a", PROMPT, 0.0, held=10)
    assert reach(predicted, SEATS, "a", PROMPT, now=1.0) == 0
    assert predicted.counts.predicted == 0


def test_what_is_predicted_will_lie_on_the_device() -> None:
    index = seated("a", "b")
    index.store("a", PROMPT[:4])
    index.remove("a", PROMPT[1:3])
    index.store("a", PROMPT[1:3], 1)
    predicted = Predicted()
    predicted.beside(index)
    predicted.note("a", PROMPT[:7], 0.0, held=4)
    predicted.note("b", PROMPT[:2], 0.0)
    match = index.match(PROMPT, predicted.runs(PROMPT, 1.0))
    assert match.overlap("a") == Overlap(5, 2, 0)
    assert match.overlap("b") == Overlap(2, 0, 0)


def test_nothing_is_believed_of_a_worker_that_gave_up_its_bit_nor_of_the_one_that_gets_it() -> None:
    index = seated("a", "b")
    predicted = Predicted()
    predicted.beside(index)
    predicted.note("a", PROMPT, 0.0)
    index.drop("a")
    index.add("c")
    assert index.slot("c") == 0
    assert reach(predicted, index, "c", PROMPT, now=1.0) == 0
    predicted.note("c", PROMPT[:5], 1.0)
    assert predicted.runs(PROMPT, 4.9) == predicted.runs(PROMPT, 5.9) == [(1, 5)]
    assert predicted.runs(PROMPT, 6.0) == []


def test_what_is_believed_too_long_for_its_bound_is_forgotten_and_counted() -> None:
    predicted = predicting(max_blocks=20)
    for pick in range(3):
        predicted.note("a", [*PROMPT[:5], *range(100 * pick + 100, 100 * pick + 105)], 0.0, held=5)
    assert predicted.counts.forgotten == 10
    assert predicted.counts.dropped == 0
    assert reach(predicted, SEATS, "a", [*PROMPT[:5], 100], now=1.0) == 5, "as the others begin so too"
    assert reach(predicted, SEATS, "a", [*PROMPT[:5], 200], now=1.0) == 6


class Kept(list[int]):
    """Hashes of which can be told whether somebody still has them."""

    __slots__ = ("__weakref__",)


def test_a_short_prompt_keeps_no_long_one_that_begins_like_it() -> None:
    predicted, long = predicting(life=5), Kept(range(1000))
    predicted.note("a", long, 0.0)
    predicted.confirmed("a", long)
    predicted.note("a", list(range(3)), 4.0)
    predicted.expire(6.0)
    kept = weakref.ref(long)
    del long
    assert kept() is None
    assert reach(predicted, SEATS, "a", list(range(1000)), now=6.0) == 3


def test_a_burst_of_wrong_predictions_is_judged_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.core.predicted.AT_ONCE", 10)
    predicted = predicting(life=1, verdict=10)
    for number in range(9):
        predicted.note("a", range(number * 10, number * 10 + 6), 0.0)
    judged = []
    for _ in range(6):
        predicted.expire(20.0)
        judged.append(predicted.counts.unconfirmed)
    assert judged == [12, 24, 36, 48, 54, 54]
    assert len(predicted) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 5), min_size=1), st.floats(0, 2))))
def test_prompts_with_one_hash_by_chance_or_by_malice_leave_nothing_behind(
    taken: list[tuple[str, list[int], float]],
) -> None:
    predicted, now = predicting(life=5, max_blocks=30), 0.0
    for worker, prompt, later in taken:
        now += later
        predicted.note(worker, prompt, now)
        for mask, length in predicted.runs(prompt, now):
            assert mask & 3 == mask != 0
            assert 0 < length <= len(prompt)
        assert predicted._believed.pieces <= 30
    predicted.expire(now + 5)
    assert predicted._believed.pieces == len(predicted._believed) == 0


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(lambda tokens: sequence_hashes(tokens, 1))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), prompts, st.floats(0, 2)),
            st.tuples(st.sampled_from("abcd"), st.none(), st.just(0.0)),
        )
    ),
    prompts,
)
def test_it_is_believed_that_each_worker_holds_the_longest_prefix_lately_sent_there(
    taken: list[tuple[str, list[int] | None, float]], asked: list[int]
) -> None:
    predicted, now = Predicted(life=5), 0.0
    index = seated(*"abcd")
    predicted.beside(index)
    sent: list[tuple[str, list[int], float]] = []
    for worker, prompt, later in taken:
        now += later
        if prompt is None:
            predicted.left(worker)
            sent = [one for one in sent if one[0] != worker]
        else:
            predicted.note(worker, prompt, now)
            sent.append((worker, prompt, now))
        wanted: dict[int, int] = {}
        for name, known, then in sent:
            shared = sum(one == other for one, other in zip(known, asked, strict=False))
            if then + 5 > now and shared:
                slot = index.slot(name)
                assert slot is not None
                wanted[1 << slot] = max(wanted.get(1 << slot, 0), shared)
        runs = predicted.runs(asked, now)
        assert {1 << at: n for mask, n in runs for at in range(4) if mask >> at & 1} == wanted
        lengths = [n for _, n in runs]
        assert lengths == sorted(set(lengths))
    predicted.runs(asked, now + 5)
    assert not predicted._believed.pieces


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), prompts)),
    st.lists(st.tuples(st.sampled_from("abcd"), prompts)),
    prompts,
)
def test_what_is_held_and_what_is_believed_go_together_as_the_longer_of_both(
    stored: list[tuple[str, list[int]]], sent: list[tuple[str, list[int]]], asked: list[int]
) -> None:
    index, predicted = seated(*"abcd"), Predicted(life=5)
    predicted.beside(index)
    for worker, prompt in stored:
        index.store(worker, prompt)
    for worker, prompt in sent:
        predicted.note(worker, prompt, 0.0)
    match = index.match(asked, predicted.runs(asked, 1.0))
    for worker in "abcd":
        held = index.match(asked).overlap(worker).total
        assert match.overlap(worker).total == reach(predicted, index, worker, asked, held=held, now=1.0)
    lengths = [length for _, length in match.runs]
    assert lengths == sorted(set(lengths))
    assert match.best == max(match.overlap(worker).total for worker in "abcd")


def test_events_confirm_and_silence_refutes_per_model() -> None:
    predicted = Predicted(life=5, verdict=30)
    predicted.note("a", list(range(100)), 0.0, model="good")
    predicted.note("a", list(range(1000, 1100)), 0.0, model="bad")
    assert predicted.confirmed("a", range(100)) == 100
    assert predicted.confirmed("a", range(100)) == 0
    predicted.expire(29.9)
    assert predicted.counts.unconfirmed == 0, "a queue may be long: no verdict before its time"
    predicted.expire(30.0)
    assert predicted.ratios() == {"good": 1.0, "bad": 0.0}
    assert predicted.failing() == ["bad"]
    assert [(turn.model, turn.low) for turn in predicted.turns()] == [("bad", True)]
    assert predicted.turns() == []
    assert len(predicted) == 0


def test_an_alarm_goes_off_when_predictions_hold_again() -> None:
    predicted = Predicted(verdict=5)
    predicted.note("a", list(range(ENOUGH)), 0.0)
    predicted.expire(10.0)
    assert predicted.failing() == [""]
    predicted.note("a", list(range(1000, 1000 + 2 * ENOUGH)), 10.0)
    predicted.confirmed("a", range(1000, 1000 + 2 * ENOUGH))
    assert predicted.failing() == []
    assert [turn.low for turn in predicted.turns()] == [True, False]


def test_few_verdicts_raise_no_alarm() -> None:
    predicted = Predicted(verdict=5)
    predicted.note("a", list(range(ENOUGH - 1)), 0.0)
    predicted.expire(10.0)
    assert predicted.ratios() == {}
    assert predicted.turns() == []


def test_a_worker_that_left_is_not_held_against_its_model() -> None:
    predicted = Predicted(verdict=5)
    predicted.note("a", list(range(2 * ENOUGH)), 0.0)
    predicted.left("a")
    predicted.expire(10.0)
    assert predicted.counts.unconfirmed == 0
    assert predicted.counts.dropped == 2 * ENOUGH
    assert len(predicted) == 0


def test_predictions_are_bounded_and_the_oldest_go_first() -> None:
    predicted = predicting(max_blocks=20)
    for pick in range(10):
        predicted.note("a", [10 * pick + each for each in range(10)], float(pick))
    assert len(predicted) == 20
    assert reach(predicted, SEATS, "a", list(range(80, 90)), now=9.0) == 10
    assert reach(predicted, SEATS, "a", list(range(50, 60)), now=9.0) == 0
    assert predicted.counts.dropped == 80


def test_models_are_bounded() -> None:
    predicted = Predicted(verdict=1)
    for number in range(2 * MAX_MODELS):
        predicted.note("a", range(1000 * number, 1000 * number + ENOUGH), 0.0, model=f"m{number}")
    predicted.expire(10.0)
    assert len(predicted.ratios()) == MAX_MODELS + 1
    assert OTHER in predicted.ratios()


def test_without_a_life_nothing_is_predicted() -> None:
    predicted = predicting(life=0)
    predicted.note("a", PROMPT, 0.0)
    assert reach(predicted, SEATS, "a", PROMPT, now=0.0) == 0
    assert len(predicted) == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=6)),
        st.tuples(st.just("store"), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=6)),
        st.tuples(st.just("evict"), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=6)),
        st.tuples(st.just("wait"), st.floats(0, 4)),
        st.tuples(st.just("leave"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps, st.integers(4, 40))
def test_a_match_never_exceeds_what_is_held_or_lately_predicted(
    taken: list[tuple[Any, ...]], most: int
) -> None:
    predicted, index, now = Predicted(life=5, verdict=12, max_blocks=most), PrefixIndex(), 0.0
    predicted.beside(index)
    held: dict[str, set[int]] = {}
    noted: dict[str, dict[int, float]] = {}
    for what, *how in taken:
        if what == "wait":
            now += how[0]
            predicted.expire(now)
            continue
        worker = f"w{how[0]}"
        mine = held.setdefault(worker, set())
        index.add(worker)
        if what == "leave":
            predicted.left(worker)
            index.drop(worker)
            held.pop(worker)
            noted.pop(worker, None)
            continue
        prompt = sequence_hashes(how[1], 1)
        if what == "note":
            predicted.note(worker, prompt, now, held=index.match(prompt).overlap(worker).total)
            noted.setdefault(worker, {}).update(dict.fromkeys(prompt, now))
        elif what == "store":
            predicted.confirmed(worker, prompt)
            index.store(worker, prompt)
            mine.update(prompt)
        elif (
            prompt
            and prompt[-1] in mine
            and not any(
                prompt[-1] in chain[:-1] and chain[-1] in mine
                for chain in (sequence_hashes([*how[1], *more], 1) for more in ([0], [1]))
            )
        ):
            index.remove(worker, prompt[-1:])
            mine.discard(prompt[-1])
        for name in held:
            known = index.match(prompt).overlap(name).total
            matched = reach(predicted, index, name, prompt, held=known, now=now)
            assert matched >= known
            for key in prompt[known:matched]:
                assert now - noted[name][key] < 5
        assert len(predicted) <= most
    predicted.expire(now + 100)
    assert len(predicted) == 0
    counts = predicted.counts
    assert counts.predicted == counts.confirmed + counts.unconfirmed + counts.dropped
