"""One connection to the server, and what is asked of it. Each call has its deadline; nothing is tried again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, TypeVar

import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api

from stateplane.errors import (
    PlaneDisconnectedError,
    PlaneRefusedError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.nats import codec
from stateplane.nats.address import Address, Names
from stateplane.nats.translation import DRIVER_ERRORS, MissingError, translated

log = structlog.get_logger(__name__)

T = TypeVar("T")

LOG_LENGTH = 65_536
"""Messages that the log keeps; a checkpoint is written long before they are full."""
LONGEST_MESSAGE = 65_536
"""Bytes of one command."""
CLOSE_SECONDS = 0.5
PING_SECONDS = 5
"""A connection on which two of these pings in a row stay without answer is given up."""


class _Client(Client):
    """The client. It tells what the server says of itself, and sends no secret where TLS is wanted and not offered."""

    tls_only = False

    @property
    def told(self) -> dict[str, Any]:
        """What the server says of itself."""
        info: dict[str, Any] = self._server_info
        return info

    def _connect_command(self) -> bytes:
        if self.tls_only and not self.told.get("tls_required"):
            raise nats.errors.SecureConnWantedError
        try:
            command: bytes = super()._connect_command()
        except Exception:  # noqa: BLE001 - the reader of credentials files raises whatever it trips over
            raise nats.errors.InvalidUserCredentialsError from None
        return command

    def abort(self) -> None:
        """End what closing may leave: a socket after a failed handshake or over TLS, tasks of subscriptions."""
        for subscription in self._subs.values():
            task: asyncio.Task[None] | None = getattr(subscription, "_wait_for_msgs_task", None)
            if task is not None:
                task.cancel()
        for name in ("_io_writer", "_bare_io_writer"):
            writer: asyncio.StreamWriter | None = getattr(self._transport, name, None)
            if writer is not None:
                writer.transport.abort()


class Connection:
    """A connection that is made once: when it breaks, another takes its place."""

    def __init__(self, address: Address, *, names: Names, timeout: float, connect: float) -> None:
        """``timeout`` of each question, ``connect`` of the connection and its handshake, in seconds."""
        self.address = address
        self.names = names
        self.timeout = timeout
        self._connect = connect
        self.closed = asyncio.Event()
        """Set once it is of no more use."""
        self._client = _Client()
        self._client.tls_only = address.tls
        self._last_error: Exception | None = None
        self._denied = ""
        self._begun = self._made = False
        self._asking: set[asyncio.Timeout] = set()
        self.js: JetStreamContext = self._client.jetstream(timeout=timeout)

    @property
    def where(self) -> str:
        """The server, for a message."""
        return self.address.where

    async def open(self) -> None:
        """Connect. Raises StatePlaneError."""
        try:
            entry = await asyncio.to_thread(self.address.entry)
            self._begun = True
            async with asyncio.timeout(self._connect):
                await self._client.connect(
                    list(self.address.servers),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=math.ceil(self._connect),
                    ping_interval=PING_SECONDS,
                    max_outstanding_pings=2,
                    error_cb=self._failed,
                    disconnected_cb=self._ended,
                    closed_cb=self._ended,
                    name="picker state plane",
                    **entry,
                )
            self._made = True
        except ImportError as error:
            raise PlaneRefusedError(
                f"a NATS credentials file needs the package {error.name!r}: pip install {error.name}"
            ) from error
        except DRIVER_ERRORS as error:
            raise translated(self._cause(error), self.where) from error

    def _cause(self, error: Exception) -> Exception:
        """The client says "no servers" where it could say why."""
        return self._last_error if self._last_error is not None and "no servers" in str(error) else error

    async def _failed(self, error: Exception) -> None:
        self._last_error = error
        if "permissions violation" in str(error).lower():
            self._denied = str(error)[:200]
            self._fail_asking()
        self.look()

    def look(self) -> None:
        """Notice an end that the client keeps to itself: it may close without calling back."""
        if self._made and self._client.is_closed and not self.closed.is_set():
            self.closed.set()
            self._fail_asking()

    async def _ended(self) -> None:
        self.closed.set()
        self._fail_asking()

    def _fail_asking(self) -> None:
        """The client would let what is in flight wait for its deadline."""
        now = asyncio.get_running_loop().time()
        for waiting in self._asking:
            if not waiting.expired():
                waiting.reschedule(now)

    async def ask(self, call: Awaitable[T]) -> T:
        """Await a call of the client's; one in flight fails with its connection. Raises StatePlaneError."""
        waiting = asyncio.timeout(self.timeout)
        self._asking.add(waiting)
        try:
            async with waiting:
                return await call
        except DRIVER_ERRORS as error:
            self.look()
            if self.closed.is_set():
                raise PlaneDisconnectedError(f"the connection to {self.where} broke") from error
            if self._denied and isinstance(error, TimeoutError):
                raise PlaneRefusedError(f"{self.where}: the user lacks rights: {self._denied}") from error
            raise translated(error, self.where) from error
        finally:
            self._asking.discard(waiting)

    async def close(self) -> None:
        """Give it up."""
        self.closed.set()
        if not self._begun:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        except DRIVER_ERRORS as error:
            log.debug("a connection to the plane did not close cleanly", error=repr(error))
        finally:
            self._client.abort()
            await asyncio.sleep(0)

    # --- the server's and the streams' lives

    def life(self, info: api.StreamInfo) -> str:
        """What a restart that may have lost writes changes: a lone server's id, else only the log's creation.

        A lone server acknowledges before its disk has it. In a cluster a quorum remembers; if its log lost its tail
        all the same, whoever folded that tail finds out.
        """
        told = self._client.told
        if told.get("cluster"):
            return f"log:{created(info)}"
        return f"server:{told.get('server_id', '')}:{created(info)}"

    async def info(self) -> api.StreamInfo:
        """The log as the server has it now. Raises MissingError."""
        return await self.ask(self.js.stream_info(self.names.log))

    async def prepare(self) -> api.StreamInfo:
        """Both streams, made where they are missing. Raises PlaneRefusedError where they are not as they must be."""
        address = self.address
        wanted_log, wanted_store = log_settings(self.names), store_settings(self.names)
        for wanted in (wanted_log, wanted_store):
            wanted.storage = api.StorageType(address.storage or "file")
            wanted.num_replicas = address.replicas or 1
        if not self._client.told.get("jetstream"):
            raise PlaneRefusedError(
                f"{self.where} runs without JetStream: start it with -js, or name another server"
            )
        found = await self._prepared(wanted_log)
        await self._prepared(wanted_store)
        return found

    async def _prepared(self, wanted: api.StreamConfig) -> api.StreamInfo:
        assert wanted.name is not None
        try:
            found = await self.ask(self.js.stream_info(wanted.name))
        except MissingError:
            try:
                return await self.ask(self.js.add_stream(wanted))
            except PlaneRefusedError:
                found = await self._made_by_another(wanted.name)
        wrong = difference(found.config, wanted, self.address)
        if wrong:
            raise PlaneRefusedError(
                f"the stream {wanted.name} on {self.where} has {wrong}; remove it, or name another server or pool"
            )
        return found

    async def _made_by_another(self, name: str) -> api.StreamInfo:
        try:
            return await self.ask(self.js.stream_info(name))
        except MissingError:
            raise
        except StatePlaneError as error:
            raise PlaneUnavailableError(f"the stream {name} on {self.where} cannot be made") from error

    # --- messages

    async def publish(self, data: bytes) -> int:
        """Append to the log; the message's number. Raises MissingError where there is none."""
        ack = await self.ask(self.js.publish(self.names.subject, data, timeout=self.timeout))
        return int(ack.seq)

    async def last_command(self, newest: int) -> codec.Command | None:
        """The log's last command; None where there is none. Raises PlaneRefusedError for a schema not read here."""
        try:
            last = await self.ask(self.js.get_last_msg(self.names.log, self.names.subject))
            return codec.command_of(last.data or b"", newest)
        except (MissingError, codec.ForeignError):
            return None

    async def subscribe(self, sequence: int, handle: Any) -> Any:
        """Have the log's messages from that one on handed to ``handle``, and idle heartbeats between them."""
        inbox = self._client.new_inbox()
        subscription = await self.ask(
            self._client.subscribe(
                inbox, cb=handle, pending_msgs_limit=2 * LOG_LENGTH, pending_bytes_limit=256 << 20
            )
        )
        try:
            await self.ask(
                self.js.add_consumer(
                    self.names.log,
                    api.ConsumerConfig(
                        deliver_subject=inbox,
                        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                        opt_start_seq=sequence,
                        ack_policy=api.AckPolicy.NONE,
                        max_deliver=1,
                        idle_heartbeat=1.0,
                        flow_control=True,
                        inactive_threshold=10.0,
                        mem_storage=True,
                        num_replicas=1,
                    ),
                )
            )
        except BaseException:
            await self.unsubscribe(subscription)
            raise
        return subscription

    async def unsubscribe(self, subscription: Any) -> None:
        """End it; never raises."""
        try:
            async with asyncio.timeout(self.timeout):
                await subscription.unsubscribe()
        except DRIVER_ERRORS as error:
            log.debug("a subscription to the plane's log did not end cleanly", error=repr(error))

    async def answer(self, subject: str) -> None:
        """Tell the server's flow control to go on."""
        await self.ask(self._client.publish(subject, b""))


