"""The cluster's DNS: names of Services, answered from their EndpointSlices with a TTL of 5 s."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import struct
from typing import Final, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from tests.kubernetes.cluster.pod import DNS_SUFFIX
from tests.kubernetes.cluster.services import Service, Services

TTL: Final = 5
_DOMAIN = dns.name.from_text(f"svc.{DNS_SUFFIX}.")
_LARGEST_DATAGRAM = 1232


class Resolver:
    """Answers `<service>.<namespace>.svc.cluster.local` (A, AAAA) and `_<port>._tcp.<service>...` (SRV); other names
    do not exist. A headless Service has one address for each endpoint, in an order of no meaning."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def answer(self, wire: bytes) -> dns.message.Message | None:
        """The response to a query; None for what is no query."""
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            return None
        if not query.question:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        question = query.question[0]
        service, port = self._find(question.name)
        if service is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
            soa = f"ns.{DNS_SUFFIX}. hostmaster.{DNS_SUFFIX}. 1 7200 1800 86400 {TTL}"
            response.authority.append(dns.rrset.from_text(f"{DNS_SUFFIX}.", TTL, "IN", "SOA", soa))
            return response
        records = _records(service, port, question.rdtype, question.name)
        if records:
            kind = dns.rdatatype.to_text(question.rdtype)
            response.answer.append(dns.rrset.from_text(question.name, TTL, "IN", kind, *records))
        return response

    def _find(self, name: dns.name.Name) -> tuple[Service | None, str]:
        """The Service of a name, and the port that it names, if any."""
        if not name.is_subdomain(_DOMAIN):
            return None, ""
        labels = [label.decode() for label in name.relativize(_DOMAIN).labels]
        port = ""
        if len(labels) == 4 and labels[1] == "_tcp" and labels[0].startswith("_"):
            port, labels = labels[0][1:], labels[2:]
        if len(labels) != 2:
            return None, ""
        return self._services.all.get(f"{labels[1]}/{labels[0]}"), port

    async def serve(self, host: str, port: int = 53) -> None:
        """Answer on UDP and TCP until cancelled."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), (host, port))
        server = await asyncio.start_server(self._connection, host, port)
        try:
            await server.serve_forever()
        finally:
            transport.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
                response = self.answer(await reader.readexactly(size))
                if response is None:
                    return
                wire = response.to_wire()
                writer.write(struct.pack("!H", len(wire)) + wire)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # what asyncio gives is one without saying so
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        response = self._resolver.answer(data)
        if response is None:
            return
        try:
            wire = response.to_wire(max_size=_LARGEST_DATAGRAM)
        except dns.exception.TooBig:
            response.answer.clear()
            response.flags |= dns.flags.TC
            wire = response.to_wire()
        self._transport.sendto(wire, addr)


def _records(service: Service, port: str, kind: dns.rdatatype.RdataType, name: dns.name.Name) -> list[str]:
    if kind == dns.rdatatype.SRV and port in service.ports:
        own, endpoints = service.ports[port]
        target = f"{service.name.split('/')[1]}.{service.name.split('/')[0]}.svc.{DNS_SUFFIX}."
        numbers = {number for _, number in endpoints} if not service.cluster_ip else {own}
        return [f"0 100 {number} {target}" for number in sorted(numbers)]
    family = {dns.rdatatype.A: 4, dns.rdatatype.AAAA: 6}.get(kind)
    if family is None or port:
        return []
    addresses = [service.cluster_ip] if service.cluster_ip else list(service.addresses)
    random.shuffle(addresses)
    return [each for each in addresses if ipaddress.ip_address(each).version == family]
