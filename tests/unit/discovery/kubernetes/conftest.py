"""A small API server of the tests' own: lists in pages, watches, bookmarks, expired versions, errors, silence."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from discovery.kubernetes.api import Api
from discovery.kubernetes.mirror import Pace

Object = dict[str, Any]
QUICK = Pace(watch=4.0, silence=0.5, first=0.02, longest=0.1, missing=0.1)


@dataclass
class ApiServer:
    """Objects by path, and how the server behaves."""

    objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    version: int = 10
    oldest: int = 0
    """Watches from before this version are told that it has expired."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Answers other than 200, by path."""
    silent: bool = False
    """Takes calls and never answers, and says nothing more on watches."""
    token: str = "first"
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    made: list[tuple[str, Object]] = field(default_factory=list)
    """What was sent to be created, by path."""
    creates: dict[str, Callable[[Object], Object]] = field(default_factory=dict)
    """What is answered to that, by path."""
    page_most: int = 500
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    history: list[tuple[int, str, str, Object]] = field(default_factory=list)
    watches: set[asyncio.Task[None]] = field(default_factory=set)
    _told: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def put(self, path: str, entry: Object) -> None:
        """Add or change an object, as a client of the server would."""
        kind = self.objects.setdefault(path, {})
        name = entry["metadata"]["name"]
        self._change(path, "MODIFIED" if name in kind else "ADDED", entry)
        kind[name] = entry

    def delete(self, path: str, name: str) -> None:
        """Take an object away."""
        self._change(path, "DELETED", self.objects[path].pop(name))

    def say(self, path: str, kind: str, entry: Object) -> None:
        """Send this on the watches of a path, whatever it is."""
        self.version += 1
        self.history.append((self.version, path, kind, entry))
        self._wake()

    def forget(self) -> None:
        """Compact: versions up to now have expired."""
        self.version += 1
        self.oldest = self.version

    def lists(self, path: str) -> list[dict[str, str]]:
        """The queries of all lists of a path."""
        return [query for called, query in self.calls if called == path and "watch" not in query]

    def watched(self, path: str) -> list[dict[str, str]]:
        """The queries of all watches of a path."""
        return [query for called, query in self.calls if called == path and "watch" in query]

    async def start(self) -> None:
        """Listen, on the same port as before where there was one."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        app.router.add_post("/{path:.*}", self._create)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away; every connection is lost."""
        if self._runner is not None:
            for task in list(self.watches):
                task.cancel()
            await self._runner.cleanup()
            self._runner = None

    async def cut(self) -> None:
        """Lose the connections of all watches."""
        for task in list(self.watches):
            task.cancel()
        await asyncio.sleep(0)

    def _change(self, path: str, kind: str, entry: Object) -> None:
        self.version += 1
        entry["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, path, kind, json.loads(json.dumps(entry))))
        self._wake()

    def _wake(self) -> None:
        async def told() -> None:
            async with self._told:
                self._told.notify_all()

        self._waking = asyncio.ensure_future(told())

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.calls.append((request.path, query))
        if self.silent:
            await asyncio.sleep(60)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if (scheme.lower(), token) != ("bearer", self.token):
            return _status(401, "Unauthorized")
        if versions := [path for path in self.objects if path.startswith(f"{request.path}/namespaces/")]:
            return web.json_response({"resources": [{"name": path.rpartition("/")[2]} for path in versions]})
        if (code := self.statuses.get(request.path, 200 if request.path in self.objects else 404)) != 200:
            return _status(code, f"told to say {code}")
        if "watch" in query:
            return await self._watch(request, query)
        return self._list(request.path, query)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if self.silent:
            await asyncio.sleep(60)
        entry = await request.json()
        self.made.append((request.path, entry))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if (code := self.statuses.get(request.path, 201)) != 201:
            return _status(code, f"told to say {code} to {entry}")
        return web.json_response(self.creates[request.path](entry), status=201)

    def _list(self, path: str, query: dict[str, str]) -> web.Response:
        names = sorted(name for name, entry in self.objects[path].items() if _selected(entry, query))
        first, limit = int(query.get("continue", 0)), min(int(query.get("limit", 500)), self.page_most)
        page = names[first : first + limit]
        metadata = {"resourceVersion": str(self.version)}
        if first + limit < len(names):
            metadata["continue"] = str(first + limit)
        answer = {"metadata": metadata, "items": [self.objects[path][name] for name in page]}
        return web.json_response(answer)

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        at = int(query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if at < self.oldest:
            await _send(response, "ERROR", {"kind": "Status", "code": 410, "message": "too old"})
            return response
        task = asyncio.current_task()
        assert task is not None
        self.watches.add(task)
        try:
            async with asyncio.timeout(int(query["timeoutSeconds"])):
                await self._tell(response, request.path, query, at)
        except TimeoutError:
            if not self.silent:
                await _send(response, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
            else:
                await asyncio.sleep(60)
        finally:
            self.watches.discard(task)
        return response

    async def _tell(self, response: web.StreamResponse, path: str, query: dict[str, str], at: int) -> None:
        while True:
            for version, where, kind, entry in list(self.history):
                if version <= at or self.silent:
                    continue
                at = version
                if where == path:
                    known = kind in {"ERROR", "BOOKMARK"} or _selected(entry, query)
                    await _send(response, kind if known else "DELETED", entry)
            async with self._told:
                if not any(version > at for version, *_ in self.history) or self.silent:
                    await self._told.wait()


def _selected(entry: Object, query: dict[str, str]) -> bool:
    labels = entry["metadata"].get("labels", {})
    wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
    name = query.get("fieldSelector", "").removeprefix("metadata.name=")
    return wanted.items() <= labels.items() and name in {"", entry["metadata"]["name"]}


async def _send(response: web.StreamResponse, kind: str, entry: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": entry}).encode() + b"\n")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def kubeconfig(path: Path, servers: dict[str, ApiServer]) -> Path:
    """A kubeconfig file with a context for each of these servers; the first one is the current."""
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": next(iter(servers)),
                "clusters": [
                    {"name": name, "cluster": {"server": f"http://{server.address}"}}
                    for name, server in servers.items()
                ],
                "users": [
                    {"name": name, "user": {"token": server.token}} for name, server in servers.items()
                ],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in servers],
            }
        )
    )
    return path


@pytest.fixture(autouse=True)
def _outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "KUBERNETES_SERVICE_HOST" not in os.environ


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """An API server on a free port of loopback."""
    mine = ApiServer()
    await mine.start()
    yield mine
    await mine.stop()


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    """The way to it."""
    mine = Api(kubeconfig(tmp_path / "kubeconfig", {"here": server}))
    yield mine
    await mine.close()


@pytest.fixture
def quick() -> Pace:
    """Times for tests."""
    return QUICK


@pytest.fixture
def write_kubeconfig() -> Callable[[Path, dict[str, ApiServer]], Path]:
    """How a kubeconfig is written."""
    return kubeconfig
