"""A cluster seen from a test: started, entered, asked, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from picker.sim.processes import lives
from tests.kubernetes.cluster import network
from tests.kubernetes.cluster.controlplane import BINARY, ROOT
from tests.kubernetes.cluster.logs import log_file

TOOLS: Final = ROOT / ".tools" / "bin"
START_SECONDS: Final = 240.0
END_SECONDS: Final = 40.0
CALL_SECONDS: Final = 180.0


class ClusterError(Exception):
    """The cluster did not start, or a command to it failed."""


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that runs. Every look reads its file: process ids change when a part comes back."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    """Where this process started it."""

    @property
    def page(self) -> dict[str, Any]:
        """What the cluster says of itself."""
        found: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return found

    @property
    def pid(self) -> int:
        """The process that is the cluster."""
        return int(self.page["pid"])

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator; its server answers inside the cluster's network only."""
        return Path(self.page["kubeconfig"])

    @property
    def environment(self) -> dict[str, str]:
        """Variables under which kubectl and helm mean this cluster."""
        home = self.folder / "helm"
        return {
            **os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home),
        }  # fmt: skip

    def join(self) -> None:
        """Move this thread, and whatever it starts from now on, into the cluster's network."""
        network.join(self.pid)

    def kubectl(self, *arguments: str, given: str | None = None, seconds: float = CALL_SECONDS) -> str:
        """Run kubectl; returns what it said. For a thread that has joined.

        Raises:
            ClusterError: it failed; its words are in it.

        """
        return self.run(str(TOOLS / "kubectl"), *arguments, given=given, seconds=seconds)

    def run(self, *command: str, given: str | None = None, seconds: float = CALL_SECONDS) -> str:
        """Run any command under the cluster's variables; like `kubectl`."""
        done = subprocess.run(
            command,
            input=given,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode:
            words = (done.stderr + done.stdout).strip()
            raise ClusterError(f"`{' '.join(command)[:300]}` failed:\n{words}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get ... -o json`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(items))

    def part(self, name: str) -> int:
        """Process id of a part: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`."""
        return int(self.page["processes"][name])

    def restart(self, name: str = "kube-apiserver", *, seconds: float = 60.0) -> None:
        """SIGKILL a part and wait until it has come back by itself (a second later, then as long as it takes)."""
        before = self.part(name)
        os.kill(before, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while self.part(name) == before:
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} did not come back within {seconds:g} s")
            time.sleep(0.1)

    def container(self, namespace: str, pod: str, container: str) -> int:
        """Process id of a container."""
        statuses = self.get("pod", pod, "-n", namespace)["status"]["containerStatuses"]
        (found,) = (each["containerID"] for each in statuses if each["name"] == container)
        return int(found.removeprefix("process://"))

    def log(self, namespace: str, pod: str, container: str) -> str:
        """What a container has said; kept after its end."""
        file = log_file(Path(self.page["pods"]), namespace, pod, container)
        return file.read_text(errors="replace") if file.exists() else ""

    def audit(self) -> Iterator[dict[str, Any]]:
        """Every request that the API server answered so far."""
        for file in sorted(Path(self.page["audit"]).parent.glob("audit*.log")):
            with file.open() as lines:
                yield from (json.loads(line) for line in lines if line.endswith("\n"))

    def denied(self) -> list[dict[str, Any]]:
        """Those among them that the authoriser forbade."""
        verdict = "authorization.k8s.io/decision"
        return [each for each in self.audit() if each.get("annotations", {}).get(verdict) == "forbid"]


def start(folder: Path, *, bound: bool = False) -> Running:
    """Start a cluster; returns when pods can be started. ``bound``: it ends with this process at the latest.

    Raises:
        ClusterError: it did not come up; the end of its log is in it.

    """
    if not BINARY.exists():
        raise ClusterError(f"{BINARY} is missing: run `python -m tests.tools.controlplane`")
    folder.mkdir(parents=True, exist_ok=True)
    ready, log = folder / "cluster.json", folder / "cluster.log"
    ready.unlink(missing_ok=True)
    with_us = ["setpriv", "--pdeathsig", "TERM"] if bound else []
    command = [*with_us, sys.executable, "-m", "tests.kubernetes.cluster", "run", "--folder", str(folder)]
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            end(process.pid)
            process.wait()
            raise ClusterError(f"no cluster; its log ends with:\n{log.read_text()[-4000:]}")
        time.sleep(0.1)
    return Running(folder, process)


def end(pid: int) -> None:
    """End a cluster by its process id, with everything in it; what is gone already is fine."""
    deadline = time.monotonic() + END_SECONDS
    number = signal.SIGTERM
    while lives(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.1)


@contextmanager
def cluster(folder: Path) -> Iterator[Running]:
    """A cluster until the block is left; this thread is moved into its network, and back."""
    running = start(folder, bound=True)
    pid, own = running.pid, os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        running.join()
        yield running
    finally:
        network.back(own)
        os.close(own)
        end(pid)
        if running.process is not None:
            running.process.wait()
