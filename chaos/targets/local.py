"""A whole pool on this machine: the cluster of `picker up`, with wires on the links that the topology names."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from chaos.audit import audit
from chaos.injectors import Fault, Injection, Names, Wire
from chaos.topology import Topology
from picker.sim import programs
from picker.sim.cluster import Cluster, Layout
from picker.sim.processes import ProcessError

log = structlog.get_logger(__name__)

Tell = Callable[[Fault], None]
OFFERS = frozenset({"local", "kill", "terminate"})
START_TRIES = 2
GIVEN_UP = "given-up.txt"
"""In the folder of a pool: why it was not used again."""
PEERS_NAME = "picker-peers.chaos.local"


def layout_of(topology: Topology, settings: Mapping[str, str]) -> Layout:
    """The cluster's layout for a topology; ``settings`` besides its own."""
    return Layout(
        replicas=topology.replicas,
        workers=topology.workers,
        plane=topology.plane,
        sync=topology.sync,
        stream_hold=topology.hold,
        engine_options=("--decode-ms", f"{topology.decode_ms:g}", *topology.engine_options),
        settings={**topology.settings, **settings},
        fails_open=topology.fails_open,
        retries=topology.retries,
        access_log=topology.access_log,
        sentinels=topology.sentinels,
    )


class Local:
    """One running pool on loopback. ``async with`` starts it and ends all of it; a `chaos.injectors.Running`.

    ``mutation``: environment variables of the replicas only, by which the suite's self-test breaks them.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        folder: Path,
        mutation: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        topology.check()
        self.topology = topology
        self.folder = folder
        self.wires: dict[str, Wire] = {}
        self.names: Names | None = None
        self._mutation = dict(mutation or {})
        self._tell: Tell = lambda _fault: None
        self._lives: Counter[str] = Counter()
        links = topology.wired_links()
        spare = programs.free_addresses(len(links) + 1)
        self._ways = {link: next(spare) for link in links}
        """Link -> where its wire listens; before an engine: where the engine then does."""
        self._names_address = next(spare)
        self.cluster = Cluster(
            layout_of(topology, self._peers()),
            logs=folder,
            say=say,
            reach=self._reach,
            environment=self._environment,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start wires, name server and cluster. Raises ProcessError; then nothing is left running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            for link, way in self._ways.items():
                self.wires[link] = await self._open_wire(link, way)
            if self.topology.dns:
                self.names = await self._open_names()
            await self.cluster.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything that was started here. Never raises."""
        await self.cluster.stop()
        closing = [wire.close() for wire in self.wires.values()]
        closing += [self.names.close()] if self.names is not None else []
        await asyncio.gather(*closing, return_exceptions=True)
        self.wires.clear()

    # how children reach each other

    def _reach(self, who: str, whom: str, address: str) -> str:
        return self._ways.get(f"{who}>{whom}", address)

    def _peers(self) -> dict[str, str]:
        if not self.topology.dns:
            return {}
        return {
            "PICKER_PEERS": "",
            "PICKER_PEER_SERVICE": PEERS_NAME,
            "PICKER_DNS_SERVER": self._names_address,
            "PICKER_DNS_REFRESH_SECONDS": "1",
        }

    def _environment(self, name: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if name.startswith("picker-"):
            found |= self._mutation
        clocked = {self.cluster.plane_server if each == "plane" else each for each in self.topology.clocks}
        if name in clocked:
            from chaos.injectors import clock

            found |= clock.environment(self.folder, name)
        return found

    async def _open_wire(self, link: str, way: str) -> Wire:
        whom = link.partition(">")[2]
        if whom.startswith("engine-"):
            worker = next(each for each in self.cluster.workers if each.name == whom)
            place = self.cluster.workers.index(worker)
            self.cluster.workers[place] = programs.standing_behind(worker, way)
            return await open_wire(link, worker.address, way)
        upstream = {"plane": self.cluster.plane_address, "nats": self.cluster.nats}.get(whom, "")
        upstream = upstream or next(each.extproc for each in self.cluster.replicas if each.name == whom)
        speaks_nats = whom == "nats" or (whom == "plane" and self.topology.plane == "nats")
        return await open_wire(link, way, upstream, speaks_nats=speaks_nats)

    async def _open_names(self) -> Names:
        from chaos.injectors.dns import NameServer

        hosts = tuple(dict.fromkeys(each.extproc.rpartition(":")[0] for each in self.cluster.replicas))
        return await NameServer.open(listen=self._names_address, answers={PEERS_NAME: hosts})

    # what injectors see

    def resolve(self, target: str) -> str:
        """The child behind a target's name. KeyError names what there is."""
        name = self.cluster.plane_server if target == "plane" else target
        return self.cluster.children[name].name

    def pid(self, target: str) -> int:
        """Process id of a target's present life."""
        return self.cluster.children[self.resolve(target)].pid

    def fault_id(self, kind: str, target: str) -> str:
        """``kind target #n``: the n-th of its kind in this scenario."""
        name = f"{kind} {target}"
        self._lives[name] += 1
        return f"{name} #{self._lives[name]}"

    def tell(self, fault: Fault) -> None:
        """One phase of a fault, into the history of the scenario that runs."""
        self._tell(fault)

    def begin(self, tell: Tell) -> None:
        """A scenario begins: its faults are counted from one and go into its history."""
        self._tell = tell
        self._lives.clear()

    # what the suite looks at

    @property
    def gateway(self) -> str:
        """URL that load is sent to."""
        return self.cluster.envoy_url

    def replicas(self) -> Mapping[str, str]:
        """Admin address of every replica."""
        return {replica.name: replica.admin for replica in self.cluster.replicas}

    def engines(self) -> Mapping[str, str]:
        """Address of every engine: the worker's name in the pool."""
        return {worker.name: worker.address for worker in self.cluster.workers}

    def truths(self) -> Mapping[str, str]:
        """Where engines tell what they carry: at the same address."""
        return self.engines()

    @property
    def model(self) -> str:
        """The simulated engines'."""
        return ""

    @property
    def headers(self) -> Mapping[str, str]:
        """None: pages answer to loopback."""
        return {}

    @property
    def offers(self) -> frozenset[str]:
        """Everything but what only Kubernetes has."""
        return OFFERS

    @property
    def lacks(self) -> tuple[str, ...]:
        """Nothing: all of it can be asked."""
        return ()

    @property
    def same_clock(self) -> bool:
        """One machine, one clock."""
        return True

    @property
    def notice_seconds(self) -> float:
        """The gateway asks replicas for their health once a second: checks allow for that."""
        return 0.0

    @property
    def slack_seconds(self) -> float:
        """Budgets were made for here."""
        return 0.0

    def words(self, injection: Injection) -> str:
        """As it says itself."""
        return injection.describe()

    def enter(self, injection: Injection) -> AbstractAsyncContextManager[None]:
        """Bring an injection about."""
        return injection.into(self)

    async def audit(self) -> Mapping[str, Any]:
        """What the plane's server itself holds. Raises AuditError."""
        return await audit(self.cluster)

    def told(self) -> Mapping[str, Any]:
        """That it is a pool of the suite's own."""
        return {"kind": "local"}

    def keep_logs(self) -> None:
        """Keep the logs of all processes in the run's folder."""
        self.cluster.keep_logs()

    def extproc(self, replica: str) -> str:
        """Where a replica speaks ext_proc."""
        places = {each.name: each.extproc for each in self.cluster.replicas}
        return places[replica]

    async def replace_replicas(self, mutation: Mapping[str, str]) -> None:
        """Start all replicas anew, with these variables in place of the mutation they had, on an empty plane."""
        children, before = self.cluster.children, self._mutation
        self._mutation = dict(mutation)
        names = [replica.name for replica in self.cluster.replicas]
        for name in names:
            await self.cluster.kill(name)
        await self.cluster.restart(self.cluster.plane_server)
        for name in names:
            child = children[name]
            kept = {key: value for key, value in child.program.environment.items() if key not in before}
            child.program = replace(child.program, environment={**kept, **mutation})
        await asyncio.gather(*(self.cluster.restart(name) for name in names))
        await self.make_whole()

    async def make_whole(self) -> None:
        """Start whatever does not run, and wait until the gateway sees every replica."""
        children = self.cluster.children
        for name in children.names():
            if not children[name].alive:
                await self.cluster.restart(name)
        self.cluster.set_workers([worker.address for worker in self.cluster.workers])
        await self.cluster.until_envoy_sees(len(self.cluster.replicas))


async def started(make: Callable[[], Local]) -> Local:
    """A pool that runs, of those that ``make`` makes.

    Its ports were free when they were chosen; where somebody else was faster, a second pool gets others. Raises
    ProcessError.
    """
    for number in range(1, START_TRIES + 1):
        local = make()
        try:
            await local.start()
        except ProcessError as error:
            if number == START_TRIES:
                raise
            given_up(local, f"it did not start: {error}")
        else:
            return local
    raise AssertionError("there is at least one try")


def given_up(local: Local, reason: str) -> None:
    """Tell that another pool takes the place of this one, and why; the reason is kept beside its logs."""
    log.warning("pool given up, another takes its place", pool=local.folder.name, reason=reason)
    with contextlib.suppress(OSError):
        local.folder.mkdir(parents=True, exist_ok=True)
        (local.folder / GIVEN_UP).write_text(f"{reason}\n", encoding="utf-8")


async def open_wire(link: str, listen: str, upstream: str, *, speaks_nats: bool = False) -> Wire:
    """The proxy of a link: one that knows NATS' protocol on links to NATS, plain TCP elsewhere."""
    if speaks_nats:
        from chaos.injectors.nats import NatsWire

        return await NatsWire.open(listen=listen, upstream=upstream, name=link)
    from chaos.injectors.wire import TcpWire

    return await TcpWire.open(listen=listen, upstream=upstream, name=link)
