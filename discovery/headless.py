"""Peers by DNS: the A and AAAA records of a headless Service's name."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.rdatatype
import dns.resolver
import structlog

from discovery.address import AddressError, join_address, split_address
from discovery.found import Peer
from discovery.source import Counts, DiscoveryError, Freshness

log = structlog.get_logger(__name__)

EARLY = 0.9
"""Part of a TTL after which is asked again, so that the answer is there before the TTL has passed."""
MIN_REFRESH_SECONDS = 1.0
"""A shorter TTL than this is not honoured: it would make the picker a load on the DNS server."""
LOOKUP_SECONDS = 2.0
"""How long one look-up may take."""
MAX_PEERS = 1024
"""Most peers that are taken from an answer."""
FAMILIES = (dns.rdatatype.A, dns.rdatatype.AAAA)


@dataclass(frozen=True, slots=True)
class _Answer:
    addresses: frozenset[str]
    ttl: float


class HeadlessPeers:
    """
    Looks a name up again and again: when the shortest TTL has passed, at least every ``refresh_seconds``.

    An answer that fails, or names nobody, changes nothing: peers that are gone are known by other means, and a DNS
    server that restarts must not part the replicas. Where one family of addresses fails, its last known addresses stay.

    Args:
        name: ``name`` or ``name:port``.
        port: The peers' port, where the name has none.
        server: ``host:port`` of the DNS server, an IP address; empty: the system's.
        refresh_seconds: Longest time between two look-ups.
        clock: Monotonic seconds.

    Raises:
        DiscoveryError: the name or the server is wrong.

    """

    def __init__(
        self,
        name: str,
        *,
        port: int,
        server: str = "",
        refresh_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            self._name, own_port = split_address(name)
        except AddressError as error:
            raise DiscoveryError(f"peer Service {error}") from error
        self._port = port if own_port is None else own_port
        self._server = _server(server) if server else None
        self._search = self._server is None and not name.strip().endswith(".")
        self._refresh = refresh_seconds
        self._clock = clock
        self._fresh = Freshness()
        self._known: dict[dns.rdatatype.RdataType, frozenset[str]] = dict.fromkeys(FAMILIES, frozenset())
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._failing = 0
        self.counts = Counts()

    def age(self, now: float) -> float:
        """Seconds since the DNS server last named somebody."""
        return self._fresh.age(now)

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"source": "dns", "name": self._name, "failing": self._failing}

    async def sets(self) -> AsyncIterator[frozenset[Peer]]:
        """Every set of peers; the first one may be empty, where the name has no addresses yet."""
        last: frozenset[Peer] | None = None
        while True:
            wait, answered = await self._look()
            peers = frozenset(
                Peer(host, join_address(host, self._port)) for known in self._known.values() for host in known
            )
            if answered and peers != last:
                self.counts.changes += 1
                last = peers
                yield peers
            await asyncio.sleep(wait)

    async def _look(self) -> tuple[float, bool]:
        """Ask for both families; seconds until the next look, and whether the server answered at all."""
        self.counts.looks += 1
        answers = await asyncio.gather(*(self._ask(family) for family in FAMILIES))
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        told = {
            family: answer
            for family, answer in zip(FAMILIES, answers, strict=True)
            if isinstance(answer, _Answer)
        }
        self._note(failures)
        if not any(answer.addresses for answer in told.values()):
            if not failures and any(self._known.values()):
                self.counts.empty += 1
            return self._pause(told, failed=bool(failures)), len(told) == len(FAMILIES)
        self._fresh.confirm(self._clock())
        self._known.update({family: answer.addresses for family, answer in told.items()})
        return self._pause(told, failed=bool(failures)), True

    def _pause(self, told: Mapping[dns.rdatatype.RdataType, _Answer], *, failed: bool) -> float:
        """Somewhat less than the shortest TTL of what has addresses, and than the refresh.

        After failures without any longer and longer, up to the refresh.
        """
        ttls = [answer.ttl for answer in told.values() if answer.addresses]
        wait: float = MIN_REFRESH_SECONDS * 2 ** min(self._failing - 1, 10) if failed else MIN_REFRESH_SECONDS
        return max(
            MIN_REFRESH_SECONDS, EARLY * min(*ttls, self._refresh) if ttls else min(wait, self._refresh)
        )

    def _note(self, failures: list[Exception]) -> None:
        if not failures:
            if self._failing:
                log.info("peer look-ups work again", name=self._name)
            self._failing = 0
            return
        self.counts.failures += 1
        self._failing += 1
        if self._failing == 1:
            reason = f"{type(failures[0]).__name__}: {failures[0]}"[:300]
            log.warning("peer look-up failed, the last known peers are kept", name=self._name, reason=reason)

    async def _ask(self, family: dns.rdatatype.RdataType) -> _Answer | Exception:
        try:
            if self._resolver is None:
                self._resolver = self._make_resolver()
            answer = await self._resolver.resolve(
                self._name,
                family,
                raise_on_no_answer=False,
                lifetime=LOOKUP_SECONDS,
                search=self._search,
            )
            hosts = sorted(str(ipaddress.ip_address(record.address)) for record in answer.rrset or ())
            return _Answer(frozenset(hosts[:MAX_PEERS]), float(answer.chaining_result.minimum_ttl))
        except dns.resolver.NXDOMAIN:
            return _Answer(frozenset(), MIN_REFRESH_SECONDS)
        except (dns.exception.DNSException, OSError, ValueError) as error:
            return error

    def _make_resolver(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=self._server is None)
        if self._server is not None:
            host, port = self._server
            resolver.nameservers = [host]
            resolver.port = port
        return resolver


def _server(text: str) -> tuple[str, int]:
    try:
        host, port = split_address(text)
        return str(ipaddress.ip_address(host)), 53 if port is None else port
    except ValueError as error:
        raise DiscoveryError(
            f"DNS server {text[:300]!r} must be an IP address with a port: {error}"
        ) from error
