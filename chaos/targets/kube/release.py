"""What a release is, read from its objects; and whether an object is its own. Pure.

A release is known by what the chart puts on everything: ``app.kubernetes.io/instance`` (the release),
``app.kubernetes.io/name`` (the chart) and ``app.kubernetes.io/component`` (which part of it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chaos.injectors import InjectionError

INSTANCE, NAME, COMPONENT = (f"app.kubernetes.io/{word}" for word in ("instance", "name", "component"))
MANAGER = "app.kubernetes.io/managed-by"
OURS = "picker-chaos"
"""Who made an object, by its label ``app.kubernetes.io/managed-by``: this suite."""
CUT_OFF = "chaos.picker/cut-off"
"""Label of a pod that a policy of the suite selects."""
CORDONED = "chaos.picker/cordoned-by"
"""Annotation of a node that the suite cordoned: ``namespace/release``."""
HELM_RELEASE, HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
CONTAINER = "picker"
METRICS_PORT = "http-metrics"
USUAL_METRICS_PORT = 9090
Object = Mapping[str, Any]


class ReleaseError(Exception):
    """No release that can be met; says what was looked for, and what to do."""


class NotOursError(InjectionError):
    """An object that does not belong to the release; says which, and by what it is seen."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release: its Deployment of picker replicas, and how its pods are told from others."""

    namespace: str
    name: str
    chart_name: str
    """``app.kubernetes.io/name`` of its objects."""
    deployment: str
    selector: Mapping[str, str]
    """Labels that its picker pods carry, as the Deployment selects them."""
    replicas: int
    """How many are wanted."""
    chart: str = ""
    version: str = ""
    """``app.kubernetes.io/version``."""
    image: str = ""
    admin_port: int = USUAL_METRICS_PORT
    grace_seconds: float = 30.0
    """How long a pod may take to end in good order."""
    pool: tuple[str, str] = ("", "")
    """Namespace and name of its pool."""
    plane_url: str = ""
    """Empty where it stands in a Secret."""

    @property
    def query(self) -> str:
        """Its picker pods, as a label selector."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.selector.items()))

    @property
    def place(self) -> str:
        """In words."""
        return f"release {self.name} in namespace {self.namespace}"

    def check_pod(self, pod: Object) -> None:
        """Raise NotOursError unless the pod is a picker replica of this release, made by its Deployment."""
        self._check_labels(pod, f"pod {_name(pod)}")
        mine = _labels(pod)
        for label, value in self.selector.items():
            if mine.get(label) != value:
                raise NotOursError(f"pod {_name(pod)}: {label} is {mine.get(label)!r}, not {value!r}")
        template = mine.get("pod-template-hash", "")
        owner: Object = next(
            (each for each in _meta(pod).get("ownerReferences") or () if each.get("controller")), {}
        )
        if (
            owner.get("kind") != "ReplicaSet"
            or not template
            or owner.get("name") != f"{self.deployment}-{template}"
        ):
            told = f"{owner.get('kind', 'nothing')} {owner.get('name', '')}".strip()
            raise NotOursError(f"pod {_name(pod)}: {told} controls it, not the Deployment {self.deployment}")

    def owns(self, pod: Object) -> bool:
        """Whether `check_pod` has nothing against it."""
        try:
            self.check_pod(pod)
        except NotOursError:
            return False
        return True

    def check_deployment(self, deployment: Object) -> None:
        """Raise NotOursError unless it is the Deployment of this release's picker replicas."""
        what = f"Deployment {_name(deployment)}"
        self._check_labels(deployment, what)
        told = _meta(deployment).get("annotations") or {}
        for annotation, wanted in ((HELM_RELEASE, self.name), (HELM_NAMESPACE, self.namespace)):
            if told.get(annotation, wanted) != wanted:
                raise NotOursError(f"{what}: {annotation} is {told[annotation]!r}, not {wanted!r}")
        if _name(deployment) != self.deployment:
            raise NotOursError(f"{what} is not {self.deployment}")

    def check_policy(self, policy: Object) -> None:
        """Raise NotOursError unless the suite made this NetworkPolicy for this release, and for its pods only."""
        what, labels = f"NetworkPolicy {_name(policy)}", _labels(policy)
        if labels.get(MANAGER) != OURS or labels.get(INSTANCE) != self.name:
            raise NotOursError(
                f"{what}: {MANAGER} is {labels.get(MANAGER)!r} for {labels.get(INSTANCE)!r}, not {OURS!r}"
            )
        self._check_namespace(policy, what)
        chosen = (policy.get("spec") or {}).get("podSelector") or {}
        selected = chosen.get("matchLabels") or {}
        if (
            not {*self.selector.items()} <= {*selected.items()}
            or CUT_OFF not in selected
            or set(chosen) != {"matchLabels"}
        ):
            raise NotOursError(f"{what} selects pods that are not of the release: {dict(chosen)}")

    def check_node(self, node: str, pods: Iterable[Object]) -> None:
        """Raise NotOursError unless one of these pods is a replica of this release and runs on that node."""
        if any(self.owns(pod) and (pod.get("spec") or {}).get("nodeName") == node for pod in pods):
            return
        raise NotOursError(f"node {node} runs no replica of {self.place}")

    def _check_labels(self, entry: Object, what: str) -> None:
        self._check_namespace(entry, what)
        labels = _labels(entry)
        wanted = {INSTANCE: self.name, NAME: self.chart_name, COMPONENT: CONTAINER}
        for label, value in wanted.items():
            if labels.get(label) != value:
                raise NotOursError(f"{what}: {label} is {labels.get(label)!r}, not {value!r}")

    def _check_namespace(self, entry: Object, what: str) -> None:
        if _meta(entry).get("namespace") != self.namespace:
            raise NotOursError(
                f"{what} is in namespace {_meta(entry).get('namespace')!r}, not {self.namespace!r}"
            )


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of the release."""

    name: str
    uid: str
    address: str
    """Its IP; empty: it has none yet."""
    node: str
    ready: bool
    ending: bool
    since: float
    """When it was made, seconds of the epoch."""
    restarts: int = 0
    """How often its picker was started again in place."""
    end: str = ""
    """How the picker ended last."""


def read_release(deployments: Iterable[Object], *, namespace: str, name: str) -> Release:
    """The release of that name, of the Deployments that carry it as their instance. Raises ReleaseError."""
    found = [each for each in deployments if _labels(each).get(COMPONENT) == CONTAINER]
    if len(found) != 1:
        said = ", ".join(_name(each) for each in found) or "none"
        raise ReleaseError(
            f"namespace {namespace} has {len(found)} Deployments of picker replicas with {INSTANCE}={name} ({said}): "
            "one is needed, as the chart charts/picker installs it"
        )
    entry = found[0]
    labels, spec = _labels(entry), entry["spec"]
    pod = spec["template"]["spec"]
    container = next((each for each in pod["containers"] if each.get("name") == CONTAINER), None)
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    if container is None or selector.get(INSTANCE) != name or selector.get(COMPONENT) != CONTAINER:
        raise ReleaseError(
            f"Deployment {_name(entry)} is not the chart's: it has no container or selector of the picker"
        )
    release = Release(
        namespace=namespace,
        name=name,
        chart_name=str(labels.get(NAME, "")),
        deployment=_name(entry),
        selector=dict(selector),
        replicas=int(spec.get("replicas", 1)),
        chart=str(labels.get("helm.sh/chart", "")),
        version=str(labels.get("app.kubernetes.io/version", "")),
        image=str(container.get("image", "")),
        admin_port=_port(container),
        grace_seconds=float(pod.get("terminationGracePeriodSeconds") or 30),
        pool=_pool(container, namespace),
        plane_url=_variable(container, "PICKER_PLANE_URL"),
    )
    release.check_deployment(entry)
    return release


def read_replica(pod: Object) -> Replica:
    """One pod, whatever its state."""
    meta, status = _meta(pod), pod.get("status") or {}
    conditions = status.get("conditions") or ()
    mine: Object = next(
        (each for each in status.get("containerStatuses") or () if each.get("name") == CONTAINER), {}
    )
    ended = (mine.get("lastState") or {}).get("terminated") or {}
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return Replica(
        name=_name(pod),
        uid=str(meta.get("uid", "")),
        address=str(status.get("podIP") or ""),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        ready=ready,
        ending=bool(meta.get("deletionTimestamp")),
        since=_epoch(str(meta.get("creationTimestamp") or "")),
        restarts=int(mine.get("restartCount") or 0),
        end=f"exit code {ended.get('exitCode')}, {ended.get('reason', 'no reason given')}" if ended else "",
    )


def is_whole(deployment: Object, replicas: Iterable[Replica]) -> bool:
    """Whether as many replicas run as are wanted, all of the newest template, all ready, none ending."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    wanted, pods = int(spec.get("replicas", 1)), list(replicas)
    counted = all(
        int(status.get(key) or 0) == wanted for key in ("replicas", "updatedReplicas", "readyReplicas")
    )
    current = int(status.get("observedGeneration") or 0) >= int(_meta(deployment).get("generation") or 0)
    return (
        counted and current and len(pods) == wanted and all(each.ready and not each.ending for each in pods)
    )


def _port(container: Object) -> int:
    ports = {each.get("name"): each.get("containerPort") for each in container.get("ports") or ()}
    return int(ports.get(METRICS_PORT) or USUAL_METRICS_PORT)


def _pool(container: Object, namespace: str) -> tuple[str, str]:
    """As the replicas are told: flags go before variables."""
    told = dict(
        arg[2:].split("=", 1) for arg in container.get("args") or () if arg.startswith("--") and "=" in arg
    )
    where = told.get("pool-namespace") or _variable(container, "PICKER_POOL_NAMESPACE") or namespace
    return where, told.get("pool-name") or _variable(container, "PICKER_POOL_NAME")


def _variable(container: Object, name: str) -> str:
    found = [each.get("value") for each in container.get("env") or () if each.get("name") == name]
    return str(found[-1] or "") if found else ""


def _meta(entry: Object) -> Mapping[str, Any]:
    return entry.get("metadata") or {}


def _name(entry: Object) -> str:
    return str(_meta(entry).get("name", ""))


def _labels(entry: Object) -> Mapping[str, str]:
    return _meta(entry).get("labels") or {}


def _epoch(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
