"""One container: a process with a root of its own, started again as its pod says, probed as its probes say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.api import Object, timestamp
from tests.kubernetes.cluster.probes import Prober

BACKOFF_SECONDS = 10.0
"""Longest wait before a container that ended is started again; doubled from one second on."""
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine, and where the container sees it."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Outfit:
    """Everything that a container is started with."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    network: str
    """Name of the pod's network namespace."""
    folder: Path
    """For its root and its log."""
    workdir: str = "/"
    user: int = 0
    group: int = 0
    read_only: bool = False
    privileged: bool = False

    def script(self) -> str:
        """Build the root out of the machine's own and the mounts, give up what the container has no right to, start.

        The kernel is told last to end the process with its kubelet: it forgets that when the user changes.
        """
        root = self.folder / "root"
        lines = [
            "set -e",
            f"mount -t tmpfs container {root}",
            f"mkdir {root}/upper {root}/work {root}/merged",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={root}/upper,workdir={root}/work {root}/merged",
            f"cd {root}/merged",
            *(f"mount --rbind /{name} {name}" for name in ("proc", "sys", "dev")),
            # what lies within another mount comes after it: this repository may well be somewhere below /tmp
            *(line for mount in sorted(self.mounts, key=_depth) for line in _mounted(mount)),
        ]
        if self.read_only:
            lines.append("mount -o remount,ro .")
        drop = ["--no-new-privs"]
        if not self.privileged:
            drop += ["--bounding-set=-all", "--inh-caps=-all"]
        if self.user:
            drop += [f"--reuid={self.user}", f"--regid={self.group}", "--clear-groups"]
        start = ["env", "-C", self.workdir, "setpriv", *drop, "--pdeathsig", "KILL", *self.argv]
        lines.append(f"exec chroot . {shlex.join(start)}")
        return "\n".join(lines) + "\n"


def _depth(mount: Mount) -> int:
    return len(Path(mount.target).parts)


def _mounted(mount: Mount) -> list[str]:
    # links are followed here: an absolute one would lead out of the root, to the machine's own file
    target = shlex.quote(str(Path(mount.target).resolve().relative_to("/")))
    source = shlex.quote(str(mount.source))
    if mount.source.is_dir():
        made = f"mkdir -p {target}"
    else:
        made = f'mkdir -p "$(dirname {target})"; test -e {target} || : > {target}'
    # whoever runs as nobody in particular must get there
    lines = [made, f'd=$(dirname {target}); while [ "$d" != . ]; do chmod a+x "$d"; d=$(dirname "$d"); done']
    lines.append(f"mount --rbind {source} {target}")
    if mount.read_only:
        lines.append(f"mount -o remount,bind,ro {target}")
    return lines


