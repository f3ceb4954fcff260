"""A small Kubernetes of the tests' own: pods that come and go, evictions, nodes, policies, port-forward."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

Object = dict[str, Any]
NAMESPACE = "staging"
_HOSTS = itertools.count(1)


def labels_of(release: str, component: str = "picker", name: str = "picker") -> dict[str, str]:
    """As the chart puts them on."""
    words = {"name": name, "instance": release, "component": component}
    return {f"app.kubernetes.io/{key}": value for key, value in words.items()}


def deployment(release: str, *, replicas: int = 3, namespace: str = NAMESPACE, port: int = 9090) -> Object:
    """The chart's Deployment."""
    name = f"{release}-epp"
    helm = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "picker",
                "image": "picker:1",
                "args": ["serve", "--pool-name=llama", f"--pool-namespace={namespace}"],
                "env": [{"name": "PICKER_PLANE_URL", "value": "redis://plane:6379"}],
                "ports": [{"name": "http-metrics", "containerPort": port}],
            }
        ],
    }
    more = {"helm.sh/chart": "picker-0.1.0", "app.kubernetes.io/version": "0.1.0"}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "labels": {**labels_of(release), **more}, "annotations": helm,
            "generation": 1, "uid": f"uid-{name}",
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels_of(release)},
            "template": {"metadata": {"labels": labels_of(release), "annotations": {}}, "spec": pod},
        },
        "status": {},
    }  # fmt: skip


