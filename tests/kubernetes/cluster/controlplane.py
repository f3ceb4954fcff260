"""etcd, API server, controller manager and scheduler: how each is started, and when it serves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from picker.sim.processes import Probe, Program, answers
from tests.kubernetes.cluster.api import Api
from tests.kubernetes.cluster.network import NODE, SERVICES

ROOT: Final = Path(__file__).resolve().parents[3]
BINARY: Final = ROOT / ".tools" / "controlplane" / "controlplane"
TOKEN: Final = "admin"
PORT: Final = 6443
SERVER: Final = f"https://{NODE}:{PORT}"
ETCD: Final = "http://127.0.0.1:2379"
CONTROLLERS: Final = (
    "deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller",
    "endpointslice-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
    "namespace-controller", "garbage-collector-controller", "disruption-controller",
)  # fmt: skip
"""What a node, a cloud or a volume would need is left out."""
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its files in one folder, written once: keys, tokens, kubeconfig, audit log."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return self.folder / "admin.kubeconfig"

    @property
    def audit(self) -> Path:
        """One line of JSON for each request that the API server answered."""
        return self.folder / "audit.log"

    @property
    def authority(self) -> Path:
        """Certificate of the API server, which signs itself."""
        return self.folder / "apiserver.crt"

    def write(self) -> None:
        """Write what the programs are started with."""
        self.folder.mkdir(parents=True, exist_ok=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding = serialization.Encoding.PEM
        (self.folder / "accounts.key").write_bytes(
            key.private_bytes(
                encoding, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        (self.folder / "accounts.pub").write_bytes(
            key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        (self.folder / "audit-policy.json").write_text(json.dumps(AUDIT))
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig()))

    def etcd(self) -> Program:
        """The store; what it holds is lost with the folder, so it need not wait for the disk."""
        peers = "http://127.0.0.1:2380"
        argv = (
            "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
            "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD, "--listen-peer-urls", peers,
            "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
        )  # fmt: skip
        return self._program("etcd", *argv, ready=answers(f"{ETCD}/health"))

    def apiserver(self, api: Api) -> Program:
        """The API server: RBAC, every request in the audit log, certificates of its own making."""
        argv = (
            "--etcd-servers", ETCD, "--cert-dir", str(self.folder), "--bind-address", "0.0.0.0",
            "--secure-port", str(PORT), "--advertise-address", NODE, "--endpoint-reconciler-type", "none",
            "--service-cluster-ip-range", str(SERVICES), "--authorization-mode", "RBAC",
            "--token-auth-file", str(self.folder / "tokens.csv"),
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-signing-key-file", str(self.folder / "accounts.key"),
            "--service-account-key-file", str(self.folder / "accounts.pub"),
            "--audit-log-path", str(self.audit),
            "--audit-policy-file", str(self.folder / "audit-policy.json"),
            "--shutdown-delay-duration", "0s", "--profiling=false",
        )  # fmt: skip
        return self._program("kube-apiserver", *argv, ready=api.ready)

    def controllers(self) -> Program:
        """The controller manager with what pods and Services need."""
        argv = (
            *self._client(), "--controllers", ",".join(CONTROLLERS),
            "--service-account-private-key-file", str(self.folder / "accounts.key"),
            "--root-ca-file", str(self.authority), "--use-service-account-credentials=false",
        )  # fmt: skip
        return self._program("kube-controller-manager", *argv, ready=_at_once)

    def scheduler(self) -> Program:
        """The scheduler."""
        return self._program("kube-scheduler", *self._client(), ready=_at_once)

    def _client(self) -> tuple[str, ...]:
        return ("--kubeconfig", str(self.kubeconfig), "--bind-address", "127.0.0.1", "--leader-elect=false")

    def _program(self, name: str, *argv: str, ready: Probe) -> Program:
        return Program(name, (str(BINARY), name, *argv), ready, ready_seconds=_START_SECONDS, stop_seconds=10)


async def _at_once() -> bool:
    return True


def _kubeconfig() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        "current-context": "local",
    }
