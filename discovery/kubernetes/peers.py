"""Peers: everybody in the EndpointSlices of the headless Service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import structlog

from discovery.found import Peer
from discovery.kubernetes import paths
from discovery.kubernetes.api import Api
from discovery.kubernetes.keeping import WatchCounts
from discovery.kubernetes.mirror import Mirror, Pace
from discovery.kubernetes.slices import SERVICE, peers, read_slice, service_of
from discovery.kubernetes.workers import changed, stop

log = structlog.get_logger(__name__)


class SlicePeers:
    """
    Watches the slices of one Service. Slices that name nobody change nothing: we are a peer ourselves.

    Args:
        api: The server; closed when the sets end.
        service: DNS name of the Service.
        namespace: Of a Service whose name has none.
        port: The peers' port.
        pace: Times of the watch.
        clock: Monotonic seconds.

    Raises:
        DiscoveryError: the name is none.

    """

    def __init__(
        self,
        api: Api,
        service: str,
        *,
        namespace: str,
        port: int,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = WatchCounts()
        self._api, self._port = api, port
        self._wake = asyncio.Event()
        where, name = service_of(service, namespace)
        self._slices: Mirror[frozenset[str]] = Mirror(
            api, paths.grouped(where, "endpointslices", *paths.SLICE), read=read_slice, changed=self._wake.set,
            counts=self.counts, pace=pace, query={"labelSelector": f"{SERVICE}={name}"}, clock=clock,
        )  # fmt: skip

    def age(self, now: float) -> float:
        """Seconds since the server last confirmed the slices."""
        return self._slices.age(now)

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"source": "endpointslices", "slices": self._slices.shown()}

    async def sets(self) -> AsyncIterator[frozenset[Peer]]:
        """Every set of peers; the first one may be empty, where nobody has an address yet."""
        last: frozenset[Peer] | None = None
        task = asyncio.create_task(self._slices.run(), name="slices")
        try:
            while True:
                await changed(self._wake, (task,))
                found = peers(self._slices.objects.values(), self._port)
                if last and not found:
                    self.counts.empty += 1
                    log.warning("the slices name nobody, the last known peers are kept")
                elif found != last:
                    self.counts.changes += 1
                    last = found
                    yield found
        finally:
            await stop((task,))
            await self._api.close()
