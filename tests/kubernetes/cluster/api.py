"""A small client of the API server: JSON calls, and lists that stay up to date."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CALL_SECONDS = 30.0
RETRY_SECONDS = 0.3


class ApiError(Exception):
    """What the server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Calls to one server with one token; an asynchronous context manager. The server's certificate is not verified."""

    def __init__(self, server: str, token: str) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self.server,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=False, limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS),
            read_bufsize=8 << 20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        assert self._session is not None, "the client is not open"
        return self._session

    async def call(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> Object:
        """One call; raises ApiError for an answer above 299, and aiohttp's errors where there is none."""
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers={"Content-Type": kind}) as response:
            text = await response.text()
            if response.status > 299:
                raise ApiError(response.status, text[:1000])
            found: Object = json.loads(text) if text.startswith("{") else {}
            return found

    async def get(self, path: str) -> Object:
        """One object, or a list."""
        return await self.call("GET", path)

    async def ready(self) -> bool:
        """Whether the server says that it serves; for a probe, so errors may leave it."""
        async with self.session.get("/readyz") as response:
            return response.status == 200


Changed = Callable[[str, Object], None]
"""Called with `ADDED`, `MODIFIED` or `DELETED` and the object, right when it is known."""


class Mirror:
    """All objects of a kind, kept up to date by a watch until `run` is cancelled; survives the server's restarts."""

    def __init__(self, api: Api, path: str, changed: Changed) -> None:
        self.objects: dict[str, Object] = {}
        """By uid."""
        self.synced = asyncio.Event()
        self._api, self._path, self._changed = api, path, changed

    async def run(self) -> None:
        """List, watch, and begin anew when the watch breaks."""
        while True:
            try:
                await self._watch(await self._list())
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self) -> str:
        page = await self._api.get(self._path)
        found = {item["metadata"]["uid"]: item for item in page["items"]}
        for uid in self.objects.keys() - found.keys():
            self._changed("DELETED", self.objects.pop(uid))
        for uid, item in found.items():
            event = "MODIFIED" if uid in self.objects else "ADDED"
            self.objects[uid] = item
            self._changed(event, item)
        self.synced.set()
        return str(page["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        more = f"watch=1&resourceVersion={version}&timeoutSeconds=600"
        path = f"{self._path}{'&' if '?' in self._path else '?'}{more}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._api.session.get(path, timeout=timeout) as response:
            if response.status != 200:
                raise ApiError(response.status, await response.text())
            async for line in response.content:
                event = json.loads(line)
                if event["type"] not in {"ADDED", "MODIFIED", "DELETED"}:
                    return
                uid = event["object"]["metadata"]["uid"]
                if event["type"] == "DELETED":
                    self.objects.pop(uid, None)
                else:
                    self.objects[uid] = event["object"]
                self._changed(event["type"], event["object"])


def timestamp(seconds: float | None = None) -> str:
    """A time as the API writes it; now, where none is given."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def named(item: Mapping[str, Any]) -> str:
    """`namespace/name`."""
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
