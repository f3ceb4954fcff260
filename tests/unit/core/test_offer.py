"""The offer to a plane: the cheapest, in random order, with noise that samples as a choice on the view does."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.choose import Candidate, Demand, NoWorker, Offer, choose, offer
from picker.core.cost import Weights, base_price, cached_tokens, price, slopes
from picker.core.load import Load
from picker.core.match import Overlap

DEMAND = Demand(64, 4, 16)
whole = st.integers(0, 100_000)
loads = st.builds(Load, whole, whole, st.integers(0, 500))
parts = st.floats(0, 1)


def made(candidates: list[Candidate], *, most: int = 8, temperature: float = 0.0, seed: int = 1) -> Offer:
    found = offer(candidates, DEMAND, Weights(temperature=temperature), Random(seed), most)
    assert isinstance(found, Offer)
    return found


@given(
    loads, st.builds(Load, whole, st.floats(0, 1e5), st.integers(0, 500)),
    st.lists(st.integers(0, 100), min_size=3, max_size=3), st.integers(1, 256), st.integers(0, 255),
    st.builds(Weights, st.floats(0, 10), parts, parts, parts, st.floats(0, 10)),
)  # fmt: skip
def test_the_price_is_linear_in_what_is_booked(
    booked: Load, unbooked: Load, held: list[int], size: int, rest: int, weights: Weights
) -> None:
    demand = Demand(sum(held) * size + rest % size, sum(held) + 1, size)
    overlap = Overlap(*held)
    per_token, per_block, per_request = slopes(size, weights)
    linear = (
        base_price(demand, unbooked, overlap, weights)
        + per_token * booked.prefill_tokens
        + per_block * booked.blocks
        + per_request * booked.requests
    )
    assert linear == pytest.approx(price(demand, booked, unbooked, overlap, weights), rel=1e-9, abs=1e-9)


def test_a_credit_beyond_the_prompt_is_no_credit_for_other_prompts() -> None:
    weights, overlap = Weights(overlap_credit=3.0), Overlap(4)
    assert cached_tokens(overlap, 16, weights) == 192
    assert base_price(DEMAND, Load(), overlap, weights) == DEMAND.blocks


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 10), st.integers())
def test_the_cheapest_are_offered(blocks: list[int], most: int, seed: int) -> None:
    candidates = [Candidate(f"w{n}", Load(0, held, 1)) for n, held in enumerate(blocks)]
    found = made(candidates, most=most, seed=seed)
    assert len({one.worker for one in found.offered}) == min(most, len(blocks))
    assert sorted(one.booked.blocks for one in found.offered) == sorted(blocks)[:most]
    assert found.complete == (most >= len(blocks))


def test_equal_workers_are_offered_in_every_order() -> None:
    candidates = [Candidate(f"w{n}") for n in range(4)]
    firsts = Counter(made(candidates, most=2, seed=seed).offered[0].worker for seed in range(400))
    assert set(firsts) == {"w0", "w1", "w2", "w3"}
    assert max(firsts.values()) < 2 * min(firsts.values())


def test_workers_at_their_limit_are_offered_last_for_the_view_may_be_wrong() -> None:
    full, free = (
        Candidate("full", Load(0, 0, 2), max_requests=2),
        Candidate("free", Load(0, 90, 1), max_requests=2),
    )
    assert [one.worker for one in made([full, free], most=1).offered] == ["free"]
    assert {one.worker for one in made([full, free], most=2).offered} == {"free", "full"}


def test_barred_workers_are_never_offered() -> None:
    found = made([Candidate("asleep", barred="asleep"), Candidate("awake")])
    assert [one.worker for one in found.offered] == ["awake"]
    assert found.complete
    assert isinstance(offer([Candidate("a", barred="x")], DEMAND, Weights(), Random(1), 8), NoWorker)
    assert isinstance(offer([], DEMAND, Weights(), Random(1), 8), NoWorker)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_the_least_noisy_price_is_drawn_by_softmax_of_the_price(temperature: float) -> None:
    held = [0, 4, 8, 20]
    candidates = [Candidate(f"w{n}", Load(0, blocks, 1)) for n, blocks in enumerate(held)]
    least = Counter[str]()
    rng = Random(5)
    rounds = 20_000
    for _ in range(rounds):
        found = offer(candidates, DEMAND, Weights(temperature=temperature), rng, 8)
        assert isinstance(found, Offer)
        noisy = {
            one.worker: base + one.booked.blocks for one, base in zip(found.offered, found.bases, strict=True)
        }
        least[min(noisy, key=lambda name: noisy[name])] += 1
    odds = [math.exp(-blocks / (20 * temperature)) for blocks in held]
    for n, odd in enumerate(odds):
        assert least[f"w{n}"] / rounds == pytest.approx(odd / sum(odds), abs=0.015)


def test_without_temperature_there_is_no_noise() -> None:
    found = made([Candidate("a", Load(100, 7, 1)), Candidate("b", Load(0, 0, 0))])
    assert set(found.bases) == {64 / 16 + 4}


def test_what_was_taken_is_told_like_a_choice() -> None:
    candidates = [Candidate(f"10.0.0.{n}:80", Load(0, n, 1)) for n in range(5)]
    found = made(candidates, most=3)
    choice = found.taken("10.0.0.2:80", Random(1), fallbacks=2)
    assert (choice.worker, choice.fallbacks) == ("10.0.0.2:80", ("10.0.0.0:80", "10.0.0.1:80"))
    same = choose(candidates, DEMAND, Weights(), Random(1))
    assert choice.reasons == same.reasons
    assert found.taken("10.0.0.0:80", Random(1)).fallbacks == ()


@given(
    st.builds(Load, whole, st.floats(0, 1e5), st.integers(0, 500)),
    st.lists(st.integers(0, 300), min_size=3, max_size=3), st.integers(0, 10_000), st.integers(1, 256),
    st.builds(Weights, st.floats(0, 10), parts, parts, parts, st.floats(0, 10)),
)  # fmt: skip
def test_the_base_of_a_price_is_the_price_of_a_worker_with_nothing_booked(
    unbooked: Load, held: list[int], prompt: int, size: int, weights: Weights
) -> None:
    demand, overlap = Demand(prompt, prompt // size, size), Overlap(*held)
    assert base_price(demand, unbooked, overlap, weights) == price(demand, Load(), unbooked, overlap, weights)
