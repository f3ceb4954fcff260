"""Which route a request took, where the gateway tells: attributes that Envoy knows, and what gateways' names mean."""

from __future__ import annotations

from collections.abc import Mapping

ATTRIBUTES: Mapping[str, str] = {
    "xds.route_name": "name",
    "xds.virtual_host_name": "virtual_host",
    "xds.cluster_name": "cluster",
    "xds.filter_chain_name": "filter_chain",
}
"""Envoy's attributes of a request by which its way is known, and what each is called here."""

MAX_LENGTH = 256
"""Longest name that is shown, in characters; the rest is cut."""


def read_route(attributes: Mapping[str, str]) -> Mapping[str, str] | None:
    """
    What the gateway said of the route; None where it said nothing. Never raises.

    Envoy Gateway names a route ``httproute/NAMESPACE/NAME/rule/...``: the object is then named as well.
    """
    route: dict[str, str] = {}
    for name, shown in ATTRIBUTES.items():
        if value := attributes.get(name):
            route[shown] = value if len(value) <= MAX_LENGTH and value.isprintable() else _plain(value)
    if not route:
        return None
    kind, *rest = route.get("name", "").split("/", 3)
    if len(rest) > 1 and rest[0] and rest[1] and kind.endswith("route"):
        route["object"] = f"{kind} {rest[0]}/{rest[1]}"
    return route


def _plain(value: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in value[:MAX_LENGTH])
