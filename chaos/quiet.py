"""Is a pool quiet, is a replica busy? Between scenarios nothing may be left; before a fault something must be there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from chaos.targets import Target


async def is_quiet(target: Target, http: aiohttp.ClientSession) -> bool:
    """Whether no engine carries anything, no replica books anything, and every replica stands well to its plane."""
    limit = aiohttp.ClientTimeout(total=1.5)

    async def page(url: str, headers: Mapping[str, str]) -> Any:
        async with http.get(f"http://{url}", timeout=limit, headers=headers) as response:
            return await response.json(content_type=None)

    admins, engines, shown = list(target.replicas().values()), target.truths().values(), target.headers
    try:
        loads = await asyncio.gather(*(page(f"{each}/debug/load", {}) for each in engines))
        views = await asyncio.gather(*(page(f"{each}/bookings.json", shown) for each in admins))
        pages = await asyncio.gather(*(page(f"{each}/status.json", shown) for each in admins))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return False
    if not all(isinstance(each, dict) for each in (*loads, *views, *pages)):
        return False
    return (
        not any(each["requests"] for each in loads)
        and not any(each["bookings"] for each in views)
        and all(each["plane"]["state"] == "healthy" and not each["plane"]["owing"] for each in pages)
        and all(len(each["members"]) == len(pages) for each in pages)
    )


async def own_bookings(target: Target, http: aiohttp.ClientSession, replica: str) -> int:
    """How many bookings of its own a replica shows; none where it does not answer, or is gone."""
    limit = aiohttp.ClientTimeout(total=1.5)
    try:
        url = f"http://{target.replicas()[replica]}/bookings.json"
        async with http.get(url, timeout=limit, headers=target.headers) as response:
            page = await response.json(content_type=None)
        return sum(each["owner"].startswith(f"{replica}/") for each in page["bookings"])
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return 0
