"""The Services of the cluster and who stands behind them, for DNS and for the ClusterIPs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.kubernetes.cluster.api import Api, Mirror, Object, named

SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Service:
    """A Service and its endpoints that take traffic."""

    name: str
    """`namespace/name`."""
    cluster_ip: str
    """Empty for a headless one."""
    addresses: frozenset[str]
    ports: dict[str, tuple[int, frozenset[tuple[str, int]]]] = field(default_factory=dict)
    """By the port's name: the Service's own number, and the endpoints as address and port."""


class Services:
    """Follows Services and EndpointSlices; each of ``changed`` is called after every change."""

    def __init__(self, api: Api, *changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[str, Service] | None = None
        self._services = Mirror(api, "/api/v1/services", self._seen)
        self._slices = Mirror(api, "/apis/discovery.k8s.io/v1/endpointslices", self._seen)

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._services.run())
            group.create_task(self._slices.run())

    def _seen(self, event: str, item: Object) -> None:
        self._known = None
        for told in self._changed:
            told()

    @property
    def all(self) -> dict[str, Service]:
        """All of them by `namespace/name`."""
        if self._known is None:
            slices: dict[str, list[Object]] = {}
            for each in self._slices.objects.values():
                metadata = each["metadata"]
                name = f"{metadata['namespace']}/{metadata.get('labels', {}).get(SERVICE_LABEL, '')}"
                slices.setdefault(name, []).append(each)
            found = (
                service_of(each, slices.get(named(each), ())) for each in self._services.objects.values()
            )
            self._known = {each.name: each for each in found}
        return self._known


def service_of(service: Object, slices: Iterable[Object]) -> Service:
    """A Service read together with its slices. Whether an endpoint counts is the slice's word alone: where the Service
    publishes addresses that are not ready, the controller calls them ready there."""
    cluster_ip = service["spec"].get("clusterIP", "")
    behind: dict[str, set[tuple[str, int]]] = {}
    addresses: set[str] = set()
    for each in slices:
        ready = [
            address
            for endpoint in each.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready", True)
            for address in endpoint["addresses"]
        ]
        addresses.update(ready)
        for port in each.get("ports") or ():
            pairs = {(address, port["port"]) for address in ready}
            behind.setdefault(port.get("name", ""), set()).update(pairs)
    ports = {
        port.get("name", ""): (port["port"], frozenset(behind.get(port.get("name", ""), ())))
        for port in service["spec"].get("ports") or ()
    }
    return Service(named(service), "" if cluster_ip == "None" else cluster_ip, frozenset(addresses), ports)
