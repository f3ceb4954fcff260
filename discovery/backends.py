"""The table of sources: chosen by name, imported when chosen."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from discovery.source import DiscoveryError, PeerSource, WorkerSource

PEERS: Mapping[str, str] = {
    "static": "discovery.static:StaticPeers",
    "dns": "discovery.headless:HeadlessPeers",
}
WORKERS: Mapping[str, str] = {
    "static": "discovery.static:StaticWorkers",
    "file": "discovery.watched:WatchedWorkers",
}

PEER_PORT = 9092
"""The port on which replicas answer one another."""


def open_source(table: Mapping[str, str], name: str, *args: Any, **options: Any) -> Any:
    """
    Make the source of that name.

    Raises:
        DiscoveryError: there is none of that name, what it needs is not installed, or it refuses its options.

    """
    place = table.get(name)
    if place is None:
        raise DiscoveryError(f"no source is named {name!r}; there are {', '.join(sorted(table))}")
    module, _, kind = place.partition(":")
    try:
        source = getattr(importlib.import_module(module), kind)
    except ImportError as error:
        raise DiscoveryError(f"source {name!r} needs {error.name}, which is not installed") from error
    return source(*args, **options)


def open_peers(
    *,
    static: Sequence[str] = (),
    service: str = "",
    port: int = PEER_PORT,
    dns_server: str = "",
    refresh_seconds: float = 5.0,
) -> PeerSource:
    """
    The peers named one by one, else those behind the headless Service's name, else nobody.

    Raises:
        DiscoveryError: an address, the name or the DNS server is wrong.

    """
    if static or not service:
        return cast("PeerSource", open_source(PEERS, "static", tuple(static), port=port))
    return cast(
        "PeerSource",
        open_source(PEERS, "dns", service, port=port, server=dns_server, refresh_seconds=refresh_seconds),
    )


def open_workers(*, file: Path | None = None) -> WorkerSource:
    """The workers of the file, else none."""
    if file is None:
        return cast("WorkerSource", open_source(WORKERS, "static"))
    return cast("WorkerSource", open_source(WORKERS, "file", file))
