"""The gateway: real Envoy in a pod of its own, wired to the picker by hand as the chart's notes tell it.

Health check, outlier detection, retry and access log are those of `picker.sim.envoy`; what differs is how Envoy finds
the replicas: by the Service's name (refreshed every 5 s, or when its TTL has passed), or by its endpoints.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from picker.sim.envoy import PICKER_LOGS, PICKERS, Listener, envoy_config
from tests.kubernetes.cluster.endpoints import endpoints_file, endpoints_name
from tests.kubernetes.cluster.images import ENVOY
from tests.kubernetes.cluster.running import Running

Finding = Literal["dns", "endpoints"]
PORT: Final = 8080
ADMIN: Final = 9901
EXT_PROC: Final = 9002
REFRESH_SECONDS: Final = 5
_CONFIG, _ENDPOINTS = "/etc/envoy", "/etc/endpoints"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway in a namespace, before the replicas behind one Service."""

    running: Running
    name: str
    namespace: str
    service: str
    """The picker's ext_proc Service, in the same namespace."""
    finding: Finding = "dns"
    tls: bool = True
    listeners: tuple[Listener, ...] = (Listener("gateway", PORT),)

    def start(self) -> str:
        """Start it and return its URL once it serves."""
        folder = self.running.folder / "gateways" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "envoy.json").write_text(json.dumps(self.config()))
        self.running.apply(self._deployment(folder))
        self.running.kubectl(
            "-n", self.namespace, "rollout", "status", f"deployment/{self.name}", "--timeout=60s"
        )
        return self.url()

    def url(self, port: int = PORT) -> str:
        """Where it listens."""
        pods = self.running.get("pods", "-n", self.namespace, "-l", f"app={self.name}")
        (address,) = {
            each["status"]["podIP"] for each in pods["items"] if each["status"]["phase"] == "Running"
        }
        return f"http://{address}:{port}"

    def stop(self) -> None:
        """Take it away, at once."""
        self.running.kubectl("-n", self.namespace, "delete", f"deployment/{self.name}", "--wait=false")

    def config(self) -> dict[str, Any]:
        """Its whole configuration."""
        name = f"{self.service}.{self.namespace}.svc"
        config = envoy_config(self.listeners, [f"{name}:{EXT_PROC}"], ADMIN, tls=self.tls, host="0.0.0.0")
        config["node"] = {"id": self.name, "cluster": self.namespace}
        for cluster in config["static_resources"]["clusters"]:
            if cluster["name"] in {PICKERS, PICKER_LOGS}:
                cluster.update(self._found_by(cluster.pop("load_assignment")))
        return config

    def _found_by(self, name: dict[str, Any]) -> dict[str, Any]:
        if self.finding == "dns":
            return {
                "type": "STRICT_DNS", "load_assignment": name, "respect_dns_ttl": True,
                "dns_refresh_rate": f"{REFRESH_SECONDS}s",
            }  # fmt: skip
        where = (self.namespace, self.service, "grpc-ext-proc")
        path = Path(_ENDPOINTS) / endpoints_file(*where)
        source = {"path": str(path), "watched_directory": {"path": str(path.parent)}}
        config = {"path_config_source": source, "resource_api_version": "V3"}
        return {
            "type": "EDS",
            "eds_cluster_config": {"eds_config": config, "service_name": endpoints_name(*where)},
        }

    def _deployment(self, folder: Path) -> dict[str, Any]:
        labels = {"app": self.name}
        endpoints = self.running.folder / "endpoints"
        endpoints.mkdir(exist_ok=True)
        arguments = [
            "-c",
            f"{_CONFIG}/envoy.json",
            "--concurrency",
            "2",
            "-l",
            "warning",
            "--disable-hot-restart",
        ]
        container = {
            "name": "envoy", "image": ENVOY, "args": arguments,
            "readinessProbe": {"httpGet": {"path": "/ready", "port": ADMIN}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "config", "mountPath": _CONFIG}, {"name": "endpoints", "mountPath": _ENDPOINTS},
            ],
        }  # fmt: skip
        volumes = [
            {"name": "config", "hostPath": {"path": str(folder)}},
            {"name": "endpoints", "hostPath": {"path": str(endpoints)}},
        ]
        pod = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
        return {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }  # fmt: skip
