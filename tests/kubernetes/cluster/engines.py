"""Model servers of a pool: simulated engines as pods, each with the bridge beside it that the chart gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from picker.sim.model import MODEL
from tests.kubernetes.cluster.helm import Release, is_ready
from tests.kubernetes.cluster.images import PICKER

PORT: Final = 8000
_EVENTS: Final = "/var/run/picker"


@dataclass(frozen=True, slots=True)
class Engines:
    """A Deployment of engines in the pool of a release; install the release before them."""

    release: Release
    labels: Mapping[str, str]
    """Which the pool selects."""
    name: str = "engine"
    options: Sequence[str] = ()
    """Further options of `picker sim engine`."""

    def start(self, count: int) -> None:
        """Create or scale them; returns when all are ready."""
        running, namespace = self.release.running, self.release.namespace
        running.apply(self._deployment(count))
        running.kubectl(
            "-n", namespace, "rollout", "status", f"deployment/{self.name}", "--timeout=120s", seconds=150
        )

    def stop(self) -> None:
        """Take them away; returns when they are gone."""
        arguments = ("delete", f"deployment/{self.name}", "--cascade=foreground", "--ignore-not-found")
        self.release.running.kubectl("-n", self.release.namespace, *arguments)

    def addresses(self) -> dict[str, str]:
        """Name and `host:port` of the ready ones."""
        found = self.release.running.get("pods", "-n", self.release.namespace, "-l", f"engines={self.name}")
        return {
            each["metadata"]["name"]: f"{each['status']['podIP']}:{PORT}"
            for each in found["items"]
            if is_ready(each) and "deletionTimestamp" not in each["metadata"]
        }

    def _deployment(self, count: int) -> dict[str, Any]:
        name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        engine = {
            "name": "engine", "image": PICKER, "env": [name], "ports": [{"name": "http", "containerPort": PORT}],
            "args": [
                "sim", "engine", "--host=0.0.0.0", f"--port={PORT}", "--name=$(POD_NAME)", f"--model={MODEL}",
                f"--kv-events=ipc://{_EVENTS}/events.ipc", f"--kv-replay=ipc://{_EVENTS}/replay.ipc", *self.options,
            ],
            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "picker-events", "mountPath": _EVENTS}],
        }  # fmt: skip
        spec = {**self._sidecar(), "terminationGracePeriodSeconds": 5, "containers": [engine]}
        labels = {**self.labels, "engines": self.name}
        return {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.release.namespace},
            "spec": {
                "replicas": count, "selector": {"matchLabels": {"engines": self.name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }  # fmt: skip

    def _sidecar(self) -> dict[str, Any]:
        """The part of a pod that the chart's ConfigMap gives to copy from."""
        name = f"{self.release.objects}-sidecar"
        found = self.release.running.get("configmap", name, "-n", self.release.namespace)
        spec: dict[str, Any] = yaml.safe_load(found["data"]["pod.yaml"])["spec"]
        return spec
