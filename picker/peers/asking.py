"""Questions to other replicas: all at once, within one deadline, and whatever comes back held to bounds and shape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import aiohttp
import structlog
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from discovery.bounded import TooLargeError, read_bounded
from picker.loopback import is_loopback_host
from picker.peers.counts import FAILURES, Counts, Failure
from picker.peers.credentials import Credentials, PeerCertificates
from picker.peers.shapes import (
    STATUS_BYTES,
    SUMMARY_BYTES,
    WHY_BYTES,
    OddAnswerError,
    Summary,
    read_status,
    read_summary,
    read_why,
)
from picker.tls import names_shown, peer_of

log = structlog.get_logger(__name__)

T = TypeVar("T")

PARALLEL = 32
"""Most peers that are asked at one moment."""
MOST_ASKED = 256
"""Most peers that one question goes to."""
LONGEST_NAME = 200
"""Longer ids are remembered by nobody."""


class AskError(Exception):
    """A peer did not answer; ``reason`` is one of ours."""

    def __init__(self, reason: Failure, detail: str = "") -> None:
        super().__init__(FAILURES[reason] + (f" ({detail})" if detail else ""))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """A peer's answer."""

    address: str
    value: T
    seconds: float
    """How long it took."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A peer that did not answer."""

    address: str
    reason: Failure
    text: str

    def shown(self) -> Mapping[str, str]:
        """As JSON values."""
        return {"address": self.address, "reason": self.reason, "text": self.text}


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """What came of a question to all peers. A peer that knows nothing of what was asked is in neither list."""

    heard: tuple[Heard[T], ...] = ()
    silent: tuple[Silent, ...] = ()
    asked: int = 0


class _WrongPeerError(aiohttp.ClientConnectionError):
    """The other side's certificate carries none of the names."""


class _Connector(aiohttp.TCPConnector):
    """Looks at the other side's certificate before a question, and the secret with it, is sent."""

    def __init__(self, certificates: PeerCertificates | None) -> None:
        super().__init__(limit=2 * PARALLEL, limit_per_host=4, force_close=True)
        self._certificates = certificates

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if self._certificates is not None:
            peer = peer_of(connection.transport) if connection.transport is not None else {}
            if not self._certificates.admits(peer):
                connection.close()
                raise _WrongPeerError(f"its names are {', '.join(names_shown(peer)) or 'none'}")
        return connection


