"""From the EndpointSlices of a headless Service to peers. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from discovery.address import AddressError, join_address, read_address
from discovery.found import Peer
from discovery.source import DiscoveryError

SERVICE = "kubernetes.io/service-name"
"""The label by which a slice names its Service."""

MAX_PEERS = 1024
"""Most peers that are taken from all slices together."""


def read_slice(entry: Mapping[str, Any]) -> frozenset[str]:
    """
    The IP addresses in a slice, of ready endpoints and of such as are not: a starting replica must be found.

    Names (``addressType: FQDN``) and what is no address are left out. Never raises.
    """
    listed = entry.get("endpoints")
    return frozenset(
        address
        for endpoint in (listed if isinstance(listed, list) else ())
        if isinstance(endpoint, dict)
        for address in _addresses(endpoint.get("addresses"))
    )


def peers(slices: Iterable[frozenset[str]], port: int) -> frozenset[Peer]:
    """Everybody in the slices, once; slices overlap while the control plane moves endpoints between them."""
    addresses = sorted(frozenset().union(*slices))[:MAX_PEERS]
    return frozenset(Peer(address, join_address(address, port)) for address in addresses)


def service_of(name: str, namespace: str) -> tuple[str, str]:
    """
    Namespace and name of the Service behind a DNS name: ``name``, ``name.namespace`` or longer, a port is left out.

    Raises:
        DiscoveryError: it is no DNS name.

    """
    try:
        host = read_address(name, 1).rpartition(":")[0]
    except AddressError as error:
        raise DiscoveryError(f"peer Service {error}") from error
    labels = host.split(".")
    if ":" in host or labels[0].isdigit():
        raise DiscoveryError(f"peer Service {name[:300]!r} must be a name, as picker-peers.{namespace}.svc")
    return (labels[1] if len(labels) > 1 else namespace), labels[0]


def _addresses(listed: Any) -> Iterator[str]:
    for address in listed if isinstance(listed, list) else ():
        if not isinstance(address, str) or "%" in address:
            continue
        try:
            yield str(ipaddress.ip_address(address))
        except ValueError:
            continue
