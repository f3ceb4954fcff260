"""A name server of ours on loopback for the headless Service's name, which can be made to lie, fail or fall silent."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Self, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life, seen

Mood = Literal["answers", "stale", "empty", "nxdomain", "servfail", "refused", "silent"]
"""``stale``: what `NameServer.lie` was given instead of the truth; ``empty``: the name is known, without addresses."""
DEFAULT_TTL = 1
MOST_WAITING = 256
"""Most TCP connections at a time."""
TCP_SECONDS = 5.0
_PLAIN_UDP_BYTES = 512
_CODES = {"nxdomain": dns.rcode.NXDOMAIN, "servfail": dns.rcode.SERVFAIL, "refused": dns.rcode.REFUSED}


@dataclass(slots=True)
class Counts:
    """What was asked, and how it was answered."""

    questions: int = 0
    answered: int = 0
    """With the truth."""
    lied: int = 0
    """With what a fault says."""
    unanswered: int = 0
    unknown: int = 0
    """Of a name that is not ours; answered with NXDOMAIN."""
    malformed: int = 0


class NameServer:
    """Answers A and AAAA questions over UDP and TCP. Made by ``open``; ``answers`` may be changed at any time."""

    def __init__(self, *, listen: str, answers: dict[str, tuple[str, ...]], ttl: int = DEFAULT_TTL) -> None:
        self.listen = listen
        self.answers = answers
        """Name -> addresses, of both families."""
        self.ttl = ttl
        self.mood: Mood = "answers"
        self.every = 1
        """Only so many-th questions meet the mood; the others are answered with the truth."""
        self.counts = Counts()
        self._lies: dict[str, tuple[str, ...]] = {}
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, *, listen: str, answers: dict[str, tuple[str, ...]], ttl: int = DEFAULT_TTL) -> Self:
        """Listen at ``host:port``, an IP address; port 0 takes a free one. Raises OSError, ValueError."""
        for name, addresses in answers.items():
            dns.name.from_text(name)
            for address in addresses:
                ipaddress.ip_address(address)
        server = cls(listen=listen, answers=answers, ttl=ttl)
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        server._tcp = await asyncio.start_server(server._talk, host, int(port), reuse_address=True)
        chosen = server._tcp.sockets[0].getsockname()[1]
        try:
            server._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(server), local_addr=(host, chosen)
            )
        except BaseException:
            server._tcp.close()
            raise
        server.listen = f"{listen.rpartition(':')[0]}:{chosen}"
        return server

    async def close(self) -> None:
        """Stop answering. Never raises."""
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await asyncio.sleep(0)

    def lie(self, answers: dict[str, tuple[str, ...]]) -> None:
        """Answer with these from now on."""
        self._lies = dict(answers)
        self.mood = "stale"

    def answer(self, question: bytes, *, most_bytes: int = 65_535) -> bytes | None:
        """The answer to one question in wire format; None: none is given."""
        try:
            asked = dns.message.from_wire(question)
            response = dns.message.make_response(asked)
        except (dns.exception.DNSException, ValueError):
            self.counts.malformed += 1
            return None
        self.counts.questions += 1
        mood: Mood = "answers" if self.counts.questions % self.every else self.mood
        if mood == "silent":
            self.counts.unanswered += 1
            return None
        response.flags |= dns.flags.AA
        self._fill(asked, response, mood)
        try:
            return response.to_wire(max_size=_udp_bytes(asked, most_bytes))
        except dns.exception.TooBig:
            short = dns.message.make_response(asked)
            short.flags |= dns.flags.TC
            return short.to_wire()

    def _fill(self, asked: dns.message.Message, response: dns.message.Message, mood: Mood) -> None:
        known = self._lies if mood == "stale" else self.answers
        question = asked.question[0] if asked.question else None
        name = question.name.to_text(omit_final_dot=True).lower() if question is not None else ""
        if question is None or name not in {each.rstrip(".").lower() for each in self.answers}:
            self.counts.unknown += 1
            response.set_rcode(dns.rcode.NXDOMAIN)
            return
        if mood == "answers":
            self.counts.answered += 1
        else:
            self.counts.lied += 1
        if mood in _CODES:
            response.set_rcode(_CODES[mood])
            return
        addresses = {each.rstrip(".").lower(): found for each, found in known.items()}.get(name, ())
        family = {dns.rdatatype.A: 4, dns.rdatatype.AAAA: 6}.get(question.rdtype)
        found = [each for each in addresses if ipaddress.ip_address(each).version == family]
        if found and mood != "empty":
            rrset = dns.rrset.from_text_list(
                question.name, self.ttl, dns.rdataclass.IN, question.rdtype, found
            )
            response.answer.append(rrset)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._talks) >= MOST_WAITING:
            writer.transport.abort()
            return
        self._talks.add(task)
        try:
            async with asyncio.timeout(TCP_SECONDS):
                while True:
                    size = int.from_bytes(await reader.readexactly(2), "big")
                    answer = self.answer(await reader.readexactly(size))
                    if answer is not None:
                        writer.write(len(answer).to_bytes(2, "big") + answer)
                        await writer.drain()
        except (asyncio.IncompleteReadError, OSError, TimeoutError, asyncio.CancelledError):
            pass  # gone, slow, or we close: nothing is owed to it
        finally:
            self._talks.discard(task)
            writer.transport.abort()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """One question."""
        answer = self._server.answer(data, most_bytes=_PLAIN_UDP_BYTES)
        if answer is not None and self._transport is not None:
            with contextlib.suppress(socket.error):
                self._transport.sendto(answer, addr)


def _udp_bytes(asked: dns.message.Message, most_bytes: int) -> int:
    """What who asked over UDP can take."""
    if most_bytes > _PLAIN_UDP_BYTES:
        return most_bytes
    return max(most_bytes, asked.payload if asked.edns >= 0 else 0)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The name server's mood until the block is left."""

    mood: Mood
    addresses: tuple[str, ...] = ()
    """With ``stale``: what every name has then."""
    every: int = 1
    """Only so many-th questions are answered so: at one moment, replicas know different peers."""

    @property
    def kind(self) -> str:
        """The name in the history."""
        return f"dns-{self.mood}"

    @property
    def target(self) -> str:
        """What it hits."""
        return "dns"

    def describe(self) -> str:
        """One line for people."""
        how = {
            "stale": f"answer with {', '.join(self.addresses) or 'nobody'}",
            "empty": "know the name, without addresses",
            "silent": "give no answer",
            "answers": "answer as always",
        }.get(self.mood, f"answer {self.mood.upper()}")
        often = "" if self.every == 1 else f" to one question in {self.every}"
        return f"have the name server of the peers {how}{often}"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once somebody asked and was told so."""

        async def act() -> Evidence:
            server = _server_of(running)
            before = server.counts.lied + server.counts.unanswered
            if self.mood == "stale":
                server.lie(dict.fromkeys(server.answers, self.addresses))
            server.mood, server.every = self.mood, self.every
            counts = server.counts
            await seen(
                lambda: counts.lied + counts.unanswered > before, what="a question for the peers' name"
            )
            return {"lied": counts.lied, "unanswered": counts.unanswered}

        async def heal() -> Evidence:
            server = running.names
            if not isinstance(server, NameServer):
                return {}
            counts, before = server.counts, server.counts.answered
            server.mood, server.every = "answers", 1
            await seen(lambda: counts.answered > before, what="a true answer for the peers' name")
            return {"answered": counts.answered}

        value = {"mood": self.mood, "addresses": list(self.addresses), "every": self.every}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


def _server_of(running: Running) -> NameServer:
    if isinstance(running.names, NameServer):
        return running.names
    raise InjectionError("the topology has no name server: declare it with dns=True")


def stale(*addresses: str, every: int = 1) -> Resolution:
    """The peers' name has these addresses, whatever is true; with ``every``, only for so many-th questions."""
    return Resolution("stale", addresses, every)


def empty() -> Resolution:
    """The name exists, without addresses."""
    return Resolution("empty")


def nxdomain() -> Resolution:
    """The name does not exist."""
    return Resolution("nxdomain")


def servfail() -> Resolution:
    """The server says that it failed."""
    return Resolution("servfail")


def silent() -> Resolution:
    """Questions get no answer: look-ups time out."""
    return Resolution("silent")
