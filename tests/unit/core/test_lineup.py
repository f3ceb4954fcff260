"""The line-up chooses what `choose` does on the same loads: the same worker, fallbacks, reasons and random draws."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.choose import AllFull, Candidate, Choice, Demand, NoWorker, choose
from picker.core.cost import Weights
from picker.core.lineup import Lineup
from picker.core.load import NO_LOAD, Load, aged
from picker.core.match import NO_OVERLAP, Overlap

NAMES = [f"10.0.0.{n % 9}:8000" + (f"@{n // 9}" if n >= 9 else "") for n in range(12)]

# few values, so that prices tie, beside such as differ by a rounding only
tokens = st.sampled_from([0, 0, 16, 17, 160, 1600]) | st.integers(0, 10**6)
blocks = st.sampled_from([0, 0, 1, 10, 0.1, 0.3]) | st.floats(0, 1e5)
booked = st.builds(Load, tokens, st.sampled_from([0, 0, 1, 10, 100]), st.integers(0, 3))
unbooked = st.builds(Load, st.just(0), blocks, st.integers(0, 3))
overlaps = st.builds(Overlap, st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
shares = st.sampled_from([0.0, 0.25, 0.75, 1.0]) | st.floats(0, 1)
weights = st.builds(
    Weights,
    st.sampled_from([0.0, 1.0, 0.1]) | st.floats(0, 10),
    shares | st.floats(0, 3),
    shares,
    shares,
    st.sampled_from([0.0, 1.0, 0.1]),
    st.sampled_from([0.0, 0.0, 0.0, 0.5]),
)
workers = st.lists(
    st.tuples(st.sampled_from(NAMES), booked, unbooked, st.just(NO_OVERLAP) | overlaps),
    max_size=12,
    unique_by=lambda one: one[0],
)


@given(
    workers, st.integers(0, 5000), st.integers(1, 64), weights, st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 3]), st.integers(),
)  # fmt: skip
def test_it_chooses_digit_for_digit_as_if_every_worker_were_weighed_anew(
    given: list[tuple[str, Load, Load, Overlap]],
    prompt: int,
    size: int,
    w: Weights,
    limit: int,
    fallbacks: int,
    seed: int,
) -> None:
    demand = Demand(prompt, -(-prompt // size), size)
    candidates = [Candidate(*one, limit) for one in given]
    lineup = Lineup(w, block_size=size, limit=limit)
    lineup.line_up([one.worker for one in candidates])
    for one in candidates:
        lineup.put(one.worker, Load(999, 999, 999), Load(9, 9, 9))
    for one in candidates:
        lineup.put(one.worker, one.booked, one.unbooked)
    held = {one.worker: one.overlap for one in candidates if one.overlap.total}
    ours, theirs = Random(seed), Random(seed)
    found = lineup.choose(demand, held, ours, fallbacks)
    wanted = choose(candidates, demand, w, theirs, fallbacks)
    assert type(found) is type(wanted)
    assert ours.getstate() == theirs.getstate()
    assert found.reasons == wanted.reasons
    assert (found.weighed, found.left_out) == (wanted.weighed, wanted.left_out)
    if isinstance(found, Choice) and isinstance(wanted, Choice):
        assert (found.worker, found.fallbacks, found.chosen) == (
            wanted.worker,
            wanted.fallbacks,
            wanted.chosen,
        )


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), booked, booked, unbooked, st.just(NO_OVERLAP) | overlaps),
        max_size=12,
        unique_by=lambda one: one[0],
    ),
    st.integers(0, 5000), st.integers(1, 64), weights, st.sampled_from([0, 0, 2]), st.sampled_from([0, 0, 3]),
    st.sampled_from([0.5, 0.9, 1.0]) | st.floats(0.001, 1), st.integers(),
)  # fmt: skip
def test_with_foreign_load_moved_toward_its_mean_it_chooses_as_if_every_worker_were_weighed_anew(
    given: list[tuple[str, Load, Load, Load, Overlap]],
    prompt: int,
    size: int,
    w: Weights,
    limit: int,
    fallbacks: int,
    factor: float,
    seed: int,
) -> None:
    demand = Demand(prompt, -(-prompt // size), size)
    lineup = Lineup(w, block_size=size, limit=limit)
    lineup.line_up([name for name, *_ in given])
    for name, mine, theirs, more, _ in given:
        lineup.put(name, Load(*map(sum, zip(mine, theirs, strict=True))), more)
    moved = aged({name: theirs for name, _, theirs, *_ in given}, factor)
    loads = {name: Load(*map(sum, zip(mine, moved[name], strict=True))) for name, mine, *_ in given}
    candidates = [Candidate(name, loads[name], more, overlap, limit) for name, _, _, more, overlap in given]
    held = {name: overlap for name, *_, overlap in given if overlap.total}
    ours, theirs_ = Random(seed), Random(seed)
    found = lineup.carrying(loads).choose(demand, held, ours, fallbacks)
    wanted = choose(candidates, demand, w, theirs_, fallbacks)
    assert type(found) is type(wanted)
    assert ours.getstate() == theirs_.getstate()
    assert found.reasons == wanted.reasons
    if isinstance(found, Choice) and isinstance(wanted, Choice):
        assert (found.worker, found.fallbacks, found.chosen) == (
            wanted.worker,
            wanted.fallbacks,
            wanted.chosen,
        )


def test_reasons_tell_of_the_loads_at_the_time_of_the_choice() -> None:
    lineup = Lineup(Weights(), block_size=16)
    lineup.line_up(["a", "b"])
    lineup.put("b", Load(0, 5, 1), NO_LOAD)
    choice = lineup.choose(Demand(32, 2, 16), {"b": Overlap(1)}, Random(1))
    lineup.put("a", Load(160, 10, 1), Load(0, 7, 2))
    lineup.line_up(["c"])
    assert isinstance(choice, Choice)
    assert choice.worker == "a"
    assert [(one.worker, one.price, one.cached_tokens) for one in choice.reasons] == [
        ("a", 4.0, 0),
        ("b", 8.0, 16),
    ]
    assert choice.reasons[0].booked == choice.reasons[0].unbooked == NO_LOAD


def test_prices_that_differ_by_a_rounding_alone_are_told_apart() -> None:
    """0.1 + 0.2 is more than 0.3, and is so after a prompt's blocks are added or not: as `choose` adds them up."""
    one, other = Candidate("a", Load(0, 0.1), Load(0, 0.2)), Candidate("b", Load(0, 0.3))
    for prompt in (0, 16, 1024, 10**6):
        lineup, demand = Lineup(Weights(), block_size=16), Demand(prompt, prompt // 16, 16)
        lineup.line_up(["a", "b"])
        for each in (one, other):
            lineup.put(each.worker, each.booked, each.unbooked)
        for seed in range(8):
            found, wanted = (
                lineup.choose(demand, {}, Random(seed)),
                choose([one, other], demand, Weights(), Random(seed)),
            )
            assert isinstance(found, Choice)
            assert isinstance(wanted, Choice)
            assert found.worker == wanted.worker


@pytest.mark.parametrize(("booked", "outcome"), [(None, NoWorker), (1, AllFull)])
def test_without_a_worker_it_says_so(booked: int | None, outcome: type) -> None:
    lineup = Lineup(Weights(), block_size=16, limit=1)
    if booked is not None:
        lineup.line_up(["a"])
        lineup.put("a", Load(0, 0, booked), NO_LOAD)
    assert type(lineup.choose(Demand(1, 1, 16), {}, Random(1))) is outcome
