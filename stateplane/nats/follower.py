"""One subscription to the log: its messages, in order, into a fold."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

from nats.aio.msg import Msg

from stateplane.errors import PlaneDisconnectedError, PlaneUnavailableError, StatePlaneError
from stateplane.nats.codec import Command
from stateplane.nats.fold import Counts, Fold, Result
from stateplane.nats.wire import Connection

SILENCE_SECONDS = 3.0
"""Without a message or an idle heartbeat (each second) for so long, the subscription is taken for dead."""
AT_ONCE = 64
"""Messages folded before others may run."""

Stamp = Callable[[int, int], int]
"""A message's sequence and the server's time of it in milliseconds -> the time that counts; a test steps it."""
Told = Callable[[Command, Result], None]


class BrokenLogError(PlaneUnavailableError):
    """The log does not go on where the fold ends: its messages were cut, or it is another log."""


class OtherLogError(BrokenLogError):
    """The last message of the fold stands in the log no more: it lost its tail."""


class Follower:
    """Follows until it breaks; then ``error`` says why and another takes its place."""

    def __init__(
        self, connection: Connection, fold: Fold, *, stamp: Stamp, told: Told, counts: Counts
    ) -> None:
        self.fold = fold
        self.broken = asyncio.Event()
        self.error: StatePlaneError | None = None
        self._connection = connection
        self._stamp = stamp
        self._told = told
        self._counts = counts
        self._subscription: Any = None
        self.told_at = self._heard = asyncio.get_running_loop().time()
        """When a message of the log came last."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._handled = 0

    async def open(self) -> None:
        """Subscribe where the fold ends; its last message comes once more, to see that it is the same log."""
        fold = self.fold
        first = fold.sequence if fold.sequence and fold.stamp is not None else fold.sequence + 1
        self._subscription = await self._connection.subscribe(first, self._handle)

    async def reach(self, sequence: int, within: float) -> None:
        """Wait until that message is folded. Raises what broke the following, or PlaneUnavailableError."""
        if self.error is not None:
            raise self.error
        if self.fold.sequence >= sequence:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (sequence, next(self._order), future))
        try:
            async with asyncio.timeout(within):
                await future
        except TimeoutError as error:
            raise PlaneUnavailableError(
                f"{self._connection.where} did not deliver the log up to message {sequence} within {within} s"
            ) from error

    def silent(self) -> bool:
        """Whether nothing has come for too long."""
        return asyncio.get_running_loop().time() - self._heard > SILENCE_SECONDS

    def end(self, error: StatePlaneError) -> None:
        """Follow no more."""
        if self.error is None:
            self.error = error
        while self._waiting:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_exception(self.error)
                future.exception()
        self.broken.set()

    async def close(self) -> None:
        """End the subscription."""
        self.end(PlaneDisconnectedError(f"the log on {self._connection.where} is followed no more"))
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._connection.unsubscribe(subscription)

    async def _handle(self, message: Msg) -> None:
        if self.error is not None:
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            if message.headers and message.headers.get("Status"):
                await self._control(message)
                return
            self.told_at = self._heard
            self._take(message)
        except StatePlaneError as error:
            self.end(error)
        except BaseException:
            # the client would only tell its log, and go on with a hole in what was folded
            self.end(PlaneDisconnectedError("a message of the log could not be handled"))
            raise
        self._handled += 1
        if self._handled % AT_ONCE == 0:
            await asyncio.sleep(0)

    async def _control(self, message: Msg) -> None:
        """Flow control wants an answer, an idle heartbeat only if it says that the consumer is stalled."""
        headers = message.headers or {}
        subject = message.reply or headers.get("Nats-Consumer-Stalled")
        if subject:
            await self._connection.answer(subject)

    def _take(self, message: Msg) -> None:
        sequence, stamp = position_of(message.reply)
        fold = self.fold
        if sequence <= fold.sequence:
            if sequence == fold.sequence and fold.stamp is not None and stamp != fold.stamp:
                raise OtherLogError(f"message {sequence} of the log is not the one that was folded")
            return
        if sequence != fold.sequence + 1:
            raise BrokenLogError(
                f"messages {fold.sequence + 1} to {sequence - 1} of the log are no longer kept"
            )
        now = self._stamp(sequence, stamp // 1_000_000)
        done = fold.apply(sequence, stamp, message.data, now=now, counts=self._counts)
        if done is not None:
            self._told(*done)
        while self._waiting and self._waiting[0][0] <= fold.sequence:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)


def position_of(reply: str) -> tuple[int, int]:
    """Sequence and time (nanoseconds) out of a delivered message's reply subject. Raises BrokenLogError.

    ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>``; newer servers put
    domain and account before the stream and may add a token at the end.
    """
    tokens = reply.split(".")
    offset = {9: 2}.get(len(tokens), 4)
    try:
        return int(tokens[offset + 3]), int(tokens[offset + 5])
    except (ValueError, IndexError) as error:
        raise BrokenLogError(
            f"a message was delivered without its place in the log: {reply[:80]!r}"
        ) from error
