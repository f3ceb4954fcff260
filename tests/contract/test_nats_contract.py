"""The NATS plane is held to the contract, on memory and on file storage."""

from __future__ import annotations

import pytest

from stateplane.testing import CASES, Case, run, selecting
from tests.contract.natsserver import NatsHarness

OURS = [case for case in CASES if case not in selecting.CASES]


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.__name__)
async def test_the_nats_plane_keeps_its_promise(case: Case, nats_harness: NatsHarness) -> None:
    await run(case, nats_harness)
