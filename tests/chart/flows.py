"""Which pod may reach which port of which other, as NetworkPolicies say: both ends must allow it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]


@dataclass(frozen=True)
class End:
    """A pod, or an address outside the cluster when ``labels`` is None."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    address: str = "10.1.2.3"
    ports: Mapping[str, int] = field(default_factory=dict)


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In", each
        if labels.get(each["key"]) not in each["values"]:
            return False
    return True


def _is_peer(peer: Mapping[str, Any], end: End, home: str) -> bool:
    if "ipBlock" in peer:
        network = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        address = ipaddress.ip_address(end.address)
        return address.version == network.version and address in network
    if end.labels is None:
        return False
    if "namespaceSelector" in peer:
        if not _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": end.namespace}):
            return False
    elif end.namespace != home:
        return False
    return _selects(peer.get("podSelector"), end.labels)


def _allows(rule: Mapping[str, Any], key: str, other: End, home: str, port: int, protocol: str) -> bool:
    peers: Sequence[Mapping[str, Any]] = rule.get(key) or []
    if peers and not any(_is_peer(peer, other, home) for peer in peers):
        return False
    ports = rule.get("ports") or []
    return not ports or any(
        each["port"] == port and each.get("protocol", "TCP") == protocol for each in ports
    )


def _side(
    policies: Sequence[Policy], end: End, other: End, port: int, protocol: str, *, ingress: bool
) -> bool:
    if end.labels is None:
        return True
    kind, rules, key = ("Ingress", "ingress", "from") if ingress else ("Egress", "egress", "to")
    mine = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == end.namespace
        and kind in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], end.labels)
    ]
    return not mine or any(
        _allows(rule, key, other, end.namespace, port, protocol)
        for policy in mine
        for rule in policy["spec"].get(rules) or []
    )


def may(policies: Sequence[Policy], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether the source may open a connection to that port of the target."""
    return _side(policies, source, target, port, protocol, ingress=False) and _side(
        policies, target, source, port, protocol, ingress=True
    )
