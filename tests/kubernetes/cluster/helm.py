"""Releases of the chart, by the real Helm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.kubernetes.cluster.controlplane import ROOT
from tests.kubernetes.cluster.running import TOOLS, Running

CHART: Final = ROOT / "charts" / "picker"
WAIT_SECONDS: Final = 240

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of the picker's chart in one namespace. A step that fails raises ClusterError with Helm's words."""

    running: Running
    name: str
    namespace: str

    @property
    def objects(self) -> str:
        """What its objects are called."""
        return f"{self.name}-epp"

    @property
    def service(self) -> str:
        """DNS name of the ext_proc Service."""
        return f"{self.objects}.{self.namespace}.svc"

    def install(self, values: Values, *, wait: int = WAIT_SECONDS) -> str:
        """Install it, the namespace too; returns when all of it is ready."""
        return self._helm("install", "--create-namespace", *self._changing(wait), values=values)

    def upgrade(self, values: Values, *, wait: int = WAIT_SECONDS) -> str:
        """Upgrade it to these values, which are all of them."""
        return self._helm("upgrade", *self._changing(wait), values=values)

    def test(self) -> str:
        """`helm test`."""
        return self._helm("test", "--timeout", f"{WAIT_SECONDS}s")

    def uninstall(self, *, wait: int = WAIT_SECONDS) -> str:
        """Uninstall it; returns when all of it is gone."""
        return self._helm("uninstall", "--wait", "--timeout", f"{wait}s")

    def scale(self, replicas: int) -> None:
        """Change the number of replicas, without Helm; returns at once."""
        self._kubectl("scale", f"deployment/{self.objects}", f"--replicas={replicas}")

    def settled(self, *, seconds: int = WAIT_SECONDS) -> None:
        """Wait until the Deployment is as it should be."""
        self._kubectl("rollout", "status", f"deployment/{self.objects}", f"--timeout={seconds}s")

    def replicas(self, *, ready: bool = True) -> dict[str, str]:
        """Name and address of its pods: the ready ones that are not ending, or all that are not over."""
        found = self.running.get("pods", "-n", self.namespace, "-l", f"{self.selector}")
        return {
            each["metadata"]["name"]: each["status"].get("podIP", "")
            for each in found["items"]
            if not ready or (is_ready(each) and "deletionTimestamp" not in each["metadata"])
        }

    @property
    def selector(self) -> str:
        """Labels of its replicas."""
        return f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=picker"

    def _kubectl(self, *arguments: str) -> str:
        return self.running.kubectl("-n", self.namespace, *arguments, seconds=WAIT_SECONDS + 30)

    @staticmethod
    def _changing(wait: int) -> tuple[str, ...]:
        return (str(CHART), "--wait", "--timeout", f"{wait}s", "--values", "-")

    def _helm(self, verb: str, *arguments: str, values: Values | None = None) -> str:
        command = [str(TOOLS / "helm"), verb, self.name, "--namespace", self.namespace, *arguments]
        given = None if values is None else json.dumps(values)
        return self.running.run(*command, given=given, seconds=WAIT_SECONDS + 60)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's status says so."""
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
