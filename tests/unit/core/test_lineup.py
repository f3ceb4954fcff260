"""The line-up chooses what `choose` does on the same loads: the same worker, fallbacks, reasons and random draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.choose import AllFull, Candidate, Choice, Demand, NoWorker, Offer, choose, offer
from picker.core.cost import Weights, base_price, price
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
parts = st.sampled_from([0.0, 0.25, 0.75, 1.0]) | st.floats(0, 1)
weights = st.builds(
    Weights,
    st.sampled_from([0.0, 1.0, 0.1]) | st.floats(0, 10),
    parts | st.floats(0, 3),
    parts,
    parts,
    st.sampled_from([0.0, 1.0, 0.1]),
    st.sampled_from([0.0, 0.0, 0.0, 0.5]),
)
workers = st.lists(
    st.tuples(st.sampled_from(NAMES), booked, unbooked, st.just(NO_OVERLAP) | overlaps),
    max_size=12,
    unique_by=lambda one: one[0],
)


gaps = st.lists(st.integers(1, 70), min_size=12, max_size=12)


def seats(steps: list[int], names: list[str]) -> list[int]:
    """Rising numbers, some left out."""
    return list(accumulate(steps))[: len(names)]


def shares(held: Mapping[int, Overlap], *, alone: bool) -> list[tuple[int, Overlap]]:
    """Who holds the same in one mask, or in one each."""
    masks: dict[tuple[int, Overlap], int] = {}
    for seat, overlap in held.items():
        key = (seat if alone else 0, overlap)
        masks[key] = masks.get(key, 0) | 1 << seat
    return [(mask, overlap) for (_, overlap), mask in masks.items()]


@given(
    workers, gaps, st.booleans(), st.integers(0, 5000), st.integers(1, 64), weights, st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 3]), st.integers(),
)  # fmt: skip
def test_it_chooses_digit_for_digit_as_if_every_worker_were_weighed_anew(
    given: list[tuple[str, Load, Load, Overlap]],
    steps: list[int],
    alone: bool,
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
    names = [one.worker for one in candidates]
    places = seats(steps, names)
    lineup.line_up(names, places)
    for one in candidates:
        lineup.put(one.worker, Load(999, 999, 999), Load(9, 9, 9))
    for one in candidates:
        lineup.put(one.worker, one.booked, one.unbooked)
    held = {seat: one.overlap for seat, one in zip(places, candidates, strict=True) if one.overlap.total}
    ours, theirs = Random(seed), Random(seed)
    found = lineup.choose(demand, shares(held, alone=alone), ours, fallbacks)
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
    weights, st.sampled_from([0, 0, 2]), st.sampled_from([0.5, 0.9, 1.0]) | st.floats(0.001, 1),
)  # fmt: skip
def test_with_foreign_load_moved_toward_its_mean_every_worker_is_weighed_with_it(
    given: list[tuple[str, Load, Load, Load, Overlap]], w: Weights, limit: int, factor: float
) -> None:
    lineup = Lineup(w, block_size=16, limit=limit)
    lineup.line_up([name for name, *_ in given])
    for name, mine, theirs, more, _ in given:
        lineup.put(name, Load(*map(sum, zip(mine, theirs, strict=True))), more)
    moved = aged({name: theirs for name, _, theirs, *_ in given}, factor)
    loads = {name: Load(*map(sum, zip(mine, moved[name], strict=True))) for name, mine, *_ in given}
    held = {place: overlap for place, (*_, overlap) in enumerate(given) if overlap.total}
    overlaps = lineup.overlaps([*shares(held, alone=False), (1 << 99, Overlap(9))])
    weighed = lineup.weigh(overlaps, booked=loads)
    assert weighed == [
        Candidate(name, loads[name], more, overlap, limit) for name, _, _, more, overlap in given
    ]
    now = lineup.weigh(overlaps, [name for name, *_ in given[1:]])
    assert now == [
        one._replace(booked=Load(*map(sum, zip(mine, theirs, strict=True))))
        for one, (_, mine, theirs, *_) in zip(weighed[1:], given[1:], strict=True)
    ]


@given(st.randoms(use_true_random=False), st.integers(20, 80), st.integers(1, 4), st.integers(0, 400))
def test_in_a_larger_pool_with_whole_masks_of_holders_it_chooses_the_same(
    rng: Random, workers: int, kinds: int, prompt: int
) -> None:
    given = [
        Candidate(
            f"w{n}",
            Load(rng.randrange(kinds) * 160, rng.choice([0, rng.randrange(3), rng.randrange(500)])),
            Load(0, rng.choice([0, 0.1, 0.3])),
            rng.choice([NO_OVERLAP, *(Overlap(n) for n in range(1, 4)), Overlap(2, 3, 4)]),
        )
        for n in range(workers)
    ]
    places = seats([rng.randint(1, 3) for _ in given], [one.worker for one in given])
    held = {seat: one.overlap for seat, one in zip(places, given, strict=True) if one.overlap.total}
    lineup, demand, seed = Lineup(Weights(), block_size=16), Demand(prompt, prompt // 16, 16), rng.random()
    lineup.line_up([one.worker for one in given], places)
    for one in rng.sample(given, len(given)):
        lineup.put(one.worker, Load(rng.randrange(99)), one.unbooked)
        lineup.put(one.worker, one.booked)
    ours, theirs = Random(seed), Random(seed)
    found = lineup.choose(demand, shares(held, alone=False), ours)
    wanted = choose(given, demand, Weights(), theirs)
    assert isinstance(found, Choice)
    assert isinstance(wanted, Choice)
    assert (found.chosen, found.reasons) == (wanted.chosen, wanted.reasons)
    assert ours.getstate() == theirs.getstate()


@given(
    workers, st.lists(st.permutations(range(20)), min_size=1, max_size=4), weights, st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 3]), st.integers(),
)  # fmt: skip
def test_workers_take_what_they_carry_to_other_seats(
    given: list[tuple[str, Load, Load, Overlap]],
    moves: list[list[int]],
    w: Weights,
    limit: int,
    fallbacks: int,
    seed: int,
) -> None:
    lineup, demand = Lineup(w, block_size=16, limit=limit), Demand(320, 20, 16)
    names = [name for name, *_ in given]
    lineup.line_up(names)
    before = []
    for move in moves:
        for name, booked, unbooked, _ in given:
            lineup.put(name, booked, unbooked)
        lineup.reseat(move[: len(names)])
        by_seat = dict(sorted(zip(move, given, strict=False)))
        held = {seat: overlap for seat, (*_, overlap) in by_seat.items() if overlap.total}
        ours, theirs = Random(seed), Random(seed)
        found = lineup.choose(demand, shares(held, alone=False), ours, fallbacks)
        wanted = choose([Candidate(*one, limit) for one in by_seat.values()], demand, w, theirs, fallbacks)
        before.append((found, wanted))
        assert type(found) is type(wanted)
        assert ours.getstate() == theirs.getstate()
        assert lineup.names is names
    assert all(found.reasons == wanted.reasons for found, wanted in before)


@given(
    workers, st.booleans(), st.integers(0, 5000), st.integers(1, 64), weights, st.sampled_from([0, 0, 2]),
    st.integers(1, 12), st.integers(),
)  # fmt: skip
def test_it_offers_the_same_prices_as_if_every_worker_were_weighed_anew(
    given: list[tuple[str, Load, Load, Overlap]],
    alone: bool,
    prompt: int,
    size: int,
    w: Weights,
    limit: int,
    most: int,
    seed: int,
) -> None:
    demand = Demand(prompt, -(-prompt // size), size)
    candidates = [Candidate(*one, limit) for one in given]
    lineup = Lineup(w, block_size=size, limit=limit)
    lineup.line_up([one.worker for one in candidates])
    for one in candidates:
        lineup.put(one.worker, one.booked, one.unbooked)
    held = {place: one.overlap for place, one in enumerate(candidates) if one.overlap.total}
    found = lineup.offer(demand, shares(held, alone=alone), Random(seed), most)
    wanted = offer(candidates, demand, w, Random(seed), most)
    assert type(found) is type(wanted)
    assert found.reasons == wanted.reasons
    if isinstance(found, Offer) and isinstance(wanted, Offer):
        assert found.complete == wanted.complete
        assert set(found.offered) <= set(candidates)
        assert len(set(found.offered)) == len(found.offered)
        if not w.temperature:
            assert found.bases == tuple(
                base_price(demand, one.unbooked, one.overlap, w) for one in found.offered
            )
            prices = [
                sorted((one.full, price(demand, *one[1:4], w)) for one in each.offered)
                for each in (found, wanted)
            ]
            assert prices[0] == prices[1]
        taken = found.offered[-1].worker
        assert found.taken(taken, Random(1), 3).worker == taken
        assert found.full().reasons == wanted.reasons


def test_of_equal_workers_each_is_offered_now_and_then_and_in_every_order() -> None:
    lineup = Lineup(Weights(), block_size=16)
    lineup.line_up(["a", "b", "c", "d"])
    lineup.put("d", Load(16), NO_LOAD)
    seen: Counter[tuple[str, ...]] = Counter()
    for seed in range(300):
        found = lineup.offer(Demand(16, 1, 16), [(0b1000, Overlap(1))], Random(seed), 2)
        assert isinstance(found, Offer)
        seen[tuple(one.worker for one in found.offered)] += 1
    assert len(seen) == 12, "d holds of the prompt what it has more to do"
    assert max(seen.values()) < 3 * min(seen.values())


def test_reasons_tell_of_the_loads_at_their_time_however_many_changes_ago() -> None:
    lineup = Lineup(Weights(), block_size=16)
    lineup.line_up(["a", "b"])
    found = []
    for n in range(300):
        lineup.put("ab"[n % 2], Load(0, n), Load(0, n % 7))
        found.append(lineup.choose(Demand(16, 1, 16), [], Random(n)))
    for n, one in enumerate(found[1:], 1):
        told = {reason.worker: (reason.booked.blocks, reason.unbooked.blocks) for reason in one.reasons}
        assert told == {"ab"[n % 2]: (n, n % 7), "ab"[n % 2 - 1]: (n - 1, (n - 1) % 7)}


def test_reasons_tell_of_the_loads_at_the_time_of_the_choice() -> None:
    lineup = Lineup(Weights(), block_size=16)
    lineup.line_up(["a", "b"])
    lineup.put("b", Load(0, 5, 1), NO_LOAD)
    choice = lineup.choose(Demand(32, 2, 16), [(0b10, Overlap(1))], Random(1))
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
                lineup.choose(demand, [], Random(seed)),
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
    assert type(lineup.choose(Demand(1, 1, 16), [], Random(1))) is outcome
