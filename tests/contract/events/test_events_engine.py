"""The simulated engine, which evicts as engines do and encodes by its own code, followed in every encoding it knows."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
import pytest

from picker.core.blocks import sequence_hashes
from picker.sim.engine.dialects import DIALECTS
from picker.sim.engine.options import Options
from picker.sim.engine.scheduler import Pace
from picker.sim.engine.server import Server

BLOCK = 4  # the pool's, in conftest
FAST = Pace(prefill_seconds_per_token=0.0, decode_seconds=0.001)


class Followed:
    """The simulated engine as the event path's fixtures want an engine."""

    def __init__(self, server: Server) -> None:
        publisher = server.engine.publisher
        assert publisher is not None
        self.events, self.replay = publisher.live, publisher.replay


async def truth(session: aiohttp.ClientSession) -> set[int]:
    """What the engine holds, prefix-closed, in our hashes, by way of its own page of blocks."""
    async with session.get("/debug/blocks") as page:
        resident = {each["hash"]: each for each in (await page.json())["blocks"]}
    closed: set[int] = set()
    for block in resident.values():
        chain: list[int] = []
        at: Any = block
        while at is not None:
            chain[:0] = at["tokens"]
            if at["parent"] is None:
                closed.update(sequence_hashes(chain, BLOCK, lora=at["lora"] or "", salt=at["salt"] or ""))
                break
            at = resident.get(at["parent"])
    return closed


@pytest.mark.parametrize("dialect", list(DIALECTS))
@pytest.mark.parametrize("raw", [False, True], ids=["int", "raw"])
async def test_an_engine_under_eviction_is_followed_block_by_block(
    path: Any, until: Any, tmp_path: Any, dialect: str, raw: bool
) -> None:
    named = dialect != "vllm-array-0.10"
    server = Server(
        Options(
            pace=FAST, block_size=BLOCK, blocks=80, dialect=dialect, kv_raw_hashes=raw, loras=("ad",),
            kv_events=f"ipc://{tmp_path}/e", kv_replay=f"ipc://{tmp_path}/r", max_model_len=400,
        )
    )  # fmt: skip
    await server.start()
    try:
        path.bridge(Followed(server))
        replica = path.replica()
        rng = random.Random(dialect)
        async with aiohttp.ClientSession(server.url) as session:

            async def ask() -> None:
                shared = [7] * (BLOCK * rng.randrange(6))
                body: dict[str, Any] = {
                    "model": "ad" if named and rng.random() < 0.2 else server.options.model,
                    "prompt": shared + [rng.randrange(100) for _ in range(rng.randrange(4, 60))],
                    "max_tokens": rng.randrange(1, 20),
                }
                if named and rng.random() < 0.2:
                    body["cache_salt"] = "pepper"
                async with session.post("/v1/completions", json=body) as answer:
                    assert answer.status == 200, await answer.text()

            for _ in range(30):
                await asyncio.gather(*(ask() for _ in range(3)))
            late = path.replica()
            expected = await truth(session)
            assert len(expected) > 20
            await until(lambda: replica.recovered and replica.held == expected == late.held)
            assert not replica.partial
    finally:
        await server.stop()
