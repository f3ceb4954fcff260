"""A whole pool on loopback: real Envoy, NATS and Valkey, replicas of the picker, simulated engines with bridges.

`picker up`, `picker demo`, the end-to-end tests and the chaos suite drive it; all addresses are on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import aiohttp

from picker.sim import programs
from picker.sim.envoy import PICKERS, BodyMode, HeaderMode, Listener, envoy_config
from picker.sim.model import MODEL
from picker.sim.processes import Children, ProcessError, Program, Say
from picker.sim.programs import Replica, Worker

T = TypeVar("T")
Plane = Literal["redis", "nats", "memory"]
Reach = Callable[[str, str, str], str]
"""Who dials, whom, and the ``host:port`` where that one listens -> the ``host:port`` that is dialled instead."""
Environment = Callable[[str], Mapping[str, str]]
"""A child's name -> environment variables that it gets besides its own; they win."""

BLOCK_SIZE = 16
STANDBYS, SENTINELS = 2, 3
"""Once one standby has taken over, another still follows; two sentinels of three agree on that."""


class LayoutError(Exception):
    """A cluster of that shape cannot be. Says why, and what can."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a local cluster consists of."""

    replicas: int = 3
    workers: int = 4
    plane: Plane = "redis"
    sync: str = ""
    """`PICKER_SYNC` of the replicas; empty: their default."""
    stream_hold: str = ""
    """`PICKER_STREAM_HOLD` of the replicas; empty: their default."""
    request_body_mode: BodyMode = "FULL_DUPLEX_STREAMED"
    response_body_mode: BodyMode = "NONE"
    response_trailers: HeaderMode = "SEND"
    fallbacks: int = 0
    """Further endpoints that the replicas name and the gateway tries, in their order, when one cannot serve."""
    engine_options: tuple[str, ...] = ()
    """Further options of `picker sim engine`, for every engine."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further `PICKER_*` variables of every replica."""
    fails_open: bool = False
    """Whether the gateway sends a request on where no replica answers."""
    retries: int = 0
    """Tries of the gateway after the first one, without fallbacks, on resets, failed connections and 5xx."""
    access_log: bool = True
    """Whether the gateway's access log reaches the replicas."""
    sentinels: bool = False
    """Whether three sentinels watch the plane's Valkey, which two others follow, and name it to the replicas."""

    def check(self) -> None:
        """Raise LayoutError for a cluster that could not start."""
        if self.replicas < 1 or self.workers < 1:
            raise LayoutError("a cluster needs at least one replica and one worker")
        if self.plane == "nats" and self.sync == "atomic":
            raise LayoutError(
                "--plane nats cannot choose and book in one step; use --plane redis, or --sync eventual"
            )
        if self.sentinels and self.plane != "redis":
            raise LayoutError(f"sentinels watch a Valkey; --plane {self.plane} has none")
        if self.plane == "memory" and self.replicas > 1:
            raise LayoutError(
                f"--plane memory is seen by one process only, so not by {self.replicas} replicas;"
                " use --replicas 1 or --plane redis"
            )