class Peer:
    """One question's way to one address. Used by replicas, and by `picker check`."""

    def __init__(self, credentials: Credentials, counts: Counts) -> None:
        self._credentials = credentials
        self._counts = counts
        self._session: aiohttp.ClientSession | None = None

    async def summary(self, address: str, *, seconds: float) -> Summary:
        """A replica's summary. Raises `AskError`."""
        return await self._asked(address, "/summary.json", read_summary, SUMMARY_BYTES, seconds)

    async def status(self, address: str, *, seconds: float) -> dict[str, Any]:
        """A replica's whole status. Raises `AskError`."""
        return await self._asked(address, "/status.json", read_status, STATUS_BYTES, seconds)

    async def why(self, address: str, name: str, *, seconds: float) -> list[dict[str, Any]]:
        """The decisions that it remembers under an id, none where it knows nothing. Raises `AskError`."""
        path = f"/why/{quote(name, safe='')}"
        try:
            return await self._asked(address, path, read_why, WHY_BYTES, seconds)
        except _UnknownError:
            self._counts.unknown += 1
            return []

    async def close(self) -> None:
        """Close what is open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _asked(
        self, address: str, path: str, read: Callable[[bytes], T], most: int, seconds: float
    ) -> T:
        self._counts.asked += 1
        try:
            async with asyncio.timeout(seconds):
                value = read(await self._body(address, path, most))
        except TimeoutError:
            self._counts.failures["deadline"] += 1
            raise AskError("deadline", f"{seconds:g} s") from None
        except _UnknownError:
            raise
        except AskError as error:
            self._counts.failures[error.reason] += 1
            raise
        except OddAnswerError as error:
            self._counts.failures["odd"] += 1
            raise AskError("odd", str(error)) from None
        self._counts.answers += 1
        return value

    async def _body(self, address: str, path: str, most: int) -> bytes:
        certificates = self._credentials.certificates
        if not self._credentials.guard and not is_loopback_host(address.rpartition(":")[0].strip("[]")):
            raise AskError("no_credentials")
        scheme = "http" if certificates is None else "https"
        try:
            async with self._opened().get(
                URL(f"{scheme}://{address}{path}", encoded=True),
                headers=self._credentials.headers(),
                ssl=True if certificates is None else certificates.client,
                allow_redirects=False,
            ) as answer:
                _judge(answer.status, path)
                return await read_bounded(answer.content, most=most)
        except TooLargeError as error:
            raise AskError("too_large", str(error)) from None
        except _WrongPeerError as error:
            raise AskError("certificate", str(error)) from None
        except aiohttp.ClientSSLError as error:
            raise AskError("certificate", str(error)[:200]) from None
        except aiohttp.ClientConnectorError as error:
            # its own words speak of "ssl:default" where there is no TLS
            raise AskError("unreachable", str(error.os_error)[:200]) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AskError("unreachable", f"{type(error).__name__}: {error}"[:200]) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(self._credentials.certificates),
                cookie_jar=aiohttp.DummyCookieJar(),
                # a compressed answer could be small and unpack to anything
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


class _UnknownError(AskError):
    """The peer is in order, and knows nothing of what was asked."""


def _judge(status: int, path: str) -> None:
    if status == 404 and path.startswith("/why/"):
        raise _UnknownError("status", "404")
    if status in (401, 403):
        raise AskError("refused", str(status))
    if status != 200:
        raise AskError("status", str(status))


class Asking:
    """Asks all peers at once. ``peers`` tells their addresses as discovery has them, this replica's own among them."""

    def __init__(
        self,
        peer: Peer,
        *,
        peers: Callable[[], Iterable[str]],
        is_me: Callable[[str], bool],
        seconds: float,
        counts: Counts,
    ) -> None:
        self._peer = peer
        self._peers = peers
        self._is_me = is_me
        self._seconds = seconds
        self._counts = counts

    async def summaries(self) -> Round[Summary]:
        """Everybody's summary."""
        return await self._all(lambda address: self._peer.summary(address, seconds=self._seconds))

    async def why(self, name: str) -> Round[list[dict[str, Any]]]:
        """What anybody remembers under an id."""
        if len(name) > LONGEST_NAME:
            return Round()
        found = await self._all(lambda address: self._peer.why(address, name, seconds=self._seconds))
        return Round(tuple(each for each in found.heard if each.value), found.silent, found.asked)

    async def status(self, address: str) -> dict[str, Any]:
        """The whole status of the replica there. Raises `AskError`."""
        return await self._peer.status(address, seconds=self._seconds)

    async def close(self) -> None:
        """Close what is open."""
        await self._peer.close()

    async def _all(self, ask: Callable[[str], Any]) -> Round[Any]:
        addresses = sorted({address for address in self._peers() if not self._is_me(address)})
        free = asyncio.Semaphore(PARALLEL)
        begun = time.monotonic()

        async def one(address: str) -> Heard[Any]:
            async with free:
                return Heard(address, await ask(address), time.monotonic() - begun)

        tasks = {asyncio.create_task(one(address)): address for address in addresses[:MOST_ASKED]}
        heard, silent = [], [_silent(address, AskError("too_many")) for address in addresses[MOST_ASKED:]]
        self._counts.failures["too_many"] += len(silent)
        try:
            if tasks:
                # a little longer than each question: those that wait for their turn end here
                await asyncio.wait(tasks, timeout=self._seconds + 0.05)
        finally:
            waiting = [task for task in tasks if not task.done()]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task, address in tasks.items():
            if task.cancelled():
                self._counts.failures["deadline"] += 1
                silent.append(_silent(address, AskError("deadline")))
                continue
            error = task.exception()
            if error is None:
                heard.append(task.result())
            elif isinstance(error, AskError):
                silent.append(_silent(address, error))
            else:
                raise error
        return Round(tuple(heard), tuple(silent), len(tasks))


def _silent(address: str, error: AskError) -> Silent:
    return Silent(address, error.reason, str(error))
