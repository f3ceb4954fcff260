"""Price and choice against the formula written out, ties, temperature, fallbacks and reasons."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.choose import AllFull, Candidate, Choice, Demand, NoWorker, choose
from picker.core.cost import Weights, cached_tokens, price, uncached_tokens
from picker.core.load import NO_LOAD, Load
from picker.core.match import Overlap
from picker.core.worker import worker_address

loads = st.builds(Load, st.integers(0, 10**6), st.integers(0, 10**5) | st.floats(0, 1e5), st.integers(0, 500))
overlaps = st.builds(Overlap, st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
shares = st.floats(0, 1)
weights = st.builds(Weights, st.floats(0, 10), shares, shares, shares, st.floats(0, 10))
demands = st.builds(Demand, st.integers(0, 200_000), st.integers(0, 20_000), st.integers(1, 256))
candidates = st.lists(
    st.builds(
        Candidate,
        st.integers(0, 40).map(lambda n: f"10.0.0.{n % 10}:8000" + (f"@{n // 10}" if n >= 10 else "")),
        loads,
        loads,
        overlaps,
        st.sampled_from([0, 0, 1, 200]),
        st.sampled_from(["", "", "", "asleep"]),
    ),
    max_size=12,
    unique_by=lambda c: c.worker,
)


def oracle(demand: Demand, c: Candidate, w: Weights) -> float:
    """The price as the design writes it."""
    cached = w.overlap_credit * (
        c.overlap.device + w.host_tier * c.overlap.host + w.disk_tier * c.overlap.disk
    )
    active_tokens = c.booked.prefill_tokens + c.unbooked.prefill_tokens
    blocks = c.booked.blocks + c.unbooked.blocks + demand.blocks
    requests = c.booked.requests + c.unbooked.requests
    to_compute = max(active_tokens + demand.prompt_tokens - cached * demand.block_size, 0)
    return w.prefill_scale * to_compute / demand.block_size + blocks + w.request_weight * requests


def open_to(given: list[Candidate]) -> list[Candidate]:
    return [c for c in given if not c.barred and not 0 < c.max_requests <= c.booked.requests]


@given(candidates, demands, weights, st.integers(0, 3), st.integers())
def test_the_cheapest_open_worker_wins_and_every_number_is_told(
    given: list[Candidate], demand: Demand, w: Weights, fallbacks: int, seed: int
) -> None:
    choice = choose(given, demand, w, Random(seed), fallbacks)
    free = open_to(given)
    prices = {c.worker: oracle(demand, c, w) for c in free}
    assert {r.worker for r in choice.reasons} == {c.worker for c in given}
    for reason in choice.reasons:
        if reason.worker in prices:
            assert not reason.left_out
            assert reason.price == pytest.approx(prices[reason.worker], rel=1e-9, abs=1e-6)
            assert reason.prefill + reason.decode + reason.requests == pytest.approx(reason.price)
        else:
            assert reason.price is None
            assert reason.left_out in ("full", "asleep")
    if not free:
        assert isinstance(choice, NoWorker if all(c.barred for c in given) else AllFull)
        return
    assert isinstance(choice, Choice)
    assert choice.reason.price == min(r.price for r in choice.reasons if r.price is not None)
    assert prices[choice.worker] == pytest.approx(min(prices.values()), rel=1e-9, abs=1e-6)
    assert choice.reason == next(r for r in choice.reasons if r.worker == choice.worker)
    _fallbacks_are_the_next_best(choice, prices, fallbacks)


def _fallbacks_are_the_next_best(choice: Choice, prices: dict[str, float], wanted: int) -> None:
    addresses = [worker_address(name) for name in (choice.worker, *choice.fallbacks)]
    assert len(set(addresses)) == len(addresses)
    assert len(choice.fallbacks) == min(wanted, len({worker_address(name) for name in prices}) - 1)
    listed = [prices[name] for name in choice.fallbacks]
    assert all(a <= b + 1e-6 + b * 1e-9 for a, b in pairwise(listed))
    others = [cost for name, cost in prices.items() if worker_address(name) not in addresses]
    if listed and others:
        assert max(listed) <= min(others) * (1 + 1e-9) + 1e-6


@given(candidates, demands, weights)
def test_the_price_paid_is_the_price_function_digit_for_digit(
    given: list[Candidate], demand: Demand, w: Weights
) -> None:
    choice = choose(given, demand, w, Random(1))
    for candidate, reason in ((c, r) for c in given for r in choice.reasons if r.worker == c.worker):
        exact = price(demand, candidate.booked, candidate.unbooked, candidate.overlap, w)
        assert reason.price in (None, exact)
    free = open_to(given)
    if isinstance(choice, Choice):
        assert choice.reason.price == min(price(demand, c.booked, c.unbooked, c.overlap, w) for c in free)


@given(loads, loads, overlaps, demands, weights)
def test_the_price_is_a_base_plus_a_rate_times_what_is_booked(
    booked: Load, unbooked: Load, overlap: Overlap, demand: Demand, w: Weights
) -> None:
    """So that a plane can price with sums alone. It holds while no more is cached than the prompt is long."""
    if cached_tokens(overlap, demand.block_size, w) > demand.prompt_tokens:
        return
    base = price(demand, NO_LOAD, unbooked, overlap, w)
    rates = (w.prefill_scale / demand.block_size, 1.0, w.request_weight)
    added = sum(rate * part for rate, part in zip(rates, booked, strict=True))
    assert price(demand, booked, unbooked, overlap, w) == pytest.approx(base + added, rel=1e-9, abs=1e-6)


def plain(*prices: int) -> list[Candidate]:
    return [Candidate(f"10.0.0.{n}:8000", booked=Load(0, blocks)) for n, blocks in enumerate(prices)]


SMALL = Demand(16, 1, 16)


def test_ties_are_broken_at_random_over_all_of_them() -> None:
    rng = Random(5)
    won = Counter(_worker(choose(plain(3, 1, 1, 2, 1), SMALL, Weights(), rng)) for _ in range(3000))
    assert set(won) == {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.4:8000"}
    assert min(won.values()) > 800


def _worker(choice: Choice | NoWorker | AllFull) -> str:
    assert isinstance(choice, Choice)
    return choice.worker


def test_with_a_temperature_workers_are_drawn_by_softmax_of_their_prices() -> None:
    rng, temperature, prices = Random(5), 0.7, (0, 5, 10)
    drawn = Counter(
        _worker(choose(plain(*prices), SMALL, Weights(temperature=temperature), rng)) for _ in range(20_000)
    )
    odds = [math.exp(-(p - 0) / (10 * temperature)) for p in prices]
    for n, odd in enumerate(odds):
        assert drawn[f"10.0.0.{n}:8000"] / 20_000 == pytest.approx(odd / sum(odds), abs=0.02)


@pytest.mark.parametrize("temperature", [1e-320, 1e-12, 1.0, 1e9])
def test_no_temperature_breaks_the_draw(temperature: float) -> None:
    w = Weights(temperature=temperature)
    assert _worker(choose(plain(7), SMALL, w, Random(1))) == "10.0.0.0:8000"
    assert {_worker(choose(plain(1, 1), SMALL, w, Random(n))) for n in range(50)} == {
        "10.0.0.0:8000",
        "10.0.0.1:8000",
    }
    if temperature < 1e-6:
        assert _worker(choose(plain(9, 3, 9), SMALL, w, Random(1))) == "10.0.0.1:8000"


def test_a_limit_counts_booked_requests_and_unbooked_ones_do_not_fill_it() -> None:
    full = Candidate("a:1", Load(0, 0, 4), max_requests=4)
    free = Candidate("b:1", Load(0, 500, 3), Load(0, 500, 9), max_requests=4)
    choice = choose([full, free], SMALL, Weights(), Random(1))
    assert _worker(choice) == "b:1"
    assert [r.left_out for r in choice.reasons] == ["", "full"]
    assert isinstance(choose([full], SMALL, Weights(), Random(1)), AllFull)


def test_nobody_to_choose_from_is_a_value() -> None:
    none = choose([], SMALL, Weights(), Random(1), 2)
    assert isinstance(none, NoWorker)
    assert none.reasons == ()
    assert isinstance(choose([Candidate("a:1", barred="asleep")], SMALL, Weights(), Random(1)), NoWorker)
    mixed = [Candidate("a:1", barred="asleep"), Candidate("b:1", Load(0, 0, 1), max_requests=1)]
    assert isinstance(choose(mixed, SMALL, Weights(), Random(1)), AllFull)


def test_reasons_are_plain_values_for_any_json_encoder() -> None:
    given = [Candidate("a:1", Load(1, 2, 3), overlap=Overlap(4, 5, 6)), Candidate("b:1", barred="asleep")]
    shown = [reason.shown() for reason in choose(given, SMALL, Weights(), Random(1)).reasons]
    assert json.loads(json.dumps(shown))[0]["overlap"] == {"device": 4, "host": 5, "disk": 6}
    assert shown[1]["left_out"] == "asleep"


def test_what_a_booking_carries_is_the_prompt_less_what_is_credited() -> None:
    demand = Demand(1000, 63, 16)
    assert uncached_tokens(demand, Overlap(20, 8, 4), Weights()) == 1000 - 16 * (20 + 6 + 1)
    assert uncached_tokens(demand, Overlap(20), Weights(overlap_credit=0)) == 1000
    assert uncached_tokens(demand, Overlap(100), Weights()) == 0


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_a_weight_that_is_no_weight_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="request_weight"):
        Weights(request_weight=value)