@dataclass(slots=True)
class Container:
    """
    One container of a pod.

    ``outfit`` is asked at each start; ``changed`` is called whenever the status differs from before. ``always``: it
    is started again whatever its exit code; ``on_failure``: only after one other than 0.
    """

    spec: Object
    outfit: Callable[[], Outfit]
    changed: Callable[[], None]
    prober: Prober
    always: bool = True
    on_failure: bool = True
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    begun: float = 0.0
    last: Object | None = None
    """State of the life before."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is over for good."""
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has started, as its startup probe says."""
    stopping: bool = False
    fault: str = ""

    @property
    def name(self) -> str:
        """Its name within the pod."""
        return str(self.spec["name"])

    @property
    def pid(self) -> int:
        """The process of the present life."""
        return self.process.pid if self.process else 0

    @property
    def code(self) -> int | None:
        """Exit code as Kubernetes tells it, None while it runs."""
        if self.process is None or self.process.returncode is None:
            return None
        code = self.process.returncode
        return 128 - code if code < 0 else code

    async def live(self) -> None:
        """Run it until it is over for good."""
        try:
            while not self.stopping:
                await self._life()
                code = self.code or 0
                if self.stopping or not (self.always or (self.on_failure and code)):
                    break
                self.last = self.state()
                await asyncio.sleep(min(BACKOFF_SECONDS, 2.0**self.restarts) if self.restarts else 1.0)
                self.restarts += 1
        except OSError as error:
            self.fault = str(error)
        finally:
            self.ready = False
            self.ended.set()
            self.changed()

    async def _life(self) -> None:
        outfit = self.outfit()
        (outfit.folder / "root").mkdir(parents=True, exist_ok=True)
        script = outfit.folder / "start.sh"
        script.write_text(outfit.script())
        with (outfit.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                "setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", outfit.network, "sh", str(script),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(outfit.environment), start_new_session=True,
            )  # fmt: skip
        self.begun = time.time()
        self.ready, self.started = "readinessProbe" not in self.spec, "startupProbe" not in self.spec
        if self.started:
            self.first.set()
        else:
            self.first.clear()
        self.changed()
        probing = asyncio.create_task(self._probe())
        try:
            await self.process.wait()
        finally:
            probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probing
            self.ready = False
            self._signal_group(signal.SIGKILL)
            self.changed()

    async def _probe(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in PROBES:
                if kind in self.spec:
                    group.create_task(self._ask(kind, self.spec[kind]))

    async def _ask(self, kind: str, probe: Object) -> None:
        """One probe again and again; what it finds takes effect after as many answers as it says."""
        if kind != "startupProbe":
            await self.first.wait()
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        good = bad = 0
        while True:
            begun = time.monotonic()
            fine = await self.prober.ask(probe, self.spec, self.pid)
            good, bad = (good + 1, 0) if fine else (0, bad + 1)
            if good >= probe.get("successThreshold", 1) and self._found(kind, fine=True):
                return
            if bad >= probe.get("failureThreshold", 3):
                self._found(kind, fine=False)
            await asyncio.sleep(max(0.0, begun + probe.get("periodSeconds", 10) - time.monotonic()))

    def _found(self, kind: str, *, fine: bool) -> bool:
        """Let a result take effect; whether this probe is over."""
        if kind == "readinessProbe":
            if self.ready != fine:
                self.ready = fine
                self.changed()
        elif not fine:
            self._signal_group(signal.SIGTERM)
            asyncio.get_running_loop().call_later(2, self._signal_group, signal.SIGKILL)
        elif kind == "startupProbe":
            self.started = True
            self.first.set()
            self.changed()
            return True
        return False

    async def stop(self, grace: Callable[[], float]) -> None:
        """preStop, SIGTERM, and SIGKILL once ``grace()`` seconds have passed in all. The grace may shrink meanwhile."""
        self.stopping = True
        begun = time.monotonic()
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pre_stop(), max(grace(), 0.1))
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        while self.process.returncode is None:
            if time.monotonic() - begun > grace():
                self._signal_group(signal.SIGKILL)
            await asyncio.sleep(0.05)

    async def _pre_stop(self) -> None:
        hook: Object = self.spec.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])
        elif hook:
            await self.prober.ask(hook, self.spec, self.pid)

    def _signal_group(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def state(self) -> Object:
        """`state` of its status."""
        code, begun = self.code, timestamp(self.begun)
        if self.fault:
            return {"waiting": {"reason": "CreateContainerError", "message": self.fault}}
        if self.process is None:
            return {"waiting": {"reason": "PodInitializing"}}
        if code is None:
            return {"running": {"startedAt": begun}}
        reason = "Completed" if code == 0 else "Error"
        gone = {"exitCode": code, "reason": reason, "startedAt": begun, "finishedAt": timestamp()}
        if code > 128:
            gone["signal"] = code - 128
        return {"terminated": gone}

    def status(self) -> Object:
        """Its entry among the pod's container statuses."""
        status: dict[str, Any] = {
            "name": self.name, "image": self.spec["image"], "imageID": f"process://{self.spec['image']}",
            "containerID": f"process://{self.pid}", "ready": self.ready,
            "started": self.started and self.code is None, "restartCount": self.restarts, "state": self.state(),
        }  # fmt: skip
        if self.last is not None:
            status["lastState"] = self.last
        return status


def first_argv(spec: Object, entrypoint: Sequence[str]) -> tuple[str, ...]:
    """What is started: the pod's command goes before the image's, and drops the image's arguments."""
    return (*(spec.get("command") or entrypoint), *(spec.get("args") or ()))
