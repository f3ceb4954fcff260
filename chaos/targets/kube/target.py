"""A release in Kubernetes as a target: its replicas, its pool's engines, their pages, and what can be done to it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chaos.injectors import Fault, Injection
from chaos.targets import TargetError
from chaos.targets.kube import faults
from chaos.targets.kube.access import offers_of
from chaos.targets.kube.engines import Engines, find_engines
from chaos.targets.kube.hand import Call, Hand
from chaos.targets.kube.members import LOOK_SECONDS, Members, Tell
from chaos.targets.kube.options import Options
from chaos.targets.kube.proofs import WORTH_A_RETRY
from chaos.targets.kube.release import INSTANCE, NotOursError, Release, ReleaseError, Replica, read_release
from chaos.targets.kube.server import Server
from chaos.targets.kube.ways import Ways
from chaos.topology import PlaneName, Topology
from discovery.kubernetes.api import ApiError

WHOLE_SECONDS = 180.0
"""How long the release may take to be whole before a scenario."""
MEET_TRIES = 3
"""How often an API server that does not answer is asked before anything is begun."""


class Kube:
    """One release. ``async with`` meets it, and leaves it as it was. A `chaos.targets.Target`.

    ``folder``: of this run's files. ``say``: is told what happens besides the scenarios.
    """

    def __init__(
        self, options: Options, *, folder: Path, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        options.check()
        self.options = options
        self.folder = folder
        self.server = Server(options.kubeconfig, context=options.context)
        self.version = ""
        self.calls: list[Call] = []
        """Every call that changed something."""
        self.missing: Mapping[str, str] = {}
        """Faults that cannot be brought about here, with the reason."""
        self.ways = Ways(self.server, options)
        """How its pods are dialled."""
        self.found = Engines()
        """The engines of its pool."""
        self._say = say
        self._tell: Tell = lambda _fault: None
        self._lives: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None
        self._release: Release | None = None
        self._members: Members | None = None
        self._hand: Hand | None = None

    # meeting it, and leaving it

    async def meet(self) -> None:
        """Find the release and what can be done to it. Reads only. Raises TargetError."""
        for number in range(1, MEET_TRIES + 1):
            try:
                await self._meet()
            except (ApiError, ReleaseError, NotOursError) as error:
                busy = isinstance(error, ApiError) and error.status in WORTH_A_RETRY
                if busy and number < MEET_TRIES:
                    await asyncio.sleep(1.0)
                    continue
                name, namespace = self.options.release, self.options.namespace
                raise TargetError(f"release {name} in namespace {namespace}: {error}") from error
            return

    async def _meet(self) -> None:
        namespace, name = quote(self.options.namespace, safe=""), self.options.release
        self.version = str((await self.server.get("/version")).get("gitVersion", ""))
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        listed = await self.server.get(path, labelSelector=f"{INSTANCE}={name}")
        release = read_release(listed.get("items") or (), namespace=self.options.namespace, name=name)
        self._release = release
        self._hand = Hand(self.server, release, told=self._called)
        self._members = Members(self.server, release, self._reached, self._told)
        self.missing = await offers_of(self.server, release)
        await self.members.look()

    async def start(self) -> None:
        """Meet it, find a way to its pods, wait until it is whole. Raises TargetError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        await self.ways.open()
        try:
            await self.meet()
            await self.ways.choose(self.release, self.members.replicas.values())
            self.members.pages.clear()
            await self._take_away_leftovers()
            await self.make_whole()
            await self.ways.check(self.members.pages)
            self._looking = asyncio.create_task(self.members.run(), name="members")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Leave it. What was done to it, injections have undone themselves."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None
        await self.ways.close()
        await self.server.close()

    async def make_whole(self) -> None:
        """Wait until as many replicas run as are wanted; find the engines anew. Raises TargetError."""
        until = time.monotonic() + WHOLE_SECONDS
        while True:
            with suppress(ApiError):
                await self.members.look()
                if self.members.whole and len(self.members.pages) == len(self.members.replicas):
                    break
            if time.monotonic() > until:
                raise TargetError(
                    f"{self.release.place} is not whole after {WHOLE_SECONDS:g} s: {self._state()}"
                )
            await asyncio.sleep(LOOK_SECONDS)
        await self.ways.leave(self.release, self.members.replicas.__contains__)
        self.found = await find_engines(self.server, self.ways, self.release.pool)

    # what a run looks at

    @property
    def gateway(self) -> str:
        """URL that load is sent to."""
        return self.options.gateway.rstrip("/")

    @property
    def model(self) -> str:
        """Model that requests name; empty: the simulated engines'."""
        return self.options.model

    @property
    def headers(self) -> Mapping[str, str]:
        """What the replicas' pages ask for."""
        return self.ways.headers

    def replicas(self) -> Mapping[str, str]:
        """Replica's name, which is its pod's -> ``host:port`` of its pages; changes as pods come and go."""
        return self.members.pages

    def engines(self) -> Mapping[str, str]:
        """Engine's name -> its name in the pool; empty where engines do not tell the truth."""
        return {} if self.found.untold else self.found.workers

    def truths(self) -> Mapping[str, str]:
        """Engine's name -> ``host:port`` where it tells what it carries."""
        return {} if self.found.untold else self.found.pages

    def extproc(self, replica: str) -> str:
        """Not offered: scenarios with a gateway of their own run on loopback."""
        raise NotImplementedError(f"ext_proc of {replica} is dialled by gateways in the cluster only")

    @property
    def same_clock(self) -> bool:
        """Whether engines' times are on this machine's clock: hardly ever."""
        return False

    @property
    def lacks(self) -> Sequence[str]:
        """What cannot be told here, of what checks may need."""
        return ("audit", *(["truth"] if self.found.untold else []))

    @property
    def offers(self) -> frozenset[str]:
        """Faults that can be brought about here."""
        return frozenset(faults.DEEDS) - self.missing.keys()

    @property
    def notice_seconds(self) -> float:
        """Within which the gateway learns that a replica is gone."""
        return self.options.notice_seconds

    @property
    def slack_seconds(self) -> float:
        """What pods may take on top of a scenario's budget: each ends and starts in its own time."""
        return 60.0 + self.release.replicas * (self.release.grace_seconds + 30.0)

    @property
    def topology(self) -> Topology:
        """What the release is, so far as it can be told."""
        return Topology(
            replicas=max(1, self.members.wanted()),
            workers=max(1, len(self.found.workers)),
            plane=self.plane,
            place=f"{self.release.place}, {self.release.chart}, Kubernetes {self.version}",
        )

    @property
    def plane(self) -> PlaneName:
        """The plane as the Deployment names it; Redis where a Secret does."""
        return (
            "nats" if self.release.plane_url.startswith(("nats://", "tls://", "ws://", "wss://")) else "redis"
        )

    def told(self) -> Mapping[str, Any]:
        """What ran, for the report."""
        return {
            "kind": "kube",
            "cluster": self.version,
            "namespace": self.release.namespace,
            "release": self.release.name,
            "chart": self.release.chart,
            "version": self.release.version,
            "image": self.release.image,
            "replicas": self.members.wanted(),
            "engines": len(self.found.workers),
            "engines_tell": self.found.untold or "what they carry",
            "pods_reached": self.ways.words,
            "not_offered": dict(self.missing),
        }

    async def audit(self) -> Mapping[str, Any]:
        """Not offered: the plane's server is the cluster's own business."""
        raise NotImplementedError("the plane's server is asked on loopback only")

    def keep_logs(self) -> None:
        """Pods' logs are the cluster's."""

    # what happens on it

    def begin(self, tell: Tell) -> None:
        """A scenario begins; its faults are told there."""
        self._tell = tell
        self._lives.clear()

    def tell(self, fault: Fault) -> None:
        """One phase of a fault."""
        self._tell(fault)

    def fault_id(self, kind: str, target: str) -> str:
        """``kind target #n``: the n-th of its kind in this scenario."""
        name = f"{kind} {target}"
        self._lives[name] += 1
        return f"{name} #{self._lives[name]}"

    def words(self, injection: Injection) -> str:
        """What an injection does to a release, in one line for people."""
        return faults.words(injection)

    def enter(self, injection: Injection) -> AbstractAsyncContextManager[None]:
        """Bring an injection about. Raises InjectionError."""
        return faults.enter(injection, self)

    @property
    def release(self) -> Release:
        """The release that was met."""
        assert self._release is not None, "a release is met first"
        return self._release

    @property
    def members(self) -> Members:
        """Its replicas."""
        assert self._members is not None, "a release is met first"
        return self._members

    @property
    def hand(self) -> Hand:
        """What changes its objects."""
        assert self._hand is not None, "a release is met first"
        return self._hand

    async def answers(self, replica: str, address: str) -> bool:
        """Whether that replica still answers there; another one may have got its address."""
        try:
            return await self.ways.name_of(address) == replica
        except TargetError:
            return False

    async def members_of(self, replica: str) -> frozenset[str] | None:
        """Whom a replica knows as members of the plane."""
        address = self.members.pages.get(replica)
        return None if address is None else await self.ways.members_of(address)

    async def _reached(self, replica: Replica) -> str:
        return await self.ways.to(
            self.release.namespace, replica.name, replica.address, self.release.admin_port
        )

    async def _take_away_leftovers(self) -> None:
        for policy in await self.hand.leftovers():
            self._say(f"NetworkPolicy {policy} of an earlier run is deleted")
            await self.hand.undeny(policy)

    def _state(self) -> str:
        told = [
            f"{each.name} {'ends' if each.ending else 'ready' if each.ready else 'not ready'}"
            for each in self.members.replicas.values()
        ]
        return f"{self.members.wanted()} wanted; {', '.join(told) or 'none runs'}"

    def _told(self, fault: Fault) -> None:
        self._tell(fault)

    def _called(self, call: Call) -> None:
        self.calls.append(call)
