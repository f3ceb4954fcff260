"""Sets that are given once and never change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from discovery.address import AddressError, join_address, split_address
from discovery.found import Endpoint, Peer
from discovery.source import Counts, DiscoveryError


class StaticPeers:
    """
    Peers named one by one.

    Args:
        addresses: ``host:port`` or ``host``.
        port: The port of an address that names none.

    Raises:
        DiscoveryError: an address is wrong.

    """

    def __init__(self, addresses: Sequence[str], *, port: int) -> None:
        self.counts = Counts()
        self._peers = frozenset(_peer(address, port) for address in addresses)

    async def sets(self) -> AsyncIterator[frozenset[Peer]]:
        """The one set."""
        yield self._peers
        await asyncio.Event().wait()

    def age(self, now: float) -> float:
        """Nothing that never changes grows old."""
        del now
        return 0.0

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"source": "static"}


class StaticWorkers:
    """Workers given once, none by default."""

    def __init__(self, workers: frozenset[Endpoint] = frozenset()) -> None:
        self.counts = Counts()
        self._workers = workers

    async def sets(self) -> AsyncIterator[frozenset[Endpoint]]:
        """The one set."""
        yield self._workers
        await asyncio.Event().wait()

    def age(self, now: float) -> float:
        """Nothing that never changes grows old."""
        del now
        return 0.0

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"source": "static"}


def _peer(address: str, port: int) -> Peer:
    try:
        host, own = split_address(address)
    except AddressError as error:
        raise DiscoveryError(f"peer {error}") from error
    return Peer(host, join_address(host, port if own is None else own))