class Cluster:
    """One local cluster; ``async with`` starts it and ends all of it.

    A child that dies without having been asked to is started again on its ports two seconds later; ``given_up()``
    raises once one keeps dying. Children are named ``nats``, ``valkey``, ``envoy``, ``picker-N``, ``engine-N`` and
    ``bridge-N``; with sentinels, ``valkey-N`` and ``sentinel-N`` besides.

    Whoever wants to stand between two parts gives ``reach``; it is asked for each ``picker-N`` to ``plane`` and
    ``nats``, ``bridge-N`` to ``nats``, and ``envoy`` to ``picker-N``. An engine's address is its name in the pool, so
    what stands before one stands there for all: it listens at ``worker.address``, and ``worker.listens``, set before
    the start, is where the engine then does.
    """

    def __init__(
        self,
        layout: Layout | None = None,
        *,
        say: Say = lambda _line: None,
        logs: Path | None = None,
        ports_file: Path | None = None,
        reach: Reach = lambda _who, _whom, address: address,
        environment: Environment = lambda _name: {},
    ) -> None:
        self.layout = layout or Layout()
        self.layout.check()
        self._say = say
        self._ports_file = ports_file
        self._reach = reach
        self._environment = environment
        self._throwaway = logs is None
        self.folder = logs or Path(tempfile.mkdtemp(prefix="picker-up-"))
        self._children: Children | None = None
        layout = self.layout
        addresses = programs.free_addresses(5 + 4 * layout.replicas + 4 * layout.workers)
        self.nats, self.valkey = next(addresses), next(addresses)
        self.envoy, self.round_robin, self.envoy_admin = next(addresses), next(addresses), next(addresses)
        replicas = programs.replicas_at(addresses, layout.replicas)
        self.replicas: list[Replica] = programs.answering_peers(replicas, addresses)
        self.workers: list[Worker] = programs.workers_at(addresses, layout.workers)
        spare = programs.free_addresses(STANDBYS + SENTINELS) if layout.sentinels else iter(())
        found = list(spare)
        self.standbys, self.sentinels = found[:STANDBYS], found[STANDBYS:]
        self.primary = self.valkey
        """The Valkey that keeps the bookings: another one once sentinels have failed over."""

    @property
    def envoy_url(self) -> str:
        """The gateway in front of the pickers."""
        return f"http://{self.envoy}"

    @property
    def round_robin_url(self) -> str:
        """The same gateway without a picker: requests go round robin over the workers."""
        return f"http://{self.round_robin}"

    @property
    def plane_url(self) -> str:
        """Where bookings are shared."""
        return self._plane_url(self.plane_address)

    @property
    def plane_address(self) -> str:
        """``host:port`` of the server that keeps the bookings; empty for the memory plane."""
        return {"redis": self.primary, "nats": self.nats, "memory": ""}[self.layout.plane]

    def _plane_url(self, address: str) -> str:
        if self.sentinels:
            return f"redis+sentinel://{','.join(self.sentinels)}/{programs.PRIMARY}"
        if self.layout.plane == "redis":
            return f"redis://{address}"
        # like Valkey here, it loses everything when it is started again
        return f"nats://{address}/?storage=memory" if self.layout.plane == "nats" else "memory://"

    @property
    def plane_server(self) -> str:
        """Name of the child that keeps the bookings; with the NATS plane it carries the KV events too."""
        return {"redis": "valkey", "nats": "nats", "memory": ""}[self.layout.plane]

    @property
    def nats_url(self) -> str:
        """The server that carries KV events."""
        return f"nats://{self.nats}"

    @property
    def workers_file(self) -> Path:
        """The file of workers that the replicas watch."""
        return self.folder / "workers.json"

    @property
    def peers_secret_file(self) -> Path:
        """The secret by which replicas answer one another; fresh in each cluster."""
        return self.folder / "peers-secret"

    @property
    def children(self) -> Children:
        """The processes; RuntimeError before the start."""
        if self._children is None:
            raise RuntimeError("the cluster is not started")
        return self._children

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            self.keep_logs()
        await self.stop()

    async def start(self) -> None:
        """Start everything, return when a request through Envoy would be answered.

        Raises ProcessError, naming the child and its last words, when something does not come up; then nothing is
        left running.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._ports_file:
            self._ports_file.unlink(missing_ok=True)
        self.peers_secret_file.unlink(missing_ok=True)
        self.peers_secret_file.touch(mode=0o600)
        self.peers_secret_file.write_text(secrets.token_hex(32))
        self._children = Children(self.folder, say=self._say)
        try:
            await self._start_all(self._children)
        except BaseException as error:
            if isinstance(error, Exception):
                self.keep_logs()
            await self.stop()
            raise
        self._children.changed = self.write_ports
        self.write_ports()

    async def _start_all(self, children: Children) -> None:
        begun = time.monotonic()
        servers = [programs.nats(self.nats, self.folder)]
        if self.layout.plane == "redis":
            servers.append(programs.valkey(self.valkey, self.folder))
        self._say(f"starting {', '.join(each.name for each in servers)} and {len(self.workers)} engines")
        engines = [programs.engine(worker, self.layout.engine_options) for worker in self.workers]
        await _together(children.start(self._surrounded(each)) for each in (*servers, *engines))
        await _together(children.start(self._surrounded(each)) for each in self._watch())
        self._say(f"starting {len(self.workers)} bridges and {len(self.replicas)} replicas")
        self.set_workers([worker.address for worker in self.workers])
        bridges = [
            programs.bridge(worker, f"nats://{self._reach(worker.bridge, 'nats', self.nats)}", BLOCK_SIZE)
            for worker in self.workers
        ]
        config = self.folder / "envoy.json"
        config.write_text(json.dumps(self.envoy_config(), indent=1))
        pickers = [self._replica_program(replica) for replica in self.replicas]
        await _together(children.start(self._surrounded(each)) for each in (*bridges, *pickers))
        await children.start(self._surrounded(programs.envoy(config, self.envoy_admin)))
        await self.until_envoy_sees(self.layout.replicas)
        self._say(f"all ready after {time.monotonic() - begun:.1f} s")

    async def stop(self) -> None:
        """Stop everything that was started here; remove the ports file and the logs. Never raises."""
        if self._children is not None:
            await self._children.close()
        if self._ports_file:
            self._ports_file.unlink(missing_ok=True)
        if self._throwaway:
            shutil.rmtree(self.folder, ignore_errors=True)

    def keep_logs(self) -> None:
        """Leave the folder of logs and configuration where it is when everything is stopped."""
        if self._throwaway:
            self._throwaway = False
            self._say(f"logs and configuration are kept in {self.folder}")

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, revive: bool = False) -> None:
        """Send a child a signal on purpose; it stays away until ``restart``, unless ``revive``."""
        await self.children.kill(name, number, revive=revive)

    async def restart(self, name: str) -> None:
        """Bring a child back on its ports; returns when it is ready."""
        await self.children.restart(name)

    async def given_up(self) -> None:
        """Wait until the cluster is stopped; raises ProcessError when a child keeps dying."""
        await self.children.given_up()

    async def while_running(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work``; raises ProcessError at once when a child keeps dying meanwhile."""
        doing = asyncio.ensure_future(work)
        gave_up = asyncio.ensure_future(self.given_up())
        try:
            await asyncio.wait({doing, gave_up}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                gave_up.result()
            return await doing
        finally:
            for task in (doing, gave_up):
                task.cancel()
            await asyncio.gather(doing, gave_up, return_exceptions=True)

    def living_replicas(self) -> list[Replica]:
        """The replicas whose process runs."""
        return [replica for replica in self.replicas if self.children[replica.name].alive]

    def set_workers(self, addresses: Sequence[str]) -> None:
        """Write the file of workers that the replicas watch, in one step."""
        listing = {"workers": [{"address": address, "rank": 0} for address in addresses]}
        _write(self.workers_file, listing)

    def envoy_config(self) -> dict[str, Any]:
        """The gateway's configuration: one listener before the pickers, one that goes round robin."""
        layout = self.layout
        pool = Listener(
            "pool",
            int(self.envoy.rpartition(":")[2]),
            request_body_mode=layout.request_body_mode,
            response_body_mode=layout.response_body_mode,
            response_trailers=layout.response_trailers,
            retries=layout.fallbacks or layout.retries,
            follows_list=layout.fallbacks > 0,
        )
        plain = Listener("round_robin", int(self.round_robin.rpartition(":")[2]), ext_proc=False)
        return envoy_config(
            [pool, plain],
            [self._reach("envoy", replica.name, replica.extproc) for replica in self.replicas],
            int(self.envoy_admin.rpartition(":")[2]),
            workers=[worker.address for worker in self.workers],
            failure_mode_allow=layout.fails_open,
            access_log=layout.access_log,
        )

    def ports(self) -> dict[str, Any]:
        """What the ports file says: addresses as ``host:port``, except the URLs, and process ids."""
        pid = self._pid
        return {
            "envoy": self.envoy_url,
            "model": MODEL,
            "replicas": [
                {
                    "name": replica.name,
                    "extproc": replica.extproc,
                    "health": replica.health,
                    "admin": replica.admin,
                    "peers": replica.peers,
                    "pid": pid(replica.name),
                }
                for replica in self.replicas
            ],
            "workers": [
                {"name": worker.name, "address": worker.address, "pid": pid(worker.name)}
                for worker in self.workers
            ],
            "plane": {"url": self.plane_url, "pid": pid(self.plane_server)},
            "nats": {"url": self.nats_url, "pid": pid("nats")},
            "peers_secret_file": str(self.peers_secret_file.absolute()),
        }

    def _pid(self, name: str) -> int | None:
        return self.children[name].pid if name in self.children.names() else None

    def write_ports(self) -> None:
        """Write the ports file, if one is wanted, in one step: who sees it sees it whole."""
        if self._ports_file:
            _write(self._ports_file, self.ports())

    async def until_envoy_sees(self, replicas: int, *, seconds: float = 60.0) -> None:
        """Wait until Envoy holds that many replicas to be healthy; ProcessError when it does not come about."""
        deadline = time.monotonic() + seconds
        seen = -1
        timeout = aiohttp.ClientTimeout(total=2)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while time.monotonic() < deadline:
                async with session.get(f"http://{self.envoy_admin}/clusters?format=json") as response:
                    seen = _healthy(await response.json(content_type=None))
                if seen >= replicas:
                    return
                await asyncio.sleep(0.1)
        raise ProcessError(f"Envoy sees {seen} healthy replicas instead of {replicas} after {seconds:g} s")

    def _watch(self) -> list[Program]:
        """Who follows the plane's Valkey, and who watches it."""
        of, folder, quorum = self.valkey, self.folder, SENTINELS // 2 + 1
        standbys = [
            programs.valkey_replica(f"valkey-{number}", address, folder, primary=of)
            for number, address in enumerate(self.standbys, 1)
        ]
        sentinels = [
            programs.sentinel(f"sentinel-{number}", address, folder, primary=of, quorum=quorum)
            for number, address in enumerate(self.sentinels)
        ]
        return [*standbys, *sentinels]

    def _surrounded(self, program: Program) -> Program:
        more = self._environment(program.name)
        return replace(program, environment={**program.environment, **more}) if more else program

    def _replica_program(self, replica: Replica) -> Program:
        settings = {"PICKER_BLOCK_SIZE": str(BLOCK_SIZE)}
        if self.layout.sync:
            settings["PICKER_SYNC"] = self.layout.sync
        if self.layout.stream_hold:
            settings["PICKER_STREAM_HOLD"] = self.layout.stream_hold
        if self.layout.fallbacks:
            settings["PICKER_FALLBACKS"] = str(self.layout.fallbacks)
        return programs.replica(
            replica,
            [peer for peer in self.replicas if peer is not replica],
            plane_url=self._plane_url(self._reach(replica.name, "plane", self.plane_address)),
            nats_url=f"nats://{self._reach(replica.name, 'nats', self.nats)}",
            workers_file=self.workers_file,
            settings={**settings, **self.layout.settings},
            peers_secret_file=self.peers_secret_file,
        )


async def _together(starts: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run starts side by side; the first failure ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(start) for start in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _write(file: Path, value: object) -> None:
    draft = file.with_name(file.name + ".draft")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(file)


def _healthy(clusters: Mapping[str, Any]) -> int:
    for cluster in clusters.get("cluster_statuses", ()):
        if cluster.get("name") == PICKERS:
            statuses = [host.get("health_status", {}) for host in cluster.get("host_statuses", ())]
            return sum(1 for status in statuses if not _failed(status))
    return 0


def _failed(status: Mapping[str, Any]) -> bool:
    return any(value is True for key, value in status.items() if key.startswith("failed_"))
