"""The way to one API server: the Kubernetes client's configuration and sessions, JSON in pages and in lines."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson

from discovery.bounded import TooLargeError, read_bounded

CALL_SECONDS = 10.0
"""How long a call may take that is answered in one piece."""
CONNECT_SECONDS = 5.0
MAX_PAGE = 64 * 1024 * 1024
"""Largest answer that is read, in bytes."""
MAX_LINE = 8 * 1024 * 1024
"""Largest line of a watch, in bytes; an object in etcd has at most 1.5 MB."""
PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
"""How a silent connection is asked whether its other end still lives: a half-open one is over in half a minute."""


class ApiError(Exception):
    """The API server could not be asked, or answered otherwise than wished; ``status`` is 0 where it did not answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message if not status else f"HTTP {status}: {message}")
        self.status = status


class _Session:
    """One client, closed when it is no longer the one in use and its last call is over."""

    __slots__ = ("calls", "client", "retired")

    def __init__(self, client: Any) -> None:
        self.client, self.calls, self.retired = client, 0, False

    async def left(self) -> None:
        if self.retired and not self.calls:
            with suppress(OSError, TimeoutError, aiohttp.ClientError):
                await self.client.close()


class Api:
    """
    Calls one API server. Opens nothing before the first call, and starts anew after a call that got no answer.

    The ServiceAccount's token is read again every minute, and everything else at each new start, so that renewed tokens
    and authorities are taken up. Calls under way keep their session.

    Args:
        kubeconfig: File to use; None: the pod's ServiceAccount, or outside a pod the client's usual files.
        context: Of that file; empty: its current one.

    """

    def __init__(self, kubeconfig: Path | None = None, *, context: str = "") -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._session: _Session | None = None
        self._opening = asyncio.Lock()

    async def get(self, path: str, **query: str | int) -> Mapping[str, Any]:
        """
        One answer as a JSON object.

        Raises:
            ApiError: there was none, or it says no.

        """
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with self._called(path, query, timeout) as response:
            return _object(await whole(response))

    async def post(self, path: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        Send a JSON object and return the one that is answered.

        Raises:
            ApiError: there was none, or it says no.

        """
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with self._called(path, {}, timeout, entry) as response:
            return _object(await whole(response))

    async def lines(
        self, path: str, *, silent: float, **query: str | int
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """
        The objects of a watch as they come; ends where the server ends it.

        Args:
            path: Of the resource.
            silent: Longest time without a word, in seconds.
            query: Of the call.

        Raises:
            ApiError: the server says no, or the connection is lost or silent.

        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent)
        async with self._called(path, query, timeout) as response:
            _ask_for_life(response)
            rest = b""
            async for chunk in response.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    if line.strip():
                        yield _object(line)
                if len(rest) > MAX_LINE:
                    raise ApiError(0, f"a line of more than {MAX_LINE} bytes")

    async def close(self) -> None:
        """Close the session; a later call opens another."""
        if (session := self._session) is not None:
            await self._retire(session)

    @asynccontextmanager
    async def _called(
        self,
        path: str,
        query: Mapping[str, str | int],
        timeout: aiohttp.ClientTimeout,
        entry: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """A good answer, to be read within; a session that got none is not used again."""
        session: _Session | None = None
        try:
            session = await self._opened()
            session.calls += 1
            async with asyncio.timeout(CALL_SECONDS):
                response = await _request(session.client, path, query, timeout, entry)
            try:
                if response.status not in (200, 201):
                    raise ApiError(response.status, _message(await whole(response)))
                yield response
            finally:
                response.close()
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            if session is not None:
                await self._retire(session)
            raise ApiError(0, _reason(error)) from error
        except ApiError as error:
            if session is not None and error.status == 401:
                await self._retire(session)
            raise
        finally:
            if session is not None:
                session.calls -= 1
                await session.left()

    async def _opened(self) -> _Session:
        async with self._opening:
            if self._session is None:
                self._session = _Session(await _client(self._kubeconfig, self._context))
            return self._session

    async def _retire(self, session: _Session) -> None:
        session.retired = True
        if self._session is session:
            self._session = None
        await session.left()


def in_cluster(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a pod that may know an API server."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST"))


async def _request(
    client: Any,
    path: str,
    query: Mapping[str, str | int],
    timeout: aiohttp.ClientTimeout,
    entry: Mapping[str, Any] | None,
) -> aiohttp.ClientResponse:
    method = "GET" if entry is None else "POST"
    headers = {"Accept": "application/json", "User-Agent": "replicated-endpoint-picker"}
    try:
        auth = await client.configuration.auth_settings()
        await client.update_params_for_auth(headers, [], list(auth), path, method, entry)
    except Exception as error:
        raise OSError(f"no token: {error}") from error
    url = f"{client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
    answer = await client.call_api(method, url, header_params=headers, body=entry, _request_timeout=timeout)
    response: aiohttp.ClientResponse = answer.response
    return response


async def _client(kubeconfig: Path | None, context: str) -> Any:
    """A client of the Kubernetes package."""
    # the package takes most of a second to import, in which the loop has other work
    client, config = await asyncio.to_thread(_package)
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 32
    load: Any = config.load_kube_config
    try:
        if kubeconfig is None and in_cluster():
            await asyncio.to_thread(config.load_incluster_config, configuration)
        else:
            await load(
                None if kubeconfig is None else str(kubeconfig),
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        return await asyncio.to_thread(client.ApiClient, configuration)
    except Exception as error:
        raise OSError(f"no usable configuration of an API server: {error}") from error


def _package() -> tuple[Any, Any]:
    from kubernetes.aio import client, config

    return client, config


def _ask_for_life(response: aiohttp.ClientResponse) -> None:
    transport = response.connection.transport if response.connection is not None else None
    wire = None if transport is None else transport.get_extra_info("socket")
    if wire is None:
        return
    with suppress(OSError):
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES.items():
            if hasattr(socket, name):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """All of an answer of the API server. Raises `ApiError` where it is larger than `MAX_PAGE`."""
    try:
        return await read_bounded(response.content, most=MAX_PAGE)
    except TooLargeError as error:
        raise ApiError(0, f"an answer of {error}") from error


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ApiError(0, f"an answer that is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(0, "an answer that is no JSON object")
    return value


def _message(body: bytes) -> str:
    """What the server says in a Status, else the beginning of its words."""
    with suppress(ApiError):
        return str(_object(body).get("message") or "no reason given")[:500]
    return body[:200].decode(errors="replace") or "no reason given"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500].rstrip(": ")
