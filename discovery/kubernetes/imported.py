"""Workers of the same pool in other clusters, as an InferencePoolImport names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog

from discovery.found import Endpoint
from discovery.kubernetes import paths
from discovery.kubernetes.api import Api
from discovery.kubernetes.imports import read_import
from discovery.kubernetes.mirror import Mirror, Pace
from discovery.kubernetes.workers import PoolWorkers, changed, stop

log = structlog.get_logger(__name__)


class ImportedWorkers:
    """
    The pool's own workers, and those of every cluster that exports the pool.

    A cluster's pods must be reachable by their addresses. Each cluster is asked by itself: one that is away keeps its
    last known workers. Workers of a cluster that the import no longer names are gone.

    Args:
        own: The pool in this cluster; it need not exist. What it counts by is shared.
        api: The server that has the import.
        name: Name of the pool and of its import.
        namespace: Their namespace, in each cluster.
        cluster: The pool in the cluster of that name; None: there is no way to other clusters.
        pace: Times of the watches.

    """

    def __init__(
        self,
        own: PoolWorkers,
        api: Api,
        *,
        name: str,
        namespace: str,
        cluster: Callable[[str], PoolWorkers] | None,
        pace: Pace | None = None,
    ) -> None:
        self.counts = own.counts
        self._own, self._api, self._cluster = own, api, cluster
        self._wake = asyncio.Event()
        self._sources: dict[str, PoolWorkers] = {"": own}
        self._sets: dict[str, frozenset[Endpoint]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._imports: Mirror[frozenset[str]] = Mirror(
            api, paths.grouped(namespace, "inferencepoolimports", *paths.IMPORT), read=read_import,
            changed=self._wake.set, counts=self.counts, pace=pace, query={"fieldSelector": f"metadata.name={name}"},
        )  # fmt: skip
        self._clusters: frozenset[str] = frozenset()

    def age(self, now: float) -> float:
        """Seconds since this cluster's server last confirmed its pods."""
        return self._own.age(now)

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {
            **self._own.status(),
            "imports": self._imports.shown(),
            "clusters": {
                name: self._sources[name].status() if name in self._sources else None
                for name in sorted(self._clusters)
            },
        }

    async def sets(self) -> AsyncIterator[frozenset[Endpoint]]:
        """Every set of workers, of all clusters that have told theirs."""
        last: frozenset[Endpoint] | None = None
        imports = asyncio.create_task(self._imports.run(), name="imports")
        self._tasks[""] = asyncio.create_task(self._follow("", self._own), name="own pool")
        try:
            while True:
                await changed(self._wake, (imports, *self._tasks.values()))
                await self._arrange(frozenset().union(*self._imports.objects.values()))
                if not self._sets:
                    continue
                found = frozenset().union(*self._sets.values())
                if found != last:
                    last = found
                    yield found
        finally:
            await stop((imports, *self._tasks.values()))
            self._tasks.clear()
            await self._api.close()

    async def _arrange(self, clusters: frozenset[str]) -> None:
        """Follow the clusters that are named now, and no others."""
        if clusters == self._clusters:
            return
        before, self._clusters = self._clusters, clusters
        log.info("the pool is imported from other clusters", clusters=sorted(clusters))
        for name in before - clusters:
            self._sources.pop(name, None)
            self._sets.pop(name, None)
            if (task := self._tasks.pop(name, None)) is not None:
                await stop((task,))
        for name in clusters - before:
            if self._cluster is None:
                log.warning(
                    "no way to a cluster that exports the pool; set PICKER_IMPORT_KUBECONFIG", cluster=name
                )
                continue
            self._sources[name] = source = self._cluster(name)
            self._tasks[name] = asyncio.create_task(self._follow(name, source), name=name)

    async def _follow(self, name: str, source: PoolWorkers) -> None:
        async for found in source.sets():
            self._sets[name] = found
            self._wake.set()
