"""The seam: what a source of peers or workers promises, and what all sources share."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from discovery.found import Endpoint, Peer


class DiscoveryError(Exception):
    """A source cannot be opened as it is told to; the message says which value is wrong and what is allowed."""


@dataclass(slots=True)
class Counts:
    """What became of the looks at a source, since the start."""

    looks: int = 0
    """Looks that were answered or failed."""
    failures: int = 0
    """Looks without an answer, or with a broken one: the last known set was kept."""
    empty: int = 0
    """Answers that name nobody where somebody was known: the last known set was kept."""
    changes: int = 0
    """Sets that differed from the one before."""


class WorkerSource(Protocol):
    """
    Finds workers.

    Promises: each set is whole and differs from the one before; the first one comes as soon as the source has
    answered once; while the source is away, broken or empty-handed nothing is yielded and the last set stands. One
    consumer at a time. Nothing raises but cancellation.
    """

    counts: Counts

    def sets(self) -> AsyncIterator[frozenset[Endpoint]]:
        """Every set of workers, the present one first; never ends."""
        ...

    def age(self, now: float) -> float:
        """Seconds since the source last confirmed what stands, ``now`` monotonic; infinite before it ever did."""
        ...

    def status(self) -> Mapping[str, Any]:
        """The source's own state as JSON values, for ``/status.json``."""
        ...


class PeerSource(Protocol):
    """Finds peers, with the promises of `WorkerSource`."""

    counts: Counts

    def sets(self) -> AsyncIterator[frozenset[Peer]]:
        """Every set of peers, the present one first; never ends."""
        ...

    def age(self, now: float) -> float:
        """Seconds since the source last confirmed what stands, ``now`` monotonic; infinite before it ever did."""
        ...

    def status(self) -> Mapping[str, Any]:
        """The source's own state as JSON values, for ``/status.json``."""
        ...


Kept = TypeVar("Kept", covariant=True)


class ObjectSource(Protocol[Kept]):
    """Objects of one kind, kept as their server has them; what is known stands while it is away."""

    @property
    def counts(self) -> Counts:
        """What became of the looks."""
        ...

    @property
    def objects(self) -> Mapping[str, Kept]:
        """What is known, by ``namespace/name``."""
        ...

    @property
    def number(self) -> int:
        """Grows with each change."""
        ...

    @property
    def settled(self) -> bool:
        """Whether all objects were read once, or it is known that there is nothing to read."""
        ...

    def status(self) -> Mapping[str, Any]:
        """The source's own state as JSON values."""
        ...

    async def run(self) -> None:
        """Keep them. Never returns."""
        ...


class Freshness:
    """When a source last confirmed what stands."""

    __slots__ = ("_confirmed",)

    def __init__(self) -> None:
        self._confirmed = -math.inf

    def confirm(self, now: float) -> None:
        """The source answered now."""
        self._confirmed = now

    def age(self, now: float) -> float:
        """Seconds since then."""
        return max(0.0, now - self._confirmed)
