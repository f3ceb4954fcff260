"""The plane's server fails over to a standby that followed it, as a managed Redis does; with the heal, back again.

Following is asynchronous, so what was written last may be lost, as it is there. Every replica's link to the plane has
to go through a wire: that is how the address stays the same.
"""

from __future__ import annotations

import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, asked, life
from chaos.injectors.servers import forget_kept, valkey_says
from chaos.injectors.wire import TcpWire
from picker.sim import programs
from picker.sim.processes import Children, lives

STANDBY = "valkey-standby"


@dataclass(frozen=True, slots=True)
class Failover:
    """SIGKILL of the plane's Valkey while a standby takes over."""

    target: str = field(default="plane", init=False)
    kind: str = field(default="failover", init=False)

    def describe(self) -> str:
        """One line for people."""
        return "kill the plane's Valkey while a standby that followed it takes over, then fail back"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once the standby serves at the plane's address; left once the first server does again."""
        pair = _Pair(running)

        async def act() -> Evidence:
            return await pair.over()

        async def heal() -> Evidence:
            return await pair.back()

        return life(running, kind=self.kind, target=self.target, value={}, act=act, heal=heal)


def failover() -> Failover:
    """The plane on Redis fails over to a standby; the NATS plane of a local cluster has one server only."""
    return Failover()


class _Pair:
    def __init__(self, running: Running) -> None:
        self._running = running
        self._first = running.cluster.valkey
        self._standby = ""
        self._children: Children | None = None

    async def over(self) -> Evidence:
        """Start a standby, let it catch up, kill the first server, promote."""
        cluster = self._running.cluster
        if self._running.resolve("plane") != "valkey":
            raise InjectionError(
                "a failover needs plane='redis': a local NATS plane is one server, with no standby"
            )
        self._wires()
        self._standby = next(programs.free_addresses(1))
        # children of its own: nobody shall start the standby again once it is ended
        folder = _folder(self._running)
        self._children = Children(folder, say=lambda _line: None)
        program = programs.valkey(self._standby, folder)
        await self._children.start(replace(program, name=STANDBY))
        await self._follow(self._standby, self._first)
        pid = cluster.children["valkey"].pid
        await cluster.kill("valkey", signal.SIGKILL)
        if lives(pid):
            raise InjectionError(f"the plane's Valkey, process {pid}, is still alive")
        return {"killed": pid, "cut": await self._promote(self._standby)}

    async def back(self) -> Evidence:
        """The first server starts empty, follows the standby, and takes over."""
        cluster, children = self._running.cluster, self._children
        if children is None:
            return {}
        try:
            if not cluster.children["valkey"].alive:
                forget_kept(cluster, "valkey")
                await cluster.restart("valkey")
                await self._follow(self._first, self._standby)
            return {"cut": await self._promote(self._first)}
        finally:
            await children.close()

    def _wires(self) -> list[TcpWire]:
        wires = [self._running.wires.get(f"{each.name}>plane") for each in self._running.cluster.replicas]
        found = [wire for wire in wires if isinstance(wire, TcpWire)]
        if len(found) < len(wires):
            raise InjectionError(
                "a failover needs a wire on every replica's link to the plane: links=('*>plane',)"
            )
        return found

    async def _follow(self, follower: str, leader: str) -> None:
        host, _, port = leader.rpartition(":")
        await valkey_says(follower, f"REPLICAOF {host} {port}")

        async def level() -> bool:
            told, wanted = await replication_of(follower), await replication_of(leader)
            same = told.get("slave_repl_offset") == wanted.get("master_repl_offset")
            return told.get("master_link_status") == "up" and same

        await asked(level, what=f"{follower} level with {leader}")

    async def _promote(self, server: str) -> int:
        """It serves at the plane's address from now on. How many connections were cut."""
        await valkey_says(server, "REPLICAOF NO ONE")
        if (await replication_of(server)).get("role") != "master":
            raise InjectionError(f"{server} does not take over")
        cut = 0
        for wire in self._wires():
            wire.upstream = server
            cut += wire.reset()
        return cut


def _folder(running: Running) -> Path:
    folder = running.folder / STANDBY
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def replication_of(server: str) -> dict[str, str]:
    """What a Valkey says of whom it follows, and who follows it."""
    lines = await valkey_says(server, "INFO replication")
    return dict(line.split(":", 1) for line in lines if ":" in line)
