"""One pod: its network, its volumes, its containers from the first to the last, and what the API is told of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.kubernetes.cluster import network
from tests.kubernetes.cluster.api import STRATEGIC, Api, ApiError, Object, named, timestamp
from tests.kubernetes.cluster.container import Container, Mount, Outfit, first_argv
from tests.kubernetes.cluster.controlplane import PORT, ROOT
from tests.kubernetes.cluster.images import image_of
from tests.kubernetes.cluster.probes import Prober
from tests.kubernetes.cluster.volumes import MissingError, Pages, expanded

DNS_SUFFIX: Final = "cluster.local"
LEAST_GRACE: Final = 1.0
"""A pod deleted by force is ended after so long, as a kubelet does."""
_MISSING_SECONDS = 1.0


class Pod:
    """A pod of this node, from its binding to its end. `live` returns when nothing of it is left."""

    def __init__(self, api: Api, item: Object, *, address: str, folder: Path) -> None:
        self.item = item
        self.address = address
        self.folder = folder
        self._api = api
        self._spec: Object = item["spec"]
        self._network = "p" + item["metadata"]["uid"][:12]
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._grace = float(self._spec.get("terminationGracePeriodSeconds", 30))
        self._begun = timestamp()
        self._prober = Prober(address)
        self._pages = Pages(api, item, address)
        self._volumes: dict[str, Path] = {}
        self._outfits: dict[str, Outfit] = {}
        policy = self._spec.get("restartPolicy", "Always")
        self._policy = policy
        self._init = [self._container(each, first=True) for each in self._spec.get("initContainers", ())]
        self._main = [self._container(each) for each in self._spec["containers"]]
        self._lives: list[asyncio.Task[None]] = []
        self._fault = ""

    def _container(self, spec: Object, *, first: bool = False) -> Container:
        always = (self._policy == "Always" and not first) or spec.get("restartPolicy") == "Always"
        return Container(
            spec,
            lambda: self._outfits[spec["name"]],
            self._changed.set,
            self._prober,
            always=always,
            on_failure=self._policy != "Never",
        )

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return named(self.item)

    def end(self, grace: float | None = None) -> None:
        """Begin its end, or hurry it; `live` goes on until it is over."""
        if grace is not None:
            self._grace = max(min(grace, self._grace) if self._ending.is_set() else grace, LEAST_GRACE)
        self._ending.set()
        self._changed.set()

    async def live(self) -> None:
        """Start, run and end it."""
        reporting: asyncio.Task[None] | None = None
        try:
            await network.add_pod(self._network, self.address)
            async with self._prober:
                reporting = asyncio.create_task(self._report())
                await self._run()
                await self._stop()
        finally:
            if reporting is not None:
                reporting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reporting
            await network.drop_pod(self._network)

    async def _run(self) -> None:
        running = asyncio.create_task(self._containers())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                await self._tell()
                await ending
        finally:
            for task in (running, ending):
                task.cancel()
            await asyncio.gather(running, ending, return_exceptions=True)

    async def _containers(self) -> None:
        """Init containers one after another, then the others together; returns when those have ended for good."""
        await self._dress()
        for container in self._init:
            self._start(container)
            if container.always:
                await container.first.wait()
                continue
            await container.ended.wait()
            if container.code != 0:
                self._fault = f"init container {container.name} failed"
                return
        for container in self._main:
            self._start(container)
        for container in self._main:
            await container.ended.wait()

    def _start(self, container: Container) -> None:
        self._lives.append(asyncio.create_task(container.live(), name=f"{self.name}/{container.name}"))

    async def _dress(self) -> None:
        """Write the volumes and read the variables; waits for what is missing, as a kubelet does."""
        while True:
            try:
                security = self._spec.get("securityContext", {})
                for volume in self._spec.get("volumes", ()):
                    folder = self.folder / "volumes" / volume["name"]
                    group = security.get("fsGroup", 0)
                    self._volumes[volume["name"]] = await self._pages.volume(volume, folder, group)
                for container in (*self._init, *self._main):
                    self._outfits[container.name] = await self._outfit(container.spec)
            except (MissingError, ApiError, aiohttp.ClientError, TimeoutError) as error:
                self._fault = str(error)
                self._changed.set()
                await asyncio.sleep(_MISSING_SECONDS)
            else:
                self._fault = ""
                return

    async def _outfit(self, spec: Object) -> Outfit:
        image = image_of(spec["image"])
        if image is None:
            raise MissingError(f"ErrImagePull: no image {spec['image']} here")
        security = {**self._spec.get("securityContext", {}), **spec.get("securityContext", {})}
        user = security.get("runAsUser", image.user)
        if security.get("runAsNonRoot") and user == 0:
            raise MissingError(f"container {spec['name']} has runAsNonRoot and image will run as root")
        api_host, api_port = network.NODE, str(PORT)
        environment = {
            "PATH": image.path, "HOSTNAME": self.item["metadata"]["name"], "HOME": "/tmp",
            "KUBERNETES_SERVICE_HOST": api_host, "KUBERNETES_SERVICE_PORT": api_port,
            "KUBERNETES_SERVICE_PORT_HTTPS": api_port, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        environment |= await self._pages.environment(spec)
        return Outfit(
            argv=tuple(expanded(each, environment) for each in first_argv(spec, image.entrypoint)),
            environment=environment,
            mounts=(*self._own_files(), *self._mounts(spec)),
            network=self._network,
            folder=self.folder / "containers" / spec["name"],
            workdir=spec.get("workingDir", "/"),
            user=user,
            group=security.get("runAsGroup", user),
            read_only=security.get("readOnlyRootFilesystem", False),
            privileged=not user,
        )

    def _own_files(self) -> Sequence[Mount]:
        """The programs of this repository and its Python, wherever they are; and the files of a kubelet's making."""
        namespace, name = self.name.split("/")
        resolv, hosts = self.folder / "resolv.conf", self.folder / "hosts"
        search = " ".join(f"{prefix}{DNS_SUFFIX}" for prefix in (f"{namespace}.svc.", "svc.", ""))
        resolv.write_text(f"nameserver {network.NODE}\nsearch {search}\noptions ndots:5\n")
        hosts.write_text(f"127.0.0.1 localhost\n::1 localhost\n{self.address} {name}\n")
        programs = [Mount(path, str(path), read_only=True) for path in (ROOT, Path(sys.base_prefix))]
        return (*programs, Mount(resolv, "/etc/resolv.conf"), Mount(hosts, "/etc/hosts"))

    def _mounts(self, spec: Object) -> list[Mount]:
        found = []
        for mount in spec.get("volumeMounts", ()):
            source = self._volumes[mount["name"]] / mount.get("subPath", "")
            found.append(Mount(source, mount["mountPath"], mount.get("readOnly", False)))
        return found

    async def _stop(self) -> None:
        """End the containers at once and together, sidecars after them; each within what is left of the grace."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        sidecars = [each for each in self._init if each.always]
        await self._tell()
        for group in (self._main, sidecars[::-1]):
            left = partial(self._left, loop.time() - begun)
            await asyncio.gather(*(each.stop(left) for each in group))
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        await self._tell()

    def _left(self, spent: float) -> float:
        """Of the grace, which may have been shortened meanwhile."""
        return self._grace - spent

    def _phase(self) -> str:
        if self._policy != "Always" or self._ending.is_set():
            codes = [each.code for each in self._main if each.ended.is_set()]
            if len(codes) == len(self._main):
                return "Succeeded" if not any(codes) else "Failed"
        if self._fault.startswith("init container"):
            return "Failed"
        return "Running" if all(each.process for each in self._main) else "Pending"

    def status(self) -> Object:
        """What the API is told."""
        phase = self._phase()
        initialized = all(each.first.is_set() if each.always else each.code == 0 for each in self._init)
        sidecars_ready = all(each.ready for each in self._init if each.always)
        ready = all(each.ready for each in self._main) and sidecars_ready and phase == "Running"
        conditions = {
            "PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready,
        }  # fmt: skip
        status: dict[str, Any] = {
            "phase": phase, "hostIP": network.NODE, "podIP": self.address, "podIPs": [{"ip": self.address}],
            "startTime": self._begun, "containerStatuses": [self._shown(each) for each in self._main],
            "conditions": [_condition(kind, holds) for kind, holds in conditions.items()],
        }  # fmt: skip
        if self._init:
            status["initContainerStatuses"] = [self._shown(each) for each in self._init]
        return status

    def _shown(self, container: Container) -> Object:
        status = container.status()
        if self._fault and container.process is None:
            reason = (
                "ErrImagePull" if self._fault.startswith("ErrImagePull") else "CreateContainerConfigError"
            )
            status["state"] = {"waiting": {"reason": reason, "message": self._fault}}
        return status

    async def _report(self) -> None:
        """Tell the API whatever changes."""
        while True:
            await self._tell()
            await self._changed.wait()
            self._changed.clear()

    _told = ""

    async def _tell(self) -> None:
        while True:
            status = self.status()
            stable = {
                **status,
                "conditions": [(each["type"], each["status"]) for each in status["conditions"]],
            }
            told = json.dumps(stable, sort_keys=True)
            if told == self._told:
                return
            namespace, name = self.name.split("/")
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            try:
                await self._api.call("PATCH", path, {"status": status}, kind=STRATEGIC)
            except ApiError as error:
                if error.status == 404:
                    return
                await asyncio.sleep(0.3)
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.sleep(0.3)
            else:
                self._told = told


def _condition(kind: str, holds: bool) -> Object:
    return {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": timestamp()}
