"""What of a release can be disturbed with the rights that are given: asked of the API server, not tried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from chaos.targets.kube.release import Release
from chaos.targets.kube.server import Server
from discovery.kubernetes.api import ApiError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    cluster: bool = False
    """Whether it is no namespace's."""

    def words(self) -> str:
        """One line for people."""
        return f"{self.verb} {self.resource}{f'/{self.subresource}' if self.subresource else ''}"


NEEDS: Mapping[str, tuple[Right, ...]] = {
    "kill": (Right("delete", "pods"),),
    "terminate": (Right("delete", "pods"),),
    "evict": (Right("create", "pods", subresource="eviction"),),
    "rollout": (Right("patch", "deployments", "apps"),),
    "scale": (Right("patch", "deployments", "apps", "scale"),),
    "cordon": (Right("get", "nodes", cluster=True), Right("patch", "nodes", cluster=True)),
    "cut-off": (
        Right("patch", "pods"),
        *(Right(verb, "networkpolicies", "networking.k8s.io") for verb in ("create", "get", "delete")),
    ),
}
"""Fault -> rights that it needs, besides reading pods and Deployments of the namespace."""


async def offers_of(server: Server, release: Release) -> Mapping[str, str]:
    """Faults that cannot be brought about, with the reason. Raises ApiError."""
    answers: dict[Right, bool] = {}
    missing = {}
    for fault, rights in NEEDS.items():
        for right in rights:
            if right not in answers:
                answers[right] = await _allowed(server, release, right)
        lacking = [right.words() for right in rights if not answers[right]]
        if lacking:
            missing[fault] = f"no right to {', '.join(lacking)}"
    if "scale" not in missing and (owner := await _autoscaler(server, release)):
        missing["scale"] = f"HorizontalPodAutoscaler {owner} decides how many replicas there are"
    return missing


async def _allowed(server: Server, release: Release, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "resource": right.resource,
        "group": right.group,
        "subresource": right.subresource,
        "namespace": "" if right.cluster else release.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await server.call("POST", REVIEWS, body=body)
    return bool((answer.get("status") or {}).get("allowed"))


async def _autoscaler(server: Server, release: Release) -> str:
    """The autoscaler of the release's Deployment; empty: there is none, or it cannot be seen."""
    path = f"/apis/autoscaling/v2/namespaces/{quote(release.namespace, safe='')}/horizontalpodautoscalers"
    try:
        listed = await server.get(path)
    except ApiError as error:
        if error.status in (403, 404):
            return ""
        raise
    for each in listed.get("items") or ():
        target = (each.get("spec") or {}).get("scaleTargetRef") or {}
        if (target.get("kind"), target.get("name")) == ("Deployment", release.deployment):
            return str(each["metadata"]["name"])
    return ""
