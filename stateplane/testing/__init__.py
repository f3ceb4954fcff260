"""The contract of a state plane, as cases that any backend can be held to.

Write a ``Harness`` for your backend and run every case against it::

    @pytest.mark.parametrize("case", stateplane.testing.CASES, ids=lambda case: case.__name__)
    async def test_my_plane(case):
        async with my_harness() as harness:
            await stateplane.testing.run(case, harness)

A case fails by AssertionError. After each one the sums of all pools are audited. Cases need an event loop, no network
of their own, and no test framework.
"""

from __future__ import annotations

from stateplane.testing import (
    bounded,
    exact,
    fenced,
    honest,
    life,
    ordered,
    paused,
    rebuildable,
    repeatable,
    selecting,
)
from stateplane.testing.world import RULES, Case, Harness, World, run

CASES: tuple[Case, ...] = tuple(
    case
    for module in (life, bounded, repeatable, fenced, ordered, exact, rebuildable, paused, honest, selecting)
    for case in module.CASES
)
"""Every case; the ones of ``selecting`` only where the plane has that capability (``run`` leaves them out else)."""

__all__ = ["CASES", "RULES", "Case", "Harness", "World", "run"]
