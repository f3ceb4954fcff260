"""Sources made for use: each has its own session with its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from discovery.kubernetes.api import Api
from discovery.kubernetes.imported import ImportedWorkers
from discovery.kubernetes.keeping import WatchCounts
from discovery.kubernetes.objects import Objects
from discovery.kubernetes.peers import SlicePeers
from discovery.kubernetes.reviews import Reviews
from discovery.kubernetes.workers import PoolWorkers

T = TypeVar("T")


def pool_workers(
    *, pool: str, namespace: str, kubeconfig: Path | None, imports: bool, import_kubeconfig: Path | None
) -> PoolWorkers | ImportedWorkers:
    """The workers of a pool, of other clusters too where ``imports`` says so."""
    own = PoolWorkers(Api(kubeconfig), name=pool, namespace=namespace)
    if not imports:
        return own
    cluster = (
        None
        if import_kubeconfig is None
        else partial(_cluster, pool, namespace, import_kubeconfig, own.counts)
    )
    return ImportedWorkers(own, Api(kubeconfig), name=pool, namespace=namespace, cluster=cluster)


def slice_peers(service: str, *, namespace: str, port: int, kubeconfig: Path | None) -> SlicePeers:
    """
    The peers behind a Service.

    Raises:
        DiscoveryError: its name is wrong.

    """
    return SlicePeers(Api(kubeconfig), service, namespace=namespace, port=port)


def objects(
    plural: str, *, namespace: str, read: Callable[[Mapping[str, Any]], T | None], kubeconfig: Path | None
) -> Objects[T]:
    """The objects of a kind."""
    return Objects(Api(kubeconfig), plural, namespace=namespace, read=read)


def reviews(*, kubeconfig: Path | None) -> Reviews:
    """Who knows tokens and rights."""
    return Reviews(Api(kubeconfig))


def _cluster(pool: str, namespace: str, kubeconfig: Path, counts: WatchCounts, context: str) -> PoolWorkers:
    return PoolWorkers(Api(kubeconfig, context=context), name=pool, namespace=namespace, counts=counts)
