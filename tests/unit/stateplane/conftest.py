"""What tests of desks are given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.stateplane.desks import Pool, pool_of


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with pool_of() as pool:
        yield pool
