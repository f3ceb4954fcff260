"""What discovery finds, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine endpoint: where it listens, and the rank it serves."""

    address: str
    """``host:port``; IPv6 hosts stand in brackets."""
    rank: int = 0
    """Data-parallel rank."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What is known of it beside; a change of labels is a change of the endpoint."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another replica, or ourselves: the consumer knows its own address."""

    name: str
    """As its source names it: a host name where one was given, else the IP address."""
    address: str
    """``host:port``; IPv6 hosts stand in brackets."""
