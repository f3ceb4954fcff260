"""From a pool and its pods to endpoints. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from discovery.address import join_address
from discovery.found import Endpoint
from discovery.kubernetes.pools import ObjectError, Pool, mapping, texts

ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations by which a pod names those of the pool's ports that it serves now; the first one present counts."""

MAX_LISTED = 64
"""Most ports that are read from the annotation."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that may be sent requests."""

    address: str
    """Its primary IP address, IPv4 or IPv6."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    active: frozenset[int] | None = None
    """The ports that it says it serves; None: all of the pool's."""
    fault: str = ""
    """What makes no sense in what it says of its ports; empty: nothing."""


def read_pod(entry: Mapping[str, Any]) -> Pod | None:
    """
    Read a pod; None where it is not ready, is being deleted, or has no address yet.

    Raises:
        ObjectError: its address is none.

    """
    metadata = mapping(entry.get("metadata"), "metadata")
    status = entry.get("status")
    if metadata.get("deletionTimestamp") or not isinstance(status, dict) or not _ready(status):
        return None
    address = status.get("podIP")
    if not address:
        return None
    try:
        plain = str(ipaddress.ip_address(address)) if isinstance(address, str) and "%" not in address else ""
    except ValueError:
        plain = ""
    if not plain:
        raise ObjectError(f"status.podIP {str(address)[:100]!r} is no IP address")
    active, fault = _active(texts_of(metadata, "annotations", ACTIVE_PORTS))
    return Pod(plain, texts(metadata.get("labels")), active, fault)


def texts_of(metadata: Mapping[str, Any], place: str, names: Iterable[str]) -> str | None:
    """The first of these annotations or labels that is a text."""
    held = metadata.get(place)
    if not isinstance(held, dict):
        return None
    return next((held[name] for name in names if isinstance(held.get(name), str)), None)


def endpoints(pool: Pool, pods: Iterable[Pod]) -> frozenset[Endpoint]:
    """
    Each port of each pod that serves it; the port's place among the pool's is the rank.

    A rank keeps its number when ports before it are inactive. Of pods that share an address, as on a host's network,
    the one that comes first in the order of labels counts: an endpoint has one set of labels.
    """
    found: dict[tuple[str, int], Endpoint] = {}
    for pod in sorted(pods, key=lambda each: (each.address, sorted(each.labels.items()))):
        for rank, port in enumerate(pool.ports):
            if pod.active is None or port in pod.active:
                address = join_address(pod.address, port)
                found.setdefault((address, rank), Endpoint(address, rank, pod.labels))
    return frozenset(found.values())


def port_faults(pool: Pool, pods: Mapping[str, Pod]) -> Mapping[str, str]:
    """What is wrong with the ports that pods name, by pod."""
    faults = {name: pod.fault for name, pod in pods.items() if pod.fault}
    for name, pod in pods.items():
        if pod.active is not None and (strange := sorted(pod.active - set(pool.ports))):
            faults.setdefault(name, f"active-ports names {strange[0]}, which is no target port of the pool")
    return faults


def _ready(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions")
    return any(
        isinstance(each, dict) and each.get("type") == "Ready" and each.get("status") == "True"
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _active(text: str | None) -> tuple[frozenset[int] | None, str]:
    """The ports named and what is wrong with them; where not one can be read, the annotation does not count."""
    if text is None:
        return None, ""
    words = [word.strip() for word in text.split(",") if word.strip()]
    ports = frozenset(
        int(word)
        for word in words[:MAX_LISTED]
        if word.isascii() and word.isdigit() and len(word) <= 5 and 1 <= int(word) <= 65535
    )
    wrong = [
        word
        for word in words[:MAX_LISTED]
        if not (word.isascii() and word.isdigit() and len(word) <= 5 and int(word) in ports)
    ]
    if not wrong:
        return ports, "" if len(words) <= MAX_LISTED else f"active-ports names more than {MAX_LISTED} ports"
    return ports or None, f"active-ports holds {wrong[0][:60]!r}, which is no port"
