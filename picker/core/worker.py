"""How a worker is named: one engine endpoint, ``host:port``, and its data-parallel rank."""

from __future__ import annotations


def worker_name(address: str, rank: int = 0) -> str:
    """The worker's one name in keys, views, metrics and pages: ``host:port``, or ``host:port@rank`` above rank 0."""
    return address if rank == 0 else f"{address}@{rank}"


def worker_address(name: str) -> str:
    """The ``host:port`` of a worker, as a gateway dials it; IPv6 hosts stand in brackets."""
    return name.partition("@")[0]


def worker_rank(name: str) -> int:
    """The data-parallel rank of a worker."""
    return int(name.partition("@")[2] or 0)
