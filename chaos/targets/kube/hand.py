"""The one place that changes anything in a cluster.

Every change looks at its object afresh, and is refused unless the object is the release's own (`release`). Deletions
name the object's identity, so that what bears the name a moment later is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from chaos.targets.kube.release import (
    CORDONED,
    CUT_OFF,
    INSTANCE,
    MANAGER,
    OURS,
    NotOursError,
    Object,
    Release,
)
from chaos.targets.kube.server import MERGE, Server
from discovery.kubernetes.api import ApiError

RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a pod template by which `kubectl rollout restart` asks for new pods."""
GONE, FORBIDDEN = 404, 403


@dataclass(frozen=True, slots=True)
class Call:
    """One call that changes something: a verb of the API, a resource, a name."""

    verb: str
    resource: str
    name: str
    note: str = ""

    def words(self) -> str:
        """One line for people."""
        return f"{self.verb} {self.resource} {self.name}" + (f" ({self.note})" if self.note else "")


class Hand:
    """Changes objects of one release. ``told`` is given every call just before it is made."""

    def __init__(
        self, server: Server, release: Release, *, told: Callable[[Call], None] = lambda _call: None
    ) -> None:
        self._server = server
        self.release = release
        self._told = told

    async def delete_pod(self, name: str, *, grace: int | None = None) -> str:
        """Delete a replica's pod; ``grace`` 0: at once, without an end in good order. Returns its uid."""
        uid = await self.own_pod(name)
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._do(deletion(name, grace=grace), "DELETE", self._pod(name), body)
        return uid

    async def evict_pod(self, name: str) -> str:
        """Ask for a replica's eviction. Raises ApiError with status 429 where a PodDisruptionBudget forbids it now."""
        uid = await self.own_pod(name)
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.release.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }  # fmt: skip
        await self._do(eviction(name), "POST", f"{self._pod(name)}/eviction", body)
        return uid

    async def own_pod(self, name: str) -> str:
        """The uid of a replica's pod. Raises NotOursError."""
        entry = await self._server.get(self._pod(name))
        self.release.check_pod(entry)
        return str(entry["metadata"]["uid"])

    async def mark_pod(self, name: str, mark: str) -> None:
        """Put the label on a replica's pod that the suite's policies select."""
        uid = await self.own_pod(name)
        body = {"metadata": {"uid": uid, "labels": {CUT_OFF: mark}}}
        await self._do(marking(name, on=True), "PATCH", self._pod(name), body)

    async def unmark_pod(self, name: str) -> bool:
        """Take back `mark_pod`; False: that pod is gone."""
        try:
            uid = await self.own_pod(name)
            body = {"metadata": {"uid": uid, "labels": {CUT_OFF: None}}}
            await self._do(marking(name, on=False), "PATCH", self._pod(name), body)
        except ApiError as error:
            if error.status == GONE:
                return False
            raise
        return True

    async def restart(self) -> None:
        """Ask for new pods, one after the other, as `kubectl rollout restart` does."""
        await self._our_deployment()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: stamp}}}}}
        await self._do(restarting(self.release), "PATCH", self._deployment, body)

    async def scale(self, replicas: int) -> None:
        """Wish for so many replicas."""
        await self._our_deployment()
        body = {"spec": {"replicas": replicas}}
        await self._do(scaling(self.release, replicas), "PATCH", f"{self._deployment}/scale", body)

    async def cordon(self, node: str) -> None:
        """Let nothing new onto a node that runs a replica. Raises NotOursError for one that is cordoned already."""
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        self.release.check_node(node, await self._pods())
        entry = await self._server.get(path)
        if (entry.get("spec") or {}).get("unschedulable"):
            raise NotOursError(f"node {node} is cordoned already, by somebody else")
        body = {"metadata": {"annotations": {CORDONED: self._mark}}, "spec": {"unschedulable": True}}
        await self._do(cordoning(node), "PATCH", path, body)

    async def uncordon(self, node: str) -> bool:
        """Take back `cordon`; False: that node was not cordoned by this hand."""
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        told = (await self._server.get(path)).get("metadata", {}).get("annotations") or {}
        if told.get(CORDONED) != self._mark:
            return False
        body = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
        await self._do(uncordoning(node), "PATCH", path, body)
        return True

    async def deny(self, name: str, mark: str) -> None:
        """Make a NetworkPolicy that lets nothing out of the pods that bear the mark."""
        policy = denial(self.release, name, mark)
        self.release.check_policy(policy)
        await self._do(denying(name), "POST", self._policies, policy)

    async def undeny(self, name: str) -> bool:
        """Delete a policy that `deny` made; False: it is gone already."""
        path = f"{self._policies}/{quote(name, safe='')}"
        try:
            entry = await self._server.get(path)
        except ApiError as error:
            if error.status == GONE:
                return False
            raise
        self.release.check_policy(entry)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": entry["metadata"]["uid"]},
        }
        await self._do(undenying(name), "DELETE", path, body)
        return True

    async def leftovers(self) -> list[str]:
        """Names of policies that an earlier run of the suite left behind for this release."""
        selector = f"{MANAGER}={OURS},{INSTANCE}={self.release.name}"
        try:
            found = await self._server.get(self._policies, labelSelector=selector)
        except ApiError as error:
            if error.status in (FORBIDDEN, GONE):
                return []
            raise
        return [str(each["metadata"]["name"]) for each in found.get("items") or ()]

    # where objects are

    @property
    def _mark(self) -> str:
        return f"{self.release.namespace}/{self.release.name}"

    @property
    def _deployment(self) -> str:
        return f"{self._apps}/{quote(self.release.deployment, safe='')}"

    @property
    def _apps(self) -> str:
        return f"/apis/apps/v1/namespaces/{quote(self.release.namespace, safe='')}/deployments"

    @property
    def _policies(self) -> str:
        return (
            f"/apis/networking.k8s.io/v1/namespaces/{quote(self.release.namespace, safe='')}/networkpolicies"
        )

    def _pod(self, name: str) -> str:
        return f"/api/v1/namespaces/{quote(self.release.namespace, safe='')}/pods/{quote(name, safe='')}"

    # whose they are

    async def _our_deployment(self) -> None:
        self.release.check_deployment(await self._server.get(self._deployment))

    async def _pods(self) -> list[Object]:
        path = f"/api/v1/namespaces/{quote(self.release.namespace, safe='')}/pods"
        items = (await self._server.get(path, labelSelector=self.release.query)).get("items") or ()
        return list(items)

    async def _do(self, call: Call, method: str, path: str, body: Mapping[str, Any]) -> None:
        self._told(call)
        await self._server.call(
            method, path, body=body, content=MERGE if method == "PATCH" else "application/json"
        )


