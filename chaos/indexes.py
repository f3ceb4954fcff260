"""Compares what replicas believe of prefix caches with what engines hold, once nothing is carried any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from chaos.checkers.events import NOTE
from chaos.run import Run

_TIMEOUT = aiohttp.ClientTimeout(total=3)


async def compare_indexes(run: Run, *, seconds: float = 15.0) -> None:
    """End the load, wait until every index is what the engines hold, so long at most, and note what was found."""
    await run.sender.stop()
    begun = time.monotonic()
    held: Mapping[str, int] = {}
    told: Mapping[str, Mapping[str, int]] = {}
    while True:
        try:
            held, told = await _look(run)
        except (aiohttp.ClientError, OSError, TimeoutError, KeyError):
            held, told = {}, {}
        waited = time.monotonic() - begun
        if waited > seconds or (held and all(held == counts for counts in told.values())):
            break
        await asyncio.sleep(0.2)
    run.note(NOTE, held=held, told=told, waited=round(waited, 3))


async def _look(run: Run) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    async def page(url: str) -> Any:
        async with run.http.get(f"http://{url}", timeout=_TIMEOUT) as response:
            return await response.json(content_type=None)

    engines, replicas = run.target.engines(), run.target.replicas()
    held = {address: (await page(f"{address}/debug/blocks"))["count"] for address in engines.values()}
    told = {}
    for name, admin in replicas.items():
        workers = (await page(f"{admin}/status.json"))["workers"]
        told[name] = {each["name"]: each["index_blocks"] for each in workers}
    return held, told
