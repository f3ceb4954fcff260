"""
One connection to NATS that comes back by itself.

The server may be away at the start or later, freeze or be replaced: the link connects anew within fractions
of a second and calls ``opened`` each time, first and later alike, with all subscriptions in place. Nothing
is kept for a server that is away: ``send`` says no, and the sequence numbers above it make the loss
visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from picker.events import access
from picker.settings import EventSettings

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 2
RETRY_SECONDS = 0.2
PING_SECONDS = 3
"""Two pings without an answer end a connection: a frozen server is noticed within 10 seconds."""
ROUND_SECONDS = 5.0
"""A client that has not connected for the first time in so long is thrown away for a new one: files are read anew."""
REBUILD_SECONDS = 30.0
"""A client that has not come back by itself for so long is thrown away for a new one."""

Handler = Callable[[Msg], Awaitable[None]]


@dataclass(slots=True)
class Counts:
    """What happened on the connection."""

    connects: int = 0
    disconnects: int = 0
    errors: int = 0
    slow_consumer: int = 0
    """Messages that the client library dropped because we read too slowly."""
    refused: int = 0
    """What the server does not let us say or hear: our user's permissions do not fit our role."""
    unsent: int = 0
    """Messages that could not be sent; those who wait for them see a gap in the numbers."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A subscription that the link keeps over reconnects."""

    subject: str
    handler: Handler
    most_messages: int
    most_bytes: int


