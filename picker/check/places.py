"""Where the replicas are: by names, as a gateway and other replicas find them, or by the file of a local cluster."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from discovery.address import join_address, split_address
from discovery.backends import open_peers
from picker.check.rows import Row, failed, ok, skipped, warning
from picker.settings import Settings

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one replica listens; every value is ``host:port``."""

    name: str
    extproc: str
    health: str
    peers: str


@dataclass(frozen=True, slots=True)
class Found:
    """The replicas' places, and what was learned of their names."""

    places: tuple[Place, ...]
    rows: tuple[Row, ...] = ()


def place_of(host: str, settings: Settings, peers: str = "") -> Place:
    """A replica on that host, by the ports that are set."""
    serving = settings.serving
    return Place(
        host,
        join_address(host, serving.grpc_port),
        join_address(host, serving.grpc_health_port),
        peers or join_address(host, settings.peers.peers_port),
    )


def from_ports(page: Any) -> Found:
    """The replicas of a local cluster by its ports file. Raises ValueError for one that makes no sense."""
    try:
        return Found(
            tuple(
                Place(str(each["name"]), str(each["extproc"]), str(each["health"]), str(each["peers"]))
                for each in page["replicas"]
            )
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no ports file of `picker up`: {error!r}") from None


async def find(settings: Settings, *, service: str, peer_service: str, seconds: float) -> Found:
    """The replicas by their names, else by the environment's, else the one on this machine.

    Raises:
        DiscoveryError: a name is none.
        AddressError: a fixed peer's address is none.
    """
    rows: list[Row] = []
    discovery = settings.discovery
    peer_service = peer_service or ("" if discovery.peers else discovery.peer_service)
    hosts: dict[str, str] = {}
    if peer_service:
        found = await resolved(peer_service, settings, seconds=seconds)
        hosts = dict.fromkeys(found, "")
        rows.append(_named("peer names", peer_service, found))
    elif discovery.peers:
        for address in discovery.peers:
            host, port = split_address(address)
            hosts[host] = "" if port is None else join_address(host, port)
    if service:
        found = await resolved(service, settings, seconds=seconds)
        rows.append(_service(service, found, hosts))
        hosts = hosts or dict.fromkeys(found, "")
    if not hosts and not (service or peer_service):
        hosts = {LOOPBACK: ""}
        rows.append(
            skipped(
                "names",
                "",
                "no names were given: only the replica on this machine is checked",
                "give --service and --peer-service",
            )
        )
    return Found(tuple(place_of(host, settings, peers) for host, peers in sorted(hosts.items())), tuple(rows))


async def resolved(name: str, settings: Settings, *, seconds: float) -> Sequence[str]:
    """The addresses behind a name, as replicas look it up; none where nobody answers or it has none.

    Raises:
        DiscoveryError: it is no name.
    """
    host = name.strip("[]")
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    discovery = settings.discovery
    try:
        source = open_peers(source="dns", service=name, dns_server=discovery.dns_server)
        sets = cast("Any", source.sets())
        async with asyncio.timeout(seconds), aclosing(sets):
            found = await anext(sets)
    except TimeoutError:
        return []
    return sorted(split_address(peer.address)[0] for peer in found)


def _named(check: str, name: str, found: Sequence[str]) -> Row:
    if not found:
        return failed(
            check,
            name,
            "names nobody, or no DNS server answers",
            "is it the headless Service of the replicas? Is DNS (port 53) allowed by the policies?",
        )
    return ok(check, name, f"{_several(found)}")


def _service(name: str, found: Sequence[str], hosts: dict[str, str]) -> Row:
    row = _named("names", name, found)
    if len(found) == 1 and hosts and found[0] not in hosts:
        return warning(
            "names",
            name,
            f"one address, {found[0]}, that is none of the replicas': a ClusterIP",
            "a gateway that dials it by name sends everything to one replica: make the Service headless, "
            "or let the gateway read endpoints",
        )
    return row


def _several(found: Sequence[str]) -> str:
    shown = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
    return f"{len(found)} address{'' if len(found) == 1 else 'es'}: {shown}"
