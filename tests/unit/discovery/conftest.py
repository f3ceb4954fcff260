"""A DNS server of the tests' own, and a way to take sets from a source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

PATIENT = 30.0


@dataclass
class Zone:
    """What the server answers: records by family, or an error code, or nothing at all."""

    records: dict[str, list[str]] = field(default_factory=dict)
    ttl: int = 1
    codes: dict[str, dns.rcode.Rcode] = field(default_factory=dict)
    """Answers other than NOERROR, by family."""
    silent: bool = False
    asked: int = 0
    names: set[str] = field(default_factory=set)
    port: int = 0

    @property
    def address(self) -> str:
        """Where the server listens."""
        return f"127.0.0.1:{self.port}"

    def answer(self, wire: bytes) -> bytes | None:
        """The answer to a query, as bytes."""
        query = dns.message.from_wire(wire)
        question = query.question[0]
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked += 1
        self.names.add(question.name.to_text())
        if self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        response.set_rcode(self.codes.get(kind, dns.rcode.NOERROR))
        if kind not in self.codes and self.records.get(kind):
            response.answer.append(
                dns.rrset.from_text(question.name, self.ttl, "IN", kind, *self.records[kind])
            )
        return response.to_wire()


class _Server(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone) -> None:
        self.zone = zone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if (answer := self.zone.answer(data)) is not None:
            self.transport.sendto(answer, addr)


@pytest.fixture
async def zone() -> AsyncIterator[Zone]:
    """A zone, served on a free port of loopback."""
    mine = Zone()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Server(mine), local_addr=("127.0.0.1", 0)
    )
    mine.port = transport.get_extra_info("sockname")[1]
    yield mine
    transport.close()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait until something is true."""

    async def wait(true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENT):
            while not true():  # noqa: ASYNC110 - what is waited for has no event of its own
                await asyncio.sleep(0.005)

    return wait


Item = TypeVar("Item")
Found = TypeVar("Found", covariant=True)


class Source(Protocol[Found]):
    """What all sources have."""

    def sets(self) -> AsyncIterator[frozenset[Found]]: ...


class Taken(Generic[Item]):
    """The sets that a source has yielded, in order."""

    def __init__(self, source: Source[Item]) -> None:
        self.sets: list[frozenset[Item]] = []
        self._task = asyncio.create_task(self._take(source))

    async def _take(self, source: Source[Item]) -> None:
        async for found in source.sets():
            self.sets.append(found)

    async def stop(self) -> None:
        """Take no more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
