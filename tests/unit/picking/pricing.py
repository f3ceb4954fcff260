"""Random pools with what is booked on them, and the check that a plane's choice is the cheapest by `core.cost`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest
from hypothesis import strategies as st

from picker.core.choose import Candidate, Demand, Offer, Surcharges, offer
from picker.core.cost import Weights, price, slopes, uncached_tokens
from picker.core.load import Load
from picker.core.match import Overlap
from stateplane.booking import NOTHING, Amount, Booking, Owner, Status, Terms
from stateplane.booking import Candidate as Offered
from stateplane.plane import StatePlane

ME = Owner("me", "1")


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Candidate], Demand, Weights]:
    """Workers with bookings, reports and cached prefixes, a request, and weights that the settings allow."""
    size = draw(st.sampled_from((1, 4, 16, 64)))
    full = draw(st.integers(0, 200))
    demand = Demand(full * size + draw(st.integers(0, size - 1)), full + 1, size)
    part = st.floats(0, 1)
    weights = Weights(
        prefill_scale=draw(st.floats(0, 10)), overlap_credit=draw(part), host_tier=draw(part),
        disk_tier=draw(part), request_weight=draw(st.floats(0, 100)),
    )  # fmt: skip
    return [_worker(draw, f"w{n}", full) for n in range(draw(st.integers(1, 12)))], demand, weights


surcharges = st.dictionaries(st.integers(0, 11).map(lambda n: f"w{n}"), st.floats(-(2.0**20), 2.0**20))
"""What criteria add to some of these workers' prices."""


def _worker(draw: st.DrawFn, name: str, full: int) -> Candidate:
    device = draw(st.integers(0, full))
    host = draw(st.integers(0, full - device))
    booked = Load(draw(st.integers(0, 50_000)), draw(st.integers(0, 4_000)), draw(st.integers(0, 40)))
    unbooked = Load(0, draw(st.floats(0, 500)), draw(st.integers(0, 20)))
    return Candidate(
        name, booked, unbooked, Overlap(device, host, draw(st.integers(0, full - device - host)))
    )


def offered(made: Offer, demand: Demand, weights: Weights, most: int = 0) -> list[Offered]:
    """The offer in the plane's words."""
    return [
        Offered(
            one.worker,
            base,
            Amount(round(uncached_tokens(demand, one.overlap, weights)), demand.blocks),
            most,
        )
        for one, base in zip(made.offered, made.bases, strict=True)
    ]


async def hold_to_the_price(
    plane: StatePlane,
    candidates: Sequence[Candidate],
    demand: Demand,
    weights: Weights,
    case: str,
    added: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """The plane takes a worker that is cheapest by the price of what it holds, whatever the view thought of it.

    ``added`` is what criteria add to the prices of workers.

    ``case`` keeps the workers of one case apart from those of all others on the same plane.
    """
    names = {one.worker: f"{case}/{one.worker}" for one in candidates}
    for one in candidates:
        if (held := Amount(*map(int, one.booked))) != NOTHING:
            name = names[one.worker]
            assert (await plane.book(Booking(name, "", name, ME, held))).status is Status.DONE
    blind = [one._replace(worker=names[one.worker], booked=Load()) for one in candidates]
    by_name = {name: added[worker] for worker, name in names.items() if worker in added}
    made = offer(blind, demand, weights, random.Random(1), len(blind), Surcharges({"criterion": by_name}))
    assert isinstance(made, Offer)
    assert made.complete
    outcome = await plane.select(
        Booking(f"{case}/chosen", "", "", ME, NOTHING), offered(made, demand, weights),
        Terms(*slopes(demand.block_size, weights)),
    )  # fmt: skip
    assert outcome.status is Status.DONE
    assert outcome.booking is not None
    prices = {
        names[one.worker]: price(demand, one.booked, one.unbooked, one.overlap, weights)
        + added.get(one.worker, 0.0)
        for one in candidates
    }
    assert prices[outcome.booking.worker] == pytest.approx(min(prices.values()), rel=1e-9, abs=1e-6)
