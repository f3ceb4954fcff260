"""The replicas of a release as they come and go: looked for several times a second, each life told as a fault is.

A replica that leaves or joins is no fault by itself. But what checks allow of a replica that dies or starts they must
allow here too, whoever brought it about: a rollout, an autoscaler, a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from chaos.injectors import Fault, Phase
from chaos.story import JOINS, LEAVES, RESTARTS
from chaos.targets.kube.release import Object, Release, Replica, is_whole, read_replica
from chaos.targets.kube.server import Server
from discovery.kubernetes.api import ApiError

LOOK_SECONDS = 0.3
Tell = Callable[[Fault], None]
Reach = Callable[[Replica], Awaitable[str]]
"""From a replica with an address to ``host:port`` of its admin pages."""


@dataclass(slots=True)
class Members:
    """``run()`` looks until it is cancelled; ``look()`` looks once."""

    server: Server
    release: Release
    reach: Reach
    tell: Tell = lambda _fault: None
    pages: dict[str, str] = field(default_factory=dict)
    """Replicas that run or still end, by name -> ``host:port`` of their pages; one is listed once it was ready."""
    replicas: Mapping[str, Replica] = field(default_factory=dict)
    """All pods of the last look."""
    deployment: Object = field(default_factory=dict)
    fault: str = ""
    """Why the last look failed; empty: it did not."""
    looks: int = 0
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _joining: dict[str, str] = field(default_factory=dict)
    """uid -> id of a join that is under way."""
    _leaving: dict[str, str] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    """uid -> name, of all that were there at the last look."""
    _restarts: dict[str, int] = field(default_factory=dict)
    """uid -> how often its picker had been started again at the last look."""
    _restarting: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(ApiError):
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Once. Raises ApiError; what was known then stands."""
        async with self._looking:  # an older answer must not come after a newer one
            await self._look()

    async def _look(self) -> None:
        namespace = quote(self.release.namespace, safe="")
        try:
            listed = await self.server.get(
                f"/api/v1/namespaces/{namespace}/pods", labelSelector=self.release.query
            )
            path = (
                f"/apis/apps/v1/namespaces/{namespace}/deployments/{quote(self.release.deployment, safe='')}"
            )
            self.deployment = await self.server.get(path)
        except ApiError as error:
            self.fault = str(error)
            raise
        mine = (read_replica(each) for each in listed.get("items") or () if self.release.owns(each))
        found = sorted(mine, key=lambda each: (each.since, each.name))
        first = not self.looks
        self.replicas = {each.name: each for each in found}
        self._lives(found, first=first)
        await self._dial(found)
        self.fault, self.looks = "", self.looks + 1

    @property
    def whole(self) -> bool:
        """Whether as many replicas run as are wanted, all new and ready, none ending."""
        return bool(self.deployment) and is_whole(self.deployment, self.replicas.values())

    def wanted(self) -> int:
        """How many replicas the Deployment wants now."""
        return int((self.deployment.get("spec") or {}).get("replicas", 1))

    def _lives(self, found: list[Replica], *, first: bool) -> None:
        there = {each.uid: each for each in found}
        for uid, each in there.items():
            if uid not in self._known and not (first and each.ready):
                self._joining[uid] = self._say(JOINS, each.name, uid, "begin")
            if uid in self._joining and (each.ready or each.ending):
                self._say(JOINS, each.name, uid, "seen")
                self._say(JOINS, each.name, uid, "healed")
                del self._joining[uid]
            self._restart(each)
            if each.ending and uid not in self._leaving:
                self._leaving[uid] = self._say(LEAVES, each.name, uid, "begin")
        for uid, name in self._known.items():
            if uid in there:
                continue
            if self._joining.pop(uid, None):
                self._say(JOINS, name, uid, "healed")
            if not self._leaving.pop(uid, None):
                self._say(LEAVES, name, uid, "begin")
            self._say(LEAVES, name, uid, "seen")
            self._say(LEAVES, name, uid, "healed")
        self._known = {uid: each.name for uid, each in there.items()}
        self._restarts = {uid: count for uid, count in self._restarts.items() if uid in there}
        self._restarting = {uid: id_ for uid, id_ in self._restarting.items() if uid in there}

    def _restart(self, each: Replica) -> None:
        """A container that ended by itself, and was started again in its pod."""
        if each.restarts > self._restarts.get(each.uid, each.restarts) and each.uid not in self._restarting:
            self._restarting[each.uid] = self._say(RESTARTS, each.name, each.uid, "begin", each)
            self._say(RESTARTS, each.name, each.uid, "seen", each)
        elif each.uid in self._restarting and (each.ready or each.ending):
            del self._restarting[each.uid]
            self._say(RESTARTS, each.name, each.uid, "healed", each)
        self._restarts[each.uid] = each.restarts

    def _say(self, kind: str, name: str, uid: str, phase: Phase, replica: Replica | None = None) -> str:
        number = f".{replica.restarts}" if replica else ""
        id_ = f"{kind} {name} {uid[:8]}{number}"
        value = {"restarts": replica.restarts, "ended": replica.end} if replica else {}
        self.tell(Fault(id_, kind, name, phase, value))
        return id_

    async def _dial(self, found: list[Replica]) -> None:
        for name in [name for name in self.pages if name not in self.replicas]:
            del self.pages[name]
        for each in found:
            if each.ready and each.address and each.name not in self.pages:
                self.pages[each.name] = await self.reach(each)
