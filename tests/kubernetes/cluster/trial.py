"""The chart's trial as a user would run it: three replicas, the bundled Valkey and NATS, engines, a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from picker.sim.model import DIRECTORY
from tests.kubernetes.cluster.engines import Engines
from tests.kubernetes.cluster.gateway import Gateway
from tests.kubernetes.cluster.helm import Release
from tests.kubernetes.cluster.running import Running

NAMESPACE: Final = "llama"
RELEASE: Final = "llama-8b"
LABELS: Final = {"app": RELEASE}
ADMIN_TOKEN: Final = "a-token-for-the-admin-pages"


def values(replicas: int = 3) -> dict[str, Any]:
    """Of the trial: what `docs/install.md` says, a tokenizer for the simulated engines, and admin pages for tests."""
    return {
        "replicas": replicas,
        "pool": {"selector": dict(LABELS)},
        "valkey": {"enabled": True},
        "nats": {"enabled": True},
        "admin": {"existingSecret": {"name": "admin"}},
        "settings": {
            # this machine is shared by all pods, and starves them now and then
            "requests": {"tokenizers": f"*={DIRECTORY}", "tokenizeBudgetSeconds": 0.5},
            "life": {"logFormat": "text"},
        },
    }


def admin_secret(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The namespace, and the token of the admin pages in it: what the release presumes."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": namespace},
            "stringData": {"token": ADMIN_TOKEN},
        },
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything of it."""

    release: Release
    engines: Engines
    gateway: Gateway

    @classmethod
    def of(cls, running: Running, *, namespace: str = NAMESPACE, options: Sequence[str] = ()) -> Trial:
        """The trial in a namespace; nothing of it is there yet. ``options`` are the engines'."""
        release = Release(running, RELEASE, namespace)
        return cls(
            release,
            Engines(release, LABELS, options=options),
            Gateway(running, "gateway", namespace, release.objects),
        )

    def start(self, *, replicas: int = 3, engines: int = 4) -> str:
        """Install it all; returns the gateway's URL."""
        self.release.running.apply(*admin_secret(self.release.namespace))
        self.release.install(values(replicas))
        self.engines.start(engines)
        return self.gateway.start()

    def stop(self) -> None:
        """Take it all away, its namespace too."""
        self.gateway.stop()
        self.engines.stop()
        self.release.uninstall()
        self.release.running.kubectl("delete", "namespace", self.release.namespace)
