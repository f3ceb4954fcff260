"""Reads what others answer in bounds: who is asked is not trusted with our memory."""

from __future__ import annotations

import aiohttp


class TooLargeError(Exception):
    """There was more than was allowed."""


async def read_bounded(content: aiohttp.StreamReader, *, most: int) -> bytes:
    """All of an answer's body. Raises `TooLargeError` as soon as there are more than ``most`` bytes."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > most:
            raise TooLargeError(f"more than {most} bytes")
    return bytes(body)
