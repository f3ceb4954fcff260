"""The table of sources: chosen by name, imported when chosen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from discovery.access import Reviewer
from discovery.source import DiscoveryError, ObjectSource, PeerSource, WorkerSource

T = TypeVar("T")

PEERS: Mapping[str, str] = {
    "static": "discovery.static:StaticPeers",
    "dns": "discovery.headless:HeadlessPeers",
    "endpointslices": "discovery.kubernetes.opening:slice_peers",
}
WORKERS: Mapping[str, str] = {
    "static": "discovery.static:StaticWorkers",
    "file": "discovery.watched:WatchedWorkers",
    "kubernetes": "discovery.kubernetes.opening:pool_workers",
}
OBJECTS: Mapping[str, str] = {"kubernetes": "discovery.kubernetes.opening:objects"}
REVIEWERS: Mapping[str, str] = {"kubernetes": "discovery.kubernetes.opening:reviews"}

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
    source: str = "",
    static: Sequence[str] = (),
    service: str = "",
    namespace: str = "default",
    port: int = PEER_PORT,
    dns_server: str = "",
    refresh_seconds: float = 5.0,
    kubeconfig: Path | None = None,
) -> PeerSource:
    """
    The peers of that source; without one those named one by one, else those behind the Service's DNS name, else nobody.

    Raises:
        DiscoveryError: an address, the name or the DNS server is wrong, or the source lacks what it reads.

    """
    chosen = source or ("static" if static or not service else "dns")
    if chosen != "static" and not service:
        raise DiscoveryError(f"source {chosen!r} needs the name of the headless Service")
    if chosen == "static":
        return cast("PeerSource", open_source(PEERS, chosen, tuple(static), port=port))
    if chosen == "dns":
        return cast(
            "PeerSource",
            open_source(
                PEERS, chosen, service, port=port, server=dns_server, refresh_seconds=refresh_seconds
            ),
        )
    return cast(
        "PeerSource",
        open_source(PEERS, chosen, service, namespace=namespace, port=port, kubeconfig=kubeconfig),
    )


def open_workers(*, file: Path | None = None) -> WorkerSource:
    """The workers of the file, else none."""
    if file is None:
        return cast("WorkerSource", open_source(WORKERS, "static"))
    return cast("WorkerSource", open_source(WORKERS, "file", file))


def open_pool_workers(
    *,
    pool: str,
    namespace: str,
    kubeconfig: Path | None = None,
    imports: bool = False,
    import_kubeconfig: Path | None = None,
) -> WorkerSource:
    """
    The ready pods of an InferencePool.

    Args:
        pool: Its name.
        namespace: Its namespace.
        kubeconfig: How to reach the API server; None: as the pod's ServiceAccount.
        imports: Whether an InferencePoolImport adds workers of other clusters.
        import_kubeconfig: How to reach those: a context for each, named as the cluster.

    """
    return cast(
        "WorkerSource",
        open_source(
            WORKERS, "kubernetes", pool=pool, namespace=namespace, kubeconfig=kubeconfig, imports=imports,
            import_kubeconfig=import_kubeconfig,
        ),
    )  # fmt: skip


def open_objects(
    plural: str,
    *,
    namespace: str,
    read: Callable[[Mapping[str, Any]], T | None],
    kubeconfig: Path | None = None,
) -> ObjectSource[T]:
    """The API objects of a kind, by its plural name; ``read`` raises ValueError for what makes no sense."""
    return cast(
        "ObjectSource[T]",
        open_source(OBJECTS, "kubernetes", plural, namespace=namespace, read=read, kubeconfig=kubeconfig),
    )


def open_reviewer(*, kubeconfig: Path | None = None) -> Reviewer:
    """
    Who knows tokens and rights: the API server.

    Raises:
        DiscoveryError: its client is not installed.

    """
    return cast("Reviewer", open_source(REVIEWERS, "kubernetes", kubeconfig=kubeconfig))
