"""What is added to prices counts in every choice as part of the price, and is told by name."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.choose import AllFull, Candidate, Choice, Demand, Offer, Surcharges, choose, offer
from picker.core.cost import Weights, price
from picker.core.load import Load

DEMAND = Demand(64, 4, 16)
blocks = st.floats(-(2.0**20), 2.0**20)


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Candidate], Surcharges, dict[str, float]]:
    held = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=10))
    candidates = [Candidate(f"10.0.0.{n}:80", Load(0, each, 1)) for n, each in enumerate(held)]
    worker = st.sampled_from([one.worker for one in candidates])
    by = draw(st.dictionaries(st.sampled_from(["x", "y", "z"]), st.dictionaries(worker, blocks)))
    totals = {one.worker: sum(part.get(one.worker, 0.0) for part in by.values()) for one in candidates}
    return candidates, Surcharges(by), totals


@given(pools(), st.integers())
def test_the_cheapest_with_what_is_added_wins_and_the_reasons_add_up(
    pool: tuple[list[Candidate], Surcharges, dict[str, float]], seed: int
) -> None:
    candidates, added, totals = pool
    choice = choose(candidates, DEMAND, Weights(), Random(seed), 3, added)
    assert isinstance(choice, Choice)
    prices = {
        one.worker: price(DEMAND, one.booked, one.unbooked, one.overlap, Weights()) + totals[one.worker]
        for one in candidates
    }
    assert prices[choice.worker] == pytest.approx(min(prices.values()), abs=1e-6)
    listed = [prices[name] for name in (choice.worker, *choice.fallbacks)]
    assert listed == sorted(listed)
    for reason in choice.reasons:
        assert reason.price == pytest.approx(prices[reason.worker], abs=1e-6)
        parts = reason.prefill + reason.decode + reason.requests + sum(part for _, part in reason.added)
        assert parts == pytest.approx(reason.price, abs=1e-6)
    assert choice.reason.price == min(r.price for r in choice.reasons if r.price is not None)


@given(pools(), st.integers())
def test_an_offer_carries_what_is_added_in_its_bases_and_its_order(
    pool: tuple[list[Candidate], Surcharges, dict[str, float]], seed: int
) -> None:
    candidates, added, totals = pool
    made = offer(candidates, DEMAND, Weights(), Random(seed), 2, added)
    assert isinstance(made, Offer)
    told = {one.worker: base + one.booked.blocks for one, base in zip(made.offered, made.bases, strict=True)}
    prices = {
        one.worker: price(DEMAND, one.booked, one.unbooked, one.overlap, Weights()) + totals[one.worker]
        for one in candidates
    }
    for worker, cost in told.items():
        assert cost == pytest.approx(prices[worker], abs=1e-6)
    assert sorted(told.values()) == pytest.approx(sorted(prices.values())[:2], abs=1e-6)
    best = min(told, key=lambda name: told[name])
    choice = made.taken(best, Random(1), fallbacks=1)
    assert choice.reasons == choose(candidates, DEMAND, Weights(), Random(1), 0, added).reasons


def test_nothing_added_is_the_plain_choice() -> None:
    candidates = [Candidate(f"10.0.0.{n}:80", Load(0, n, 1)) for n in range(4)]
    plain = choose(candidates, DEMAND, Weights(), Random(1))
    assert plain.reasons == choose(candidates, DEMAND, Weights(), Random(1), 0, Surcharges({})).reasons
    assert {reason.added for reason in plain.reasons} == {()}


def test_a_worker_barred_as_full_is_full_and_not_out_of_the_question() -> None:
    some = [Candidate("a:1", barred="full"), Candidate("b:1", barred="zone: it is another")]
    none = choose(some, DEMAND, Weights(), Random(1))
    assert isinstance(none, AllFull)
    assert dict(none.left_out) == {"full": 1, "zone: it is another": 1}
