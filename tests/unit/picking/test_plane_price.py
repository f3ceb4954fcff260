"""The memory plane's choice is that of the price."""

from __future__ import annotations

from hypothesis import given

from picker.core.choose import Candidate, Demand
from picker.core.cost import Weights
from stateplane.booking import Rules
from stateplane.memory import MemoryPlane, MemoryStore
from tests.unit.picking.pricing import ME, hold_to_the_price, pools, surcharges


@given(pools(), surcharges)
async def test_the_memory_plane_takes_the_cheapest_by_the_price(
    pool: tuple[list[Candidate], Demand, Weights], added: dict[str, float]
) -> None:
    plane = MemoryPlane(MemoryStore(Rules()), owner=ME)
    await plane.start({})
    await hold_to_the_price(plane, *pool, case="only", added=added)
