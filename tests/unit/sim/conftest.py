from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from picker.sim.engine.options import Options
from picker.sim.engine.scheduler import Pace
from picker.sim.engine.server import Server

QUICK = Pace(prefill_seconds_per_token=0.00001, decode_seconds=0.001)

StartEngine = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    """Starts simulated engines in this process, quick ones unless told otherwise, and ends them."""
    async with AsyncExitStack() as stack:

        async def start(**told: Any) -> Server:
            server = Server(Options(**{"pace": QUICK, **told}))
            await server.start()
            stack.push_async_callback(server.stop)
            return server

        yield start


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as opened:
        yield opened


async def _until(holds: Callable[[], bool], *, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is watched is another part's plain state
            await asyncio.sleep(0.005)


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits for a condition; fails when it does not come."""
    return _until
