"""Predictions beside the index: never longer than known or predicted, bounded, judged."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex
from picker.core.match import Overlap
from picker.core.predicted import ENOUGH, MAX_MODELS, OTHER, Predicted

PROMPT = list(range(1, 11))


def test_a_prompt_just_sent_is_matched_before_its_events() -> None:
    predicted = Predicted(life=5)
    predicted.note("a", PROMPT, 100.0)
    assert predicted.match("a", PROMPT, 0, 101.0) == 10
    assert predicted.match("a", [*PROMPT[:4], 99], 0, 101.0) == 4
    assert predicted.match("b", PROMPT, 0, 101.0) == 0


def test_the_life_is_short_and_renewed_by_the_next_pick() -> None:
    predicted = Predicted(life=5)
    predicted.note("a", PROMPT, 100.0)
    predicted.note("a", PROMPT[:4], 104.0)
    assert predicted.match("a", PROMPT, 0, 104.9) == 10
    assert predicted.match("a", PROMPT, 0, 105.0) == 4
    assert predicted.match("a", PROMPT, 0, 109.0) == 0


def test_what_is_predicted_counts_only_right_behind_what_is_held() -> None:
    predicted = Predicted()
    predicted.note("a", PROMPT, 0.0, held=4)
    assert predicted.match("a", PROMPT, 4, 1.0) == 10
    assert predicted.match("a", PROMPT, 3, 1.0) == 3, "a hole between is a hole"
    assert predicted.extend("a", PROMPT, Overlap(1, 2, 1), 1.0) == Overlap(7, 2, 1)
    assert predicted.extend("a", PROMPT, Overlap(1, 0, 0), 1.0) == Overlap(1, 0, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 10), st.integers(0, 9), st.floats(0, 8))),
    st.dictionaries(
        st.sampled_from("abc"), st.builds(Overlap, st.integers(1, 4), st.integers(0, 3), st.just(0))
    ),
    st.integers(0, 10),
)
def test_extending_all_workers_at_once_is_extending_each(
    picks: list[tuple[str, int, int, float]], held: dict[str, Overlap], length: int
) -> None:
    predicted = Predicted(life=5)
    for worker, blocks, had, at in sorted(picks, key=lambda pick: pick[3]):
        predicted.note(worker, PROMPT[:blocks], at, held=had)
    predicted.confirmed("b", PROMPT[:1])
    predicted.left("d")
    hashes = PROMPT[:length]
    found = predicted.extended(hashes, held, 9.0)
    assert all(one.total for one in found.values())
    for worker in "abcd":
        before = held.get(worker, Overlap())
        assert found.get(worker, Overlap()) == predicted.extend(worker, hashes, before, 9.0)


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
    predicted = Predicted(max_blocks=20)
    for pick in range(10):
        predicted.note("a", [10 * pick + each for each in range(10)], float(pick))
    assert len(predicted) == 20
    assert predicted.match("a", list(range(80, 90)), 0, 9.0) == 10
    assert predicted.match("a", list(range(50, 60)), 0, 9.0) == 0
    assert predicted.counts.dropped == 80


def test_models_are_bounded() -> None:
    predicted = Predicted(verdict=1)
    for number in range(2 * MAX_MODELS):
        predicted.note("a", range(1000 * number, 1000 * number + ENOUGH), 0.0, model=f"m{number}")
    predicted.expire(10.0)
    assert len(predicted.ratios()) == MAX_MODELS + 1
    assert OTHER in predicted.ratios()


def test_without_a_life_nothing_is_predicted() -> None:
    predicted = Predicted(life=0)
    predicted.note("a", PROMPT, 0.0)
    assert predicted.match("a", PROMPT, 0, 0.0) == 0
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
            matched = predicted.match(name, prompt, known, now)
            assert matched >= known
            for key in prompt[known:matched]:
                assert now - noted[name][key] < 5
        assert len(predicted) <= most
    predicted.expire(now + 100)
    assert len(predicted) == 0
    counts = predicted.counts
    assert counts.predicted == counts.confirmed + counts.unconfirmed + counts.dropped