class Link:
    """
    A connection to NATS, as one part of the process holds it.

    Args:
        settings: where the server is, and with which credentials.
        name: how the connection is called in the server's monitoring.
        clock: monotonic seconds.
        opened: called after each connect, subscriptions in place; it must not block for long.

    Raises:
        SettingsError: an address or a file of the settings cannot be used; see `access`.

    """

    def __init__(
        self,
        settings: EventSettings,
        *,
        name: str,
        clock: Callable[[], float],
        opened: Callable[[], Awaitable[None]],
    ) -> None:
        access.check(settings)
        self.counts = Counts()
        self.once_connected = asyncio.Event()
        """Set at the first connect, and set it stays."""
        self.last_error = ""
        self.away_since: float | None = clock()
        """Monotonic time since which the server is away; ``None`` while connected."""
        self._settings = settings
        self._name = name
        self._clock = clock
        self._opened = opened
        self._wishes: list[Wish] = []
        self._held: set[int] = set()
        """Which of the wishes, by their place, the present client holds; it renews those by itself."""
        self._client: Client | None = None
        self._said_away = False
        self._ending = False

    @property
    def connected(self) -> bool:
        """Whether a message sent now would leave."""
        return self.away_since is None and self._client is not None and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """
        The server's largest message in bytes; a megabyte, the server's default, while none is connected.
        """
        return int(self._client.max_payload) if self.connected and self._client else 1_048_576

    async def keep(self, wish: Wish) -> None:
        """Hold this subscription from now on, over every reconnect."""
        self._wishes.append(wish)
        if self.connected:
            await self._subscribe_all()

    async def send(self, subject: str, data: bytes, *, reply: str = "") -> bool:
        """
        Publish; whether the message went to the connection. Never raises, never waits for a server that is
        away.
        """
        client = self._client
        if not self.connected or client is None:
            self.counts.unsent += 1
            return False
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.publish(subject, data, reply=reply)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            self.counts.unsent += 1
            self._note(error)
            return False
        return True

    async def inbox(self, most_bytes: int) -> tuple[str, Subscription] | None:
        """
        A fresh reply subject and its subscription, or ``None`` while the server is away. The caller ends it
        with ``leave``.
        """
        client = self._client
        if not self.connected or client is None:
            return None
        subject = client.new_inbox()
        try:
            return subject, await client.subscribe(subject, pending_bytes_limit=most_bytes)
        except (nats.errors.Error, OSError) as error:
            self._note(error)
            return None

    async def hear(self, subscription: Subscription, timeout: float) -> Msg | None:
        """The next message of a subscription made by ``inbox``; ``None`` when none came within ``timeout`` seconds."""
        try:
            return await subscription.next_msg(timeout=timeout)
        except (nats.errors.Error, TimeoutError, asyncio.CancelledError):
            _heed_cancellation()
            return None

    async def leave(self, subscription: Subscription) -> None:
        """End a subscription made by ``inbox``; a connection that is gone has ended it already."""
        with suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()

    async def run(self) -> None:
        """Hold the connection until cancelled."""
        try:
            while True:
                await self._one_client()
                _heed_cancellation()
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._ending = True
            await self._drop()

    async def _one_client(self) -> None:
        """Connect and stay until this client is of no more use."""
        client, closed = Client(), asyncio.Event()
        self._client = client
        self._held.clear()

        async def on_closed() -> None:
            closed.set()

        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await client.connect(**self._options(on_closed))
            await self._up()
        except TimeoutError:
            # The client tries on by itself, but it can hang after a failed handshake; the reason was noted.
            self.counts.errors += 1
            self._say_away()
            await self._drop()
            return
        except Exception as error:  # noqa: BLE001 - files change under us: whatever the client makes of them, try again
            self._note(error)
            await self._drop()
            return
        while not (closed.is_set() or client.is_closed):
            _heed_cancellation()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await closed.wait()
            if self.away_since is not None and self._clock() - self.away_since > REBUILD_SECONDS:
                break
        await self._down()
        await self._drop()

    def _options(self, on_closed: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        tls = access.tls_context(self._settings)
        return {
            "servers": access.server_urls(self._settings),
            "name": self._name,
            **access.identity(self._settings),
            **({"tls": tls} if tls else {}),
            "connect_timeout": CONNECT_SECONDS,
            "reconnect_time_wait": RETRY_SECONDS,
            "max_reconnect_attempts": -1,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            "error_cb": self._failed,
            "disconnected_cb": self._down,
            "reconnected_cb": self._up,
            "closed_cb": on_closed,
        }

    async def _subscribe_all(self) -> None:
        client = self._client
        for place, wish in enumerate(self._wishes):
            if client is None or place in self._held:
                continue
            self._held.add(place)
            try:
                await client.subscribe(
                    wish.subject,
                    cb=wish.handler,
                    pending_msgs_limit=wish.most_messages,
                    pending_bytes_limit=wish.most_bytes,
                )
            except (nats.errors.Error, OSError) as error:
                self._held.discard(place)
                self._note(error)

    async def _up(self) -> None:
        self.counts.connects += 1
        self.away_since = None
        self._said_away = False
        self.once_connected.set()
        self.last_error = ""
        log.info("nats is connected", name=self._name)
        await self._subscribe_all()
        await self._opened()

    async def _down(self) -> None:
        if self.away_since is None:
            self.counts.disconnects += 1
            self.away_since = self._clock()
        self._say_away()

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.counts.slow_consumer += 1
            return
        if "permissions violation" in str(error).lower():
            self.counts.refused += 1
            if self.counts.refused == 1:
                log.warning("nats refuses what we say or hear", name=self._name, error=str(error)[:200])
        self._note(error)

    def _note(self, error: Exception) -> None:
        self.counts.errors += 1
        self.last_error = f"{type(error).__name__}: {error}"[:200]
        if self._client is not None and not self._client.is_connected and self.away_since is None:
            self.counts.disconnects += 1
            self.away_since = self._clock()
        if self.away_since is not None:
            self._say_away()

    def _say_away(self) -> None:
        """One line per outage, not one per attempt."""
        if not (self._said_away or self._ending):
            self._said_away = True
            log.warning("nats is away, trying again", name=self._name, error=self.last_error)

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError, asyncio.TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.close()


def _heed_cancellation() -> None:
    """
    End the task that was told to end. The client library swallows that at times: while it connects, and while
    it closes it makes an error of ours and a cancellation of its own.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
