"""Every backend is held to the contract."""

from __future__ import annotations

import pytest

from stateplane.testing import CASES, Case, Harness, run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_plane_keeps_its_promise(case: Case, harness: Harness) -> None:
    await run(case, harness)