def created(info: api.StreamInfo) -> str:
    """When a stream was made, exactly."""
    return f"{info.created.timestamp():.6f}" if info.created is not None else ""


def log_settings(names: Names) -> api.StreamConfig:
    """The log."""
    return api.StreamConfig(
        name=names.log,
        description="bookings of an endpoint picker's pool",
        subjects=[names.subject],
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.OLD,
        max_msgs=LOG_LENGTH,
        max_msg_size=LONGEST_MESSAGE,
        allow_direct=True,
    )


def store_settings(names: Names) -> api.StreamConfig:
    """The stream behind the key-value bucket, as NATS tools expect it."""
    return api.StreamConfig(
        name=names.store,
        description="checkpoints of an endpoint picker's pool",
        subjects=[f"$KV.{names.bucket}.>"],
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW,
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        allow_direct=True,
        deny_delete=True,
    )


def difference(found: api.StreamConfig, wanted: api.StreamConfig, address: Address) -> str:
    """What makes a stream unfit for us; empty: nothing."""
    if list(found.subjects or []) != wanted.subjects or found.mirror or found.sources:
        return f"the subjects {', '.join(found.subjects or ['none'])[:120]}: it is not ours"
    if address.storage is not None and found.storage != address.storage:
        return f"storage={found.storage}, but the plane's URL asks for storage={address.storage}"
    if address.replicas is not None and found.num_replicas != address.replicas:
        return f"replicas={found.num_replicas}, but the plane's URL asks for replicas={address.replicas}"
    if found.retention != wanted.retention or found.max_age or (found.max_bytes or -1) > 0:
        return "a retention, max_age or max_bytes other than ours: bookings would be lost"
    if (found.max_msgs_per_subject or -1) != (wanted.max_msgs_per_subject or -1):
        return f"max_msgs_per_subject={found.max_msgs_per_subject}, not {wanted.max_msgs_per_subject or -1}"
    shortest = wanted.max_msgs or -1
    if shortest > 0 and 0 < (found.max_msgs or -1) < shortest // 2:
        return f"max_msgs={found.max_msgs}, less than half of the {shortest} that it needs"
    if found.discard != wanted.discard:
        return f"discard={found.discard}, not {wanted.discard}"
    return "it is sealed" if found.sealed else ""
