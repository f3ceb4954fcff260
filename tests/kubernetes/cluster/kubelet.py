"""A kubelet for all nodes of the cluster: pods bound to them become processes of this machine.

What a pod of the API asks for and gets: an address and a network of its own; variables, arguments and volumes
(ConfigMap, Secret, projected, downward API, emptyDir, hostPath); the token of its ServiceAccount; init containers and
sidecars; startup, readiness and liveness probes; its user, a read-only root, no capabilities; preStop, SIGTERM, grace,
SIGKILL; restarts with a back-off. What it does not get: limits of CPU and memory, volumes that must be provisioned,
postStart, new content of volumes while it runs, `kubectl exec` and `port-forward`. Logs are kept in `<folder>/pods`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp

from tests.kubernetes.cluster import network
from tests.kubernetes.cluster.api import MERGE, Api, ApiError, Mirror, Object, named, timestamp
from tests.kubernetes.cluster.pod import Pod

NODES: Final = ("node-a", "node-b", "node-c")
"""Each in a zone of its own; all of them are this machine."""
_ROOM = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"}
_END_SECONDS = 3.0


class Kubelet:
    """Starts and ends pods as the API says."""

    def __init__(self, api: Api, folder: Path, say: Callable[[str], None]) -> None:
        self._api, self._folder, self._say = api, folder, say
        self._pods: dict[str, Pod] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._addresses = network.addresses()
        self._mirror = Mirror(api, "/api/v1/pods", self._seen)

    async def run(self) -> None:
        """Register the nodes and follow the pods; at the end every pod is ended, within a few seconds."""
        for number, node in enumerate(NODES):
            await self._register(node, zone=f"zone-{number}")
        try:
            await self._mirror.run()
        finally:
            for pod in self._pods.values():
                pod.end(_END_SECONDS)
            lives = list(self._lives.values())
            if lives:
                await asyncio.wait(lives, timeout=2 * _END_SECONDS)
            for life in lives:
                life.cancel()

    async def _register(self, node: str, *, zone: str) -> None:
        labels = {
            "kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone,
        }  # fmt: skip
        metadata = {"name": node, "labels": labels}
        await self._api.call(
            "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        )
        ready = {"type": "Ready", "status": "True", "reason": "Here", "lastHeartbeatTime": timestamp()}
        status = {
            "capacity": _ROOM, "allocatable": _ROOM, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": network.NODE}],
        }  # fmt: skip
        await self._api.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, kind=MERGE)
        # admission taints a new node until something says that it is ready
        await self._api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}}, kind=MERGE)

    def _seen(self, event: str, item: Object) -> None:
        metadata = item["metadata"]
        uid = metadata["uid"]
        if item["spec"].get("nodeName") not in NODES:
            return
        pod = self._pods.get(uid)
        if event == "DELETED":
            if pod is not None:
                pod.end(0)
        elif pod is None:
            self._begin(uid, item)
        elif "deletionTimestamp" in metadata:
            pod.end(metadata.get("deletionGracePeriodSeconds"))

    def _begin(self, uid: str, item: Object) -> None:
        folder = self._folder / named(item).replace("/", "_")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pod = Pod(self._api, item, address=next(self._addresses), folder=folder)
        self._pods[uid] = pod
        if "deletionTimestamp" in item["metadata"]:
            pod.end(item["metadata"].get("deletionGracePeriodSeconds"))
        self._lives[uid] = asyncio.create_task(self._live(uid, pod), name=pod.name)

    async def _live(self, uid: str, pod: Pod) -> None:
        try:
            await pod.live()
        except (network.NetworkError, OSError, KeyError) as error:
            self._say(f"pod {pod.name}: {type(error).__name__}: {error}")
        finally:
            self._pods.pop(uid, None)
            self._lives.pop(uid, None)
        await self._forget(pod)

    async def _forget(self, pod: Pod) -> None:
        """Take the object away, now that nothing of the pod is left."""
        namespace, name = pod.name.split("/")
        body = {
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.item["metadata"]["uid"]},
        }  # fmt: skip
        while True:
            try:
                await self._api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body)
            except ApiError as error:
                if error.status in {404, 409}:
                    return
                await asyncio.sleep(0.3)
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(0.3)
            else:
                return
