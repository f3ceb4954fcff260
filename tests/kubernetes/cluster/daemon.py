"""The process that is the cluster: it starts everything, keeps it alive, and takes it along when it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from picker.sim.processes import Children
from tests.kubernetes.cluster import logs, network
from tests.kubernetes.cluster.api import Api
from tests.kubernetes.cluster.controlplane import ROOT, SERVER, TOKEN, ControlPlane
from tests.kubernetes.cluster.dns import Resolver
from tests.kubernetes.cluster.endpoints import EndpointFiles
from tests.kubernetes.cluster.kubelet import Kubelet
from tests.kubernetes.cluster.proxy import ClusterIps
from tests.kubernetes.cluster.services import Services

KUBECTL: Final = ROOT / ".tools" / "bin" / "kubectl"
CRDS: Final = ROOT / ".tools" / "chart" / "crds"
KINDS: Final = ("inference.networking.*.yaml", "gateway.networking.k8s.io_*.yaml")
"""The definitions that a cluster begins with."""
READY_FILE: Final = "cluster.json"
_APPLY_SECONDS = 120

Say = Callable[[str], None]


class DefinitionsError(Exception):
    """The custom objects' definitions were refused."""


async def run(folder: Path, say: Say) -> None:
    """Start a cluster in namespaces of its own, write `cluster.json` once pods can be started, run until cancelled."""
    network.enter_new()
    plane = ControlPlane(folder / "controlplane")
    plane.write()
    words = folder / "logs"
    words.mkdir(parents=True, exist_ok=True)
    ready = folder / READY_FILE

    def written() -> None:
        """Processes that come back have other ids."""
        if ready.exists():
            _write(ready, plane, children)

    async with (
        Api(SERVER, TOKEN) as api,
        Children(words, say=say, changed=written, restart_seconds=1) as children,
    ):
        await children.start(plane.etcd())
        await children.start(plane.apiserver(api))
        await children.start(plane.controllers())
        await children.start(plane.scheduler())
        await _define(plane)
        ips, files = ClusterIps(say), EndpointFiles(folder / "endpoints")
        services = Services(api, ips.changed, files.changed)
        kubelet = Kubelet(api, folder / "pods", say)
        async with asyncio.TaskGroup() as group:
            group.create_task(services.run())
            group.create_task(ips.run(services))
            group.create_task(files.run(services))
            group.create_task(Resolver(services).serve(network.NODE))
            group.create_task(kubelet.run())
            group.create_task(logs.serve(folder / "pods"))
            group.create_task(children.given_up())
            await _default_account(api)
            _write(ready, plane, children)


async def _define(plane: ControlPlane) -> None:
    files = [str(path) for kinds in KINDS for path in sorted(CRDS.glob(kinds))]
    if not files:
        raise DefinitionsError(f"no definitions in {CRDS}: run `make chart-tools`")
    process = await asyncio.create_subprocess_exec(
        str(KUBECTL), "--kubeconfig", str(plane.kubeconfig), "apply", "--server-side",
        *(part for file in files for part in ("-f", file)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    words, _ = await asyncio.wait_for(process.communicate(), _APPLY_SECONDS)
    if process.returncode:
        raise DefinitionsError(words.decode())


async def _default_account(api: Api) -> None:
    """Wait for the account that pods get where they name none: the controllers work then."""
    while True:
        page = await api.get("/api/v1/namespaces/default/serviceaccounts")
        if page["items"]:
            return
        await asyncio.sleep(0.1)


def _write(file: Path, plane: ControlPlane, children: Children) -> None:
    page = {
        "pid": os.getpid(), "server": SERVER, "token": TOKEN, "kubeconfig": str(plane.kubeconfig),
        "audit": str(plane.audit), "pods": str(file.parent / "pods"),
        "processes": {name: children[name].pid for name in children.names()},
    }  # fmt: skip
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(page, indent=1))
    partial.replace(file)
