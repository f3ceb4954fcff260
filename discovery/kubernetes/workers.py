"""Workers: the ready pods of an InferencePool, at its ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import structlog

from discovery.found import Endpoint
from discovery.kubernetes import paths
from discovery.kubernetes.api import Api
from discovery.kubernetes.keeping import WatchCounts
from discovery.kubernetes.mirror import Mirror, Pace
from discovery.kubernetes.pods import Pod, endpoints, port_faults, read_pod
from discovery.kubernetes.pools import Pool, read_pool

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 0.02
"""Changes that come together make one set."""


class PoolWorkers:
    """
    Watches one pool and the pods that it selects.

    A pool without ready pods has no workers. A pool that is deleted, or makes no sense any more, is followed as it last
    was: its pods may still serve.

    Args:
        api: The server; closed when the sets end.
        name: Name of the pool.
        namespace: Its namespace, and its pods'.
        counts: Where it counts; may be shared.
        pace: Times of the watches.
        clock: Monotonic seconds.

    """

    def __init__(
        self,
        api: Api,
        *,
        name: str,
        namespace: str,
        counts: WatchCounts | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = WatchCounts() if counts is None else counts
        self._api, self._namespace, self._pace, self._clock = api, namespace, pace, clock
        self._wake = asyncio.Event()
        self._pool: Pool | None = None
        self._deleted = False
        self._faults: Mapping[str, str] = {}
        self._pods: Mirror[Pod] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pools: Mirror[Pool] = Mirror(
            api, paths.grouped(namespace, "inferencepools", *paths.POOL), read=read_pool, changed=self._wake.set,
            counts=self.counts, pace=pace, query={"fieldSelector": f"metadata.name={name}"}, clock=clock,
        )  # fmt: skip

    def age(self, now: float) -> float:
        """Seconds since the server last confirmed the pods."""
        return self._pods.age(now) if self._pods is not None else self._pools.age(now)

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        pool = self._pool
        return {
            "source": "kubernetes",
            "pool": None
            if pool is None
            else {"selector": dict(pool.selector), "ports": list(pool.ports), "protocol": pool.protocol,
                  "deleted": self._deleted},
            "pools": self._pools.shown(),
            "pods": None if self._pods is None else self._pods.shown(),
            "port_faults": dict(sorted(self._faults.items())[:16]),
        }  # fmt: skip

    async def sets(self) -> AsyncIterator[frozenset[Endpoint]]:
        """Every set of workers; nothing before pool and pods were read once."""
        last: frozenset[Endpoint] | None = None
        self._start("pools", self._pools)
        try:
            while True:
                await changed(self._wake, self._tasks.values())
                found = self._look()
                if found is not None and found != last:
                    self.counts.changes += 1
                    last = found
                    yield found
        finally:
            await stop(self._tasks.values())
            self._tasks.clear()
            await self._api.close()

    def _look(self) -> frozenset[Endpoint] | None:
        self._follow(next(iter(self._pools.objects.values()), None))
        if self._pool is None or self._pods is None or not self._pods.listed:
            return None
        pods = self._pods.objects
        faults = port_faults(self._pool, pods)
        for pod, fault in faults.items():
            if self._faults.get(pod) != fault:
                log.warning("a pod's active ports make no sense", pod=pod, reason=fault)
        self._faults = faults
        return endpoints(self._pool, pods.values())

    def _follow(self, pool: Pool | None) -> None:
        """Take up what the pool says now; another selector begins another watch of pods."""
        gone = pool is None and self._pool is not None
        if gone and not self._deleted:
            self.counts.empty += 1
            log.warning("the pool is gone, its pods are followed as it last selected them")
        self._deleted = gone
        if pool is None or pool == self._pool:
            return
        before, self._pool = self._pool, pool
        if before is not None and before.query == pool.query:
            return
        log.info("following the pods of the pool", selector=pool.query, ports=list(pool.ports))
        self._pods = Mirror(
            self._api, paths.core(self._namespace, "pods"), read=read_pod, changed=self._wake.set,
            counts=self.counts, pace=self._pace, query={"labelSelector": pool.query}, clock=self._clock,
        )  # fmt: skip
        self._start("pods", self._pods)

    def _start(self, name: str, mirror: Mirror[Any]) -> None:
        if (before := self._tasks.get(name)) is not None:
            before.cancel()
        self._tasks[name] = asyncio.create_task(mirror.run(), name=name)


async def changed(wake: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """
    Wait for a change; several that come together count as one.

    Raises:
        Exception: what ended one of the tasks, none of which ends by itself.

    """
    waiting = asyncio.create_task(wake.wait())
    try:
        done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in done - {waiting}:
        if not task.cancelled():
            task.result()
    await asyncio.sleep(SETTLE_SECONDS)
    wake.clear()


async def stop(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End tasks."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    # awaited one by one, our own cancellation would pass for theirs
    await asyncio.gather(*ending, return_exceptions=True)
