"""The plane's server dies and its sentinels have a standby take over: nobody tells replicas but the sentinels."""

from __future__ import annotations

import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from chaos.injectors import InjectionError, Running
from chaos.injectors.failover import replication_of
from chaos.injectors.life import Evidence, asked, life
from chaos.injectors.servers import forget_kept, valkey_says
from picker.sim.programs import PRIMARY

TURN_SECONDS = 40.0
"""Sentinels take a second to miss a server, some to agree, and ten or more to have it follow when it is back."""


@dataclass(frozen=True, slots=True)
class SentinelFailover:
    """SIGKILL of the plane's Valkey, of which sentinels make the best."""

    target: str = field(default="plane", init=False)
    kind: str = field(default="sentinel-failover", init=False)

    def describe(self) -> str:
        """One line for people."""
        return "kill the plane's Valkey and wait until its sentinels name another one; it comes back to follow that"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once the sentinels name another primary; left once the first server follows it."""
        turn = _Turn(running)
        return life(running, kind=self.kind, target=self.target, value={}, act=turn.over, heal=turn.whole)


def sentinel_failover() -> SentinelFailover:
    """The plane on Redis fails over by its sentinels; the topology has to have them."""
    return SentinelFailover()


class _Turn:
    def __init__(self, running: Running) -> None:
        self._cluster = running.cluster

    async def over(self) -> Evidence:
        """Kill, and wait for the sentinels' word."""
        cluster = self._cluster
        if not cluster.sentinels or cluster.primary != cluster.valkey:
            raise InjectionError("sentinels fail over once, in a topology with sentinels=True")
        await asked(self._followed, what="two standbys level with the plane's Valkey", within=TURN_SECONDS)
        pid = cluster.children["valkey"].pid
        await cluster.kill("valkey", signal.SIGKILL)
        await asked(self._turned, what="the sentinels' word on another primary", within=TURN_SECONDS)
        return {"killed": pid, "before": cluster.valkey, "primary": cluster.primary}

    async def whole(self) -> Evidence:
        """Bring the first server back; the sentinels have it follow."""
        cluster = self._cluster
        if not cluster.children["valkey"].alive:
            forget_kept(cluster, "valkey")
            await cluster.restart("valkey")
        if cluster.primary != cluster.valkey:
            await asked(self._follows, what="the first Valkey following the new one", within=TURN_SECONDS)
        return {"primary": cluster.primary}

    async def _followed(self) -> bool:
        told = await replication_of(self._cluster.valkey)
        return told.get("connected_slaves") == str(len(self._cluster.standbys))

    async def _turned(self) -> bool:
        """Every sentinel names the same standby, and that one has taken over."""
        cluster = self._cluster
        named = {await self._named_by(sentinel) for sentinel in cluster.sentinels}
        if len(named) != 1 or named <= {cluster.valkey}:
            return False
        (cluster.primary,) = named
        return (await replication_of(cluster.primary)).get("role") == "master"

    async def _named_by(self, sentinel: str) -> str:
        host, port = await valkey_says(sentinel, f"SENTINEL GET-MASTER-ADDR-BY-NAME {PRIMARY}")
        return f"{host}:{port}"

    async def _follows(self) -> bool:
        told = await replication_of(self._cluster.valkey)
        return told.get("role") == "slave" and told.get("master_link_status") == "up"