@dataclass
class Cluster:
    """Objects, what becomes of them, and how the API server behaves."""

    start_seconds: float = 0.05
    end_seconds: float = 0.05
    forbids_evictions: int = 0
    """So many evictions are refused by a PodDisruptionBudget."""
    enforces: bool = True
    """Whether NetworkPolicies act."""
    answers: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Statuses to answer with next, by method and end of the path."""
    rights: dict[tuple[str, str], bool] = field(default_factory=dict)
    """(verb, resource) that a review denies."""
    token: str = ""
    """Of the replicas' pages; empty: they answer anybody."""
    loopback_only: bool = False
    calls: list[tuple[str, str, Object]] = field(default_factory=list)
    """What changed something."""
    reads: int = 0
    deployments: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    policies: dict[str, Object] = field(default_factory=dict)
    pools: dict[str, Object] = field(default_factory=dict)
    autoscalers: list[Object] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    """Pod -> another name that it calls itself."""
    port: int = 0
    admin_port: int = 0
    _numbers: Any = field(default_factory=itertools.count)
    _runners: list[web.AppRunner] = field(default_factory=list)
    _pages: dict[str, web.TCPSite] = field(default_factory=dict)
    _controller: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, and let the controller work."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        pages = web.Application()
        pages.router.add_get("/{page}", self._page)
        self._replicas = web.AppRunner(pages, shutdown_timeout=0.1)
        await self._replicas.setup()
        # every pod has an address of its own on loopback, and all the same port
        probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        self.admin_port = probe.sockets[0].getsockname()[1]
        probe.close()
        self._runners = [runner, self._replicas]
        self._controller = asyncio.create_task(self._control())

    async def stop(self) -> None:
        """End all of it."""
        if self._controller is not None:
            self._controller.cancel()
            await asyncio.gather(self._controller, return_exceptions=True)
        for runner in self._runners:
            await runner.cleanup()

    def install(self, release: str, **more: Any) -> Object:
        """A release; its pods come by themselves."""
        made = deployment(release, port=self.admin_port, **more)
        self.deployments[made["metadata"]["name"]] = made
        self.nodes.setdefault("node-0", {"metadata": {"name": "node-0"}, "spec": {}})
        return made

    def names(self, release: str) -> list[str]:
        """The release's pods that run."""
        instance = "app.kubernetes.io/instance"
        return [
            name
            for name, pod in self.pods.items()
            if pod["metadata"]["labels"].get(instance) == release
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def whole(self, release: str, replicas: int = 3) -> list[str]:
        """Wait for that many ready pods."""
        async with asyncio.timeout(10):
            while True:
                names = self.names(release)
                if len(names) == replicas and all(_is_ready(self.pods[name]) for name in names):
                    return names
                await asyncio.sleep(0.01)

    def kubeconfig(self, folder: Path) -> str:
        """A kubeconfig file for it."""
        file = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        user = {"name": "u", "user": {"token": "t"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [cluster], "users": [user],
            "contexts": [context],
        }  # fmt: skip
        file.write_text(yaml.safe_dump(config))
        return str(file)

    # the controller

    async def _control(self) -> None:
        while True:
            now = time.monotonic()
            for name, pod in list(self.pods.items()):
                age = now - pod["_since"]
                if "deletionTimestamp" in pod["metadata"] and now > pod["_ends"]:
                    await self._remove(name)
                elif not pod["spec"]["nodeName"]:
                    await self._place(pod)
                elif not _is_ready(pod) and age > self.start_seconds:
                    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            for each in list(self.deployments.values()):
                await self._reconcile(each)
            await asyncio.sleep(0.01)

    async def _reconcile(self, each: Object) -> None:
        name, wanted = each["metadata"]["name"], each["spec"]["replicas"]
        template = _hash(each)
        mine = [pod for pod in self.pods.values() if pod["metadata"]["name"].startswith(f"{name}-")]
        mine = [pod for pod in mine if pod["metadata"].get("ownerReferences") and not pod.get("_foreign")]
        alive = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]
        new = [pod for pod in alive if pod["metadata"]["labels"]["pod-template-hash"] == template]
        old = [pod for pod in alive if pod not in new]
        ready = sum(_is_ready(pod) for pod in alive)
        if len(new) < wanted and len(alive) < wanted + bool(old):
            await self._create(each)
        elif old and ready > wanted:
            self._end(old[0])
        elif not old and len(new) > wanted:
            self._end(new[-1])
        each["status"] = {
            "replicas": len(alive),
            "updatedReplicas": len(new),
            "readyReplicas": ready,
            "observedGeneration": each["metadata"]["generation"],
        }

    async def _create(self, each: Object) -> None:
        template, owner = _hash(each), each["metadata"]["name"]
        name = f"{owner}-{template}-{next(self._numbers):05d}"
        self.pods[name] = {
            "metadata": {
                "name": name, "namespace": each["metadata"]["namespace"], "uid": f"uid-{name}",
                "labels": {**each["spec"]["template"]["metadata"]["labels"], "pod-template-hash": template},
                "ownerReferences": [{"kind": "ReplicaSet", "name": f"{owner}-{template}", "controller": True}],
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            "spec": {"nodeName": ""},
            "status": {"conditions": []},
            "_since": time.monotonic(),
        }  # fmt: skip
        await self._place(self.pods[name])

    async def _place(self, pod: Object) -> None:
        node = next(
            (node for node, entry in self.nodes.items() if not entry["spec"].get("unschedulable")), ""
        )
        if not node:
            return
        pod["spec"]["nodeName"] = node
        host = f"127.0.{next(_HOSTS) % 200 + 20}.1"
        site = web.TCPSite(self._replicas, host, self.admin_port, reuse_address=True)
        await site.start()
        self._pages[pod["metadata"]["name"]] = site
        pod["status"]["podIP"] = host

    def _end(self, pod: Object, *, grace: float | None = None) -> None:
        pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        pod["_ends"] = time.monotonic() + (self.end_seconds if grace is None else grace)

    async def _remove(self, name: str) -> None:
        del self.pods[name]
        if name in self._pages:
            with suppress(RuntimeError):
                await self._pages.pop(name).stop()

    # the API server

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        body = await request.json() if request.can_read_body else {}
        if request.headers.get("Authorization") != "Bearer t":
            return _status(401, "Unauthorized")
        if path.endswith("/portforward"):
            return await self._forward(request)
        for (wanted, end), statuses in self.answers.items():
            if wanted == method and path.endswith(end) and statuses:
                return _status(statuses.pop(0), "told to")
        if method == "GET":
            self.reads += 1
        elif "selfsubjectaccessreviews" not in path:
            self.calls.append((method, path, body))
        return self._answer(method, path, body, dict(request.query))

    def _answer(self, method: str, path: str, body: Object, query: Mapping[str, str]) -> web.Response:
        parts = path.strip("/").split("/")
        if path == "/version":
            return web.json_response({"gitVersion": "v1.37.2"})
        if parts[-1] == "selfsubjectaccessreviews":
            wanted = body["spec"]["resourceAttributes"]
            key = (
                wanted["verb"],
                wanted["resource"] + (f"/{wanted['subresource']}" if wanted["subresource"] else ""),
            )
            return web.json_response({"status": {"allowed": self.rights.get(key, True)}}, status=201)
        if "nodes" in parts:
            return self._entry(self.nodes, method, parts[-1], body)
        namespace, kind, *rest = parts[parts.index("namespaces") + 1 :]
        table = {
            "pods": self.pods, "deployments": self.deployments, "networkpolicies": self.policies,
            "inferencepools": self.pools,
        }.get(kind, {})  # fmt: skip
        there = {name: each for name, each in table.items() if each["metadata"]["namespace"] == namespace}
        if kind == "horizontalpodautoscalers":
            return web.json_response({"items": self.autoscalers})
        if not rest and method == "GET":
            selector = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
            items = [
                each
                for each in there.values()
                if selector.items() <= each["metadata"].get("labels", {}).items()
            ]
            return web.json_response({"items": [_shown(each) for each in items]})
        if not rest and method == "POST":
            made = deepcopy(body)
            made["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
            table[made["metadata"]["name"]] = made
            return web.json_response(made, status=201)
        name = rest[0]
        if name not in there:
            return _status(404, f"{kind} {name} not found")
        if rest[1:] == ["eviction"]:
            return self._evict(there[name], body)
        if kind == "pods" and method == "DELETE":
            return self._delete_pod(there[name], body)
        return self._entry(table, method, name, body)

    def _entry(self, table: dict[str, Object], method: str, name: str, body: Object) -> web.Response:
        if name not in table:
            return _status(404, f"{name} not found")
        entry = table[name]
        if method == "DELETE":
            if body.get("preconditions", {}).get("uid") != entry["metadata"]["uid"]:
                return _status(409, "the uid differs")
            del table[name]
        elif method == "PATCH":
            if body.get("metadata", {}).get("uid", entry["metadata"].get("uid")) != entry["metadata"].get(
                "uid"
            ):
                return _status(409, "the uid differs")
            _merge(entry, body)
            if "spec" in body and "generation" in entry["metadata"]:
                entry["metadata"]["generation"] += 1
        return web.json_response(_shown(entry))

    def _delete_pod(self, pod: Object, body: Object) -> web.Response:
        if body.get("preconditions", {}).get("uid") != pod["metadata"]["uid"]:
            return _status(409, "the uid differs")
        self._end(pod, grace=0.0 if body.get("gracePeriodSeconds") == 0 else None)
        return web.json_response(_shown(pod))

    def _evict(self, pod: Object, body: Object) -> web.Response:
        if self.forbids_evictions:
            self.forbids_evictions -= 1
            return _status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        return self._delete_pod(pod, body["deleteOptions"])

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name, port = request.path.split("/")[-2], int(request.query["ports"])
        if name not in self.pods:
            return _status(404, f"pods {name} not found")
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        number = port.to_bytes(2, "little")
        await socket.send_bytes(b"\x00" + number)
        await socket.send_bytes(b"\x01" + number)
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1" if port == 1 else self._host(name), port
            )
        except OSError as error:
            await socket.send_bytes(b"\x01" + f"cannot dial {port}: {error}".encode())
            await socket.close()
            return socket

        async def back() -> None:
            while data := await reader.read(4096):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        pumping = asyncio.create_task(back())
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                writer.write(message.data[1:])
        pumping.cancel()
        writer.close()
        return socket

    def _host(self, name: str) -> str:
        return str(self.pods[name]["status"]["podIP"])

    # the replicas' pages

    async def _page(self, request: web.Request) -> web.Response:
        host = request.transport.get_extra_info("sockname")[0] if request.transport else ""
        name = next((name for name, pod in self.pods.items() if pod["status"].get("podIP") == host), "")
        page = request.match_info["page"]
        if not name:
            return web.json_response({"error": "gone"}, status=503)
        if page == "healthz":
            return web.json_response({"alive": True})
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": "this page needs a bearer token"}, status=401)
        if self.loopback_only and not request.host.startswith("127.0.0.1"):
            return web.json_response({"error": "this page needs loopback"}, status=403)
        if page == "bookings.json":
            return web.json_response({"version": {"epoch": 1, "number": 1}, "sums": {}, "bookings": []})
        members = [{"name": each, "incarnation": "a"} for each in self._members()]
        plane = {"state": "healthy", "owing": 0}
        return web.json_response(
            {"replica": {"name": self.aliases.get(name, name)}, "members": members, "plane": plane}
        )

    def _members(self) -> list[str]:
        cut = {
            each["spec"]["podSelector"]["matchLabels"].get("chaos.picker/cut-off")
            for each in self.policies.values()
        }
        mark = "chaos.picker/cut-off"
        return [
            name
            for name, pod in self.pods.items()
            if not (self.enforces and pod["metadata"]["labels"].get(mark) in cut - {None})
        ]


def _hash(each: Object) -> str:
    template = json.dumps(each["spec"]["template"], sort_keys=True)
    return f"{sum(template.encode()) % 9973:04d}"


def _is_ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" for each in pod["status"]["conditions"])


def _shown(entry: Object) -> Object:
    return {key: value for key, value in entry.items() if not key.startswith("_")}


def _merge(entry: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            entry.pop(key, None)
        elif isinstance(value, dict) and isinstance(entry.get(key), dict):
            _merge(entry[key], value)
        else:
            entry[key] = value


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
