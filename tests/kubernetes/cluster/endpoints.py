"""Endpoints of every Service as files for Envoy: what a gateway's control plane that reads EndpointSlices tells it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.services import Service, Services

_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


def endpoints_file(namespace: str, service: str, port: str) -> Path:
    """Where a port's endpoints are, below the folder."""
    return Path(namespace) / service / f"{port}.json"


def endpoints_name(namespace: str, service: str, port: str) -> str:
    """What they are called within."""
    return f"{namespace}/{service}/{port}"


class EndpointFiles:
    """Keeps the files up to date."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = asyncio.Event()
        self._written: dict[Path, str] = {}

    def changed(self) -> None:
        """Something about Services is different."""
        self._changed.set()

    async def run(self, services: Services) -> None:
        """Write what changes until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for service in services.all.values():
                for port in service.ports:
                    self._write(service, port)

    def _write(self, service: Service, port: str) -> None:
        where = (*service.name.split("/"), port)
        path = self._folder / endpoints_file(*where)
        text = json.dumps(_discovered(endpoints_name(*where), service, port))
        if self._written.get(path) == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(text)
        # Envoy looks when a file is moved to where it watches
        partial.replace(path)
        self._written[path] = text


def _discovered(name: str, service: Service, port: str) -> dict[str, Any]:
    found = [
        {"endpoint": {"address": {"socket_address": {"address": address, "port_value": number}}}}
        for address, number in sorted(service.ports[port][1])
    ]
    return {"resources": [{"@type": _TYPE, "cluster_name": name, "endpoints": [{"lb_endpoints": found}]}]}
