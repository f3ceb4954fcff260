"""Fetches pages of workers: plain, whole, and no larger than is allowed. Workers are not trusted."""

from __future__ import annotations

import aiohttp

from discovery.bounded import TooLargeError, read_bounded


class PageError(Exception):
    """A page that is not to be had: ``kind`` is ``refused`` or ``too_large``, the text says what happened."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def session_for(
    accept: str, *, seconds: float, connector: aiohttp.BaseConnector | None = None
) -> aiohttp.ClientSession:
    """A session whose every answer takes ``seconds`` at most; it keeps no cookies and unpacks nothing.

    A small answer must not unpack into a large one.
    """
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity", "Accept": accept},
    )


async def fetch(session: aiohttp.ClientSession, url: str, *, most: int) -> bytes:
    """The page at that address, of at most so many bytes; redirects are never followed.

    Raises:
        PageError: it answered something else than 200, packed, or with too much.
    """
    async with session.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise PageError("refused", f"it answered {response.status}")
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise PageError("refused", f"it answered in {encoding[:20]!r}, which was not asked for")
        try:
            return await read_bounded(response.content, most=most)
        except TooLargeError as error:
            response.close()
            raise PageError("too_large", f"its page is larger than {most} bytes") from error
