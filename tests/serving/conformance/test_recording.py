"""What the real Envoy says today is what stands in the transcripts, but for times and the cut of bytes into pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.transcripts.cases import CASES, Case
from tests.transcripts.record import Recorder, recording
from tests.transcripts.transcript import FOLDER, gist, read

TRIES = 3
"""A busy machine may turn round who was faster, the client that leaves or the answer."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorder(transport: str) -> AsyncIterator[Recorder]:
    async with recording(CASES) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_fresh_recording_says_what_the_stored_one_says(recorder: Recorder, case: Case) -> None:
    stored = gist(read(FOLDER / f"{case.name}.txt"))
    for _ in range(TRIES - 1):
        if gist(await recorder.record(case)) == stored:
            return
    assert gist(await recorder.record(case)) == stored
