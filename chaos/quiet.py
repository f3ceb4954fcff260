"""Is a pool quiet? Between scenarios nothing may be left of the one before."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from chaos.targets.local import Local


async def is_quiet(target: Local, http: aiohttp.ClientSession) -> bool:
    """Whether no engine carries anything, no replica books anything, and every replica stands well to its plane."""
    limit = aiohttp.ClientTimeout(total=1.5)

    async def page(url: str) -> Any:
        async with http.get(f"http://{url}", timeout=limit) as response:
            return await response.json(content_type=None)

    admins, engines = target.replicas().values(), target.engines().values()
    try:
        loads = await asyncio.gather(*(page(f"{each}/debug/load") for each in engines))
        views = await asyncio.gather(*(page(f"{each}/bookings.json") for each in admins))
        pages = await asyncio.gather(*(page(f"{each}/status.json") for each in admins))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return False
    return (
        not any(each["requests"] for each in loads)
        and not any(each["bookings"] for each in views)
        and all(each["plane"]["state"] == "healthy" and not each["plane"]["owing"] for each in pages)
        and all(len(each["members"]) == len(pages) for each in pages)
    )