def denial(release: Release, name: str, mark: str) -> Mapping[str, Any]:
    """The NetworkPolicy by which one replica's connections to others are cut: nothing goes out, calls still come in."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": release.namespace,
            "labels": {MANAGER: OURS, INSTANCE: release.name},
        },
        "spec": {
            "podSelector": {"matchLabels": {**release.selector, CUT_OFF: mark}},
            "policyTypes": ["Egress"],
            "egress": [],
        },
    }


# each change as a dry run lists it, and as it is told when it is made


def deletion(pod: str, *, grace: int | None) -> Call:
    """Of a pod."""
    return Call("delete", "pods", pod, "" if grace is None else f"grace {grace} s")


def eviction(pod: str) -> Call:
    """Of a pod."""
    return Call("create", "pods/eviction", pod)


def marking(pod: str, *, on: bool) -> Call:
    """The suite's label on a pod."""
    return Call("patch", "pods", pod, f"{'set' if on else 'remove'} label {CUT_OFF}")


def restarting(release: Release) -> Call:
    """A rollout."""
    return Call("patch", "deployments", release.deployment, f"annotation {RESTARTED} of its pod template")


def scaling(release: Release, replicas: int) -> Call:
    """Another number of replicas."""
    return Call("patch", "deployments/scale", release.deployment, f"{replicas} replicas")


def cordoning(node: str) -> Call:
    """Nothing new onto a node."""
    return Call("patch", "nodes", node, "unschedulable")


def uncordoning(node: str) -> Call:
    """The end of it."""
    return Call("patch", "nodes", node, "schedulable")


def denying(policy: str) -> Call:
    """A policy of the suite."""
    return Call("create", "networkpolicies", policy, "nothing goes out of the one pod it selects")


def undenying(policy: str) -> Call:
    """The end of it."""
    return Call("delete", "networkpolicies", policy)
