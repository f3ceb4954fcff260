"""What tests ask a trial: its replicas for their pages, its gateway for answers."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from picker.sim.model import MODEL
from tests.kubernetes.cluster import trial

ADMIN_PORT = 9090
PICKS = "endpoint_picker_requests_total"


@dataclass(frozen=True, slots=True)
class Answer:
    """Who answered, and how much of the prompt it had already."""

    worker: str
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Asking:
    """An open client."""

    session: aiohttp.ClientSession

    async def status(self, address: str) -> dict[str, Any]:
        """`/status.json` of the replica at an address."""
        url = f"http://{address}:{ADMIN_PORT}/status.json"
        headers = {"Authorization": f"Bearer {trial.ADMIN_TOKEN}"}
        async with self.session.get(url, headers=headers) as response:
            page: dict[str, Any] = await response.json()
            assert response.status == 200, page
            return page

    async def picks(self, addresses: Mapping[str, str]) -> Counter[str]:
        """How often each replica was asked since it started; by name."""
        return Counter(
            dict(zip(addresses, await asyncio.gather(*map(self._picks, addresses.values())), strict=True))
        )

    async def _picks(self, address: str) -> int:
        async with self.session.get(f"http://{address}:{ADMIN_PORT}/metrics") as response:
            assert response.status == 200
            families = text_string_to_metric_families(await response.text())
            return int(
                sum(each.value for family in families for each in family.samples if each.name == PICKS)
            )

    async def answer(self, gateway: str, prompt: str = "", *, tokens: int = 2) -> Answer:
        """Send one completion."""
        body = {
            "model": MODEL,
            "prompt": prompt or f"{uuid.uuid4()} tell me of the sea",
            "max_tokens": tokens,
        }
        async with self.session.post(f"{gateway}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            usage = (await response.json())["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            return Answer(response.headers["x-sim-worker"], usage["prompt_tokens"], cached)

    async def answers(self, gateway: str, count: int, *, at_once: int = 6) -> Counter[str]:
        """Send so many different ones; how many each engine answered."""
        gate = asyncio.Semaphore(at_once)

        async def one() -> str:
            async with gate:
                return (await self.answer(gateway)).worker

        return Counter(await asyncio.gather(*(one() for _ in range(count))))


@asynccontextmanager
async def asking() -> AsyncIterator[Asking]:
    """A client until the block is left."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield Asking(session)


async def until(look: Callable[[], Awaitable[bool]], *, seconds: float, what: str) -> float:
    """Wait until a look finds what it looks for; the seconds that it took. TimeoutError that says what did not come."""
    begun = time.monotonic()
    while not await look():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - begun
