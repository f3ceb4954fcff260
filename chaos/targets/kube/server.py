"""Calls to one API server, by the Kubernetes client's own configuration: kubeconfig, contexts, plug-ins for tokens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp
import orjson

from discovery.kubernetes.api import CALL_SECONDS, CONNECT_SECONDS, ApiError, in_cluster, whole

MERGE = "application/merge-patch+json"
AGENT = "picker-chaos"
_GOOD = range(200, 300)


class Server:
    """One API server. Opens nothing before the first call; every call has its time.

    ``kubeconfig``: the file to use; empty: the pod's ServiceAccount, or outside a pod the client's usual files.
    """

    def __init__(self, kubeconfig: str = "", *, context: str = "") -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._sockets: aiohttp.ClientSession | None = None

    async def get(self, path: str, **query: str | int) -> Mapping[str, Any]:
        """One object, or one list. Raises ApiError."""
        return await self.call("GET", path, query=query)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> Mapping[str, Any]:
        """One call and its answer as a JSON object. Raises ApiError: there was none, or it says no."""
        url = path + (f"?{urlencode(query)}" if query else "")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                client = await self._opened()
                headers = await self._headers(client, method, path)
                headers["Content-Type"] = content
                limit = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
                answer = await client.call_api(
                    method, f"{client.configuration.host}{url}", header_params=headers,
                    body=None if body is None else dict(body), _request_timeout=limit,
                )  # fmt: skip
                async with answer.response as response:
                    return _object(response.status, await whole(response))
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise ApiError(0, _reason(error)) from error

    async def dial(
        self, path: str, *, protocol: str, query: Mapping[str, str | int]
    ) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a path of the server. Raises ApiError."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                client = await self._opened()
                headers = await self._headers(client, "GET", path)
                if self._sockets is None:
                    connector = aiohttp.TCPConnector(ssl=client.rest_client.ssl_context, limit=0)
                    self._sockets = aiohttp.ClientSession(connector=connector, trust_env=True)
                scheme, *rest = urlsplit(f"{client.configuration.host}{path}?{urlencode(query)}")
                url = urlunsplit(({"https": "wss"}.get(scheme, "ws"), *rest))
                return await self._sockets.ws_connect(
                    url, protocols=(protocol,), headers=headers, max_msg_size=0
                )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, f"port-forward: {error.message}") from error
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise ApiError(0, _reason(error)) from error

    async def close(self) -> None:
        """End all sessions."""
        if self._sockets is not None:
            await self._sockets.close()
            self._sockets = None
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _headers(self, client: Any, method: str, path: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": AGENT}
        try:
            auth = await client.configuration.auth_settings()
            await client.update_params_for_auth(headers, [], list(auth), path, method, None)
        except Exception as error:
            raise ApiError(0, f"no token for the API server: {error}") from error
        return headers

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await _client(self._kubeconfig, self._context)
            return self._client


async def _client(kubeconfig: str, context: str) -> Any:
    """A client of the Kubernetes package."""
    client, config = await asyncio.to_thread(_package)
    configuration = client.Configuration()
    configuration.retries = False
    try:
        if not kubeconfig and in_cluster(os.environ):
            await asyncio.to_thread(config.load_incluster_config, configuration)
        else:
            file = str(Path(kubeconfig)) if kubeconfig else None
            await config.load_kube_config(
                file, context=context or None, client_configuration=configuration, persist_config=False
            )
        return await asyncio.to_thread(client.ApiClient, configuration)
    except Exception as error:
        raise ApiError(0, f"no usable configuration of an API server: {error}") from error


def _package() -> tuple[Any, Any]:
    from kubernetes.aio import client, config

    return client, config


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"the API server did not answer within {CALL_SECONDS:g} s"
    return f"{type(error).__name__}: {error}"[:500].rstrip(": ")


def _object(status: int, body: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if status in _GOOD:
            raise ApiError(0, f"an answer that is no JSON: {error}") from error
        raise ApiError(status, body[:200].decode(errors="replace") or "no reason given") from error
    if not isinstance(value, dict):
        raise ApiError(0, "an answer that is no JSON object")
    if status not in _GOOD:
        raise ApiError(status, str(value.get("message") or "no reason given")[:500])
    return value
