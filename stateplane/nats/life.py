"""The task that keeps the log followed: connects, takes it up, and does so again after every break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NoReturn

import structlog

from stateplane.connecting import CONNECT_SECONDS, silence
from stateplane.errors import (
    PlaneClosedError,
    PlaneDisconnectedError,
    PlaneRefusedError,
    PlaneTimeoutError,
    StatePlaneError,
)
from stateplane.nats.address import Address, Names
from stateplane.nats.attaching import Attacher, BeginMessage
from stateplane.nats.codec import Command
from stateplane.nats.fold import Counts, Fold, Result
from stateplane.nats.follower import Follower, Stamp, Told
from stateplane.nats.wire import Connection, created

log = structlog.get_logger(__name__)

SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
LOOK_SECONDS = 0.25


class Life:
    """The log while it is followed, and why not while it is not.

    All that takes longer than one call may is done here. A call that finds the log not followed wakes the task and
    waits for its next word, within the call's own deadline.
    """

    def __init__(
        self,
        address: Address,
        names: Names,
        *,
        timeout: float,
        connect: float = CONNECT_SECONDS,
        stamp: Stamp,
        begin: BeginMessage,
        told: Told,
        broke: Callable[[StatePlaneError], None],
        counts: Counts,
        schema: int,
    ) -> None:
        self.address = address
        self.error: StatePlaneError = PlaneDisconnectedError(f"not connected to {address.where} yet")
        """Why it is not followed, or was not the last time."""
        self.created = ""
        """When the log was created, as checkpoints know it."""
        self.news = asyncio.Event()
        """Set, and replaced, with each folded message and with each change of this object."""
        self._names = names
        self._silence = silence(timeout)
        self._connect = min(connect, 2 * self._silence)
        self._stamp = stamp
        self._told = told
        self._broke = broke
        self._counts = counts
        self._attacher = Attacher(begin, self._follower, counts, schema=schema)
        self._connection: Connection | None = None
        self._following: Follower | None = None
        self._failures = 0
        self._followed = False
        self._word = asyncio.Event()
        self._nudge = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._said = ""

    @property
    def fold(self) -> Fold | None:
        """The log folded; None while it is not followed."""
        following, connection = self._following, self._connection
        if following is None or connection is None or following.error or connection.closed.is_set():
            return None
        return following.fold

    @property
    def both(self) -> tuple[Connection, Follower]:
        """The connection and who follows the log on it. Raises why there is none."""
        if self._connection is None or self._following is None:
            raise self.error
        return self._connection, self._following

    async def ready(self, within: float) -> Fold:
        """The fold, once it is followed. Raises StatePlaneError."""
        self.check_open()
        failures = self._failures
        try:
            async with asyncio.timeout(within):
                while (fold := self.fold) is None:
                    if self._failures > failures:
                        raise self.error
                    self._wake()
                    word = self._word
                    await word.wait()
                    self.check_open()
        except TimeoutError as error:
            self._counts.timeouts += 1
            raise PlaneTimeoutError(
                f"{self.address.where} gave no answer within {within} s ({self.error})"
            ) from error
        return fold

    def check_open(self) -> None:
        """Raise PlaneClosedError once it is closed."""
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")

    def _wake(self) -> None:
        self._nudge.set()
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name="plane log")
            self._task.add_done_callback(lambda _: self._tell_everyone())
        elif self._task.done():
            task, self._task = self._task, None
            task.result()

    async def _live(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            connection = Connection(
                self.address, names=self._names, timeout=self._silence, connect=self._connect
            )
            try:
                await self._life(connection)
            except StatePlaneError as error:
                self.error = error
                self._say(error)
                self._failures += not self._followed
                self._nudge.clear()
                self._tell_everyone()
            finally:
                self._connection = None
                await connection.close()
            pause = SHORTEST_PAUSE if self._followed else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(SHORTEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._nudge.wait()

    async def _life(self, connection: Connection) -> NoReturn:
        """One connection, from its making to its end. Raises StatePlaneError."""
        self._followed = False
        await connection.open()
        self._counts.connects += 1
        while True:
            await self._follow(connection)

    async def _follow(self, connection: Connection) -> None:
        """One stretch of following. Raises StatePlaneError when the connection ended."""
        self._connection, self._followed = connection, False
        info = await connection.prepare()
        following = await self._attacher.attach(connection, info)
        try:
            self.created = created(info)
            self._following, self._followed, self._said = following, True, ""
            self._tell_everyone()
            log.info("state plane's log followed", server=connection.where, sequence=following.fold.sequence)
            await self._watch(connection, following)
        finally:
            self._following = None
            await following.close()
            self._broke(following.error or self.error)
        if connection.closed.is_set():
            raise PlaneDisconnectedError(f"the connection to {connection.where} broke")
        if isinstance(following.error, PlaneRefusedError):
            raise following.error
        self.error = following.error or self.error
        self._tell_everyone()
        await asyncio.sleep(SHORTEST_PAUSE)

    async def _watch(self, connection: Connection, following: Follower) -> None:
        """Return once it can be followed no more."""
        ended = asyncio.create_task(connection.closed.wait())
        broken = asyncio.create_task(following.broken.wait())
        try:
            while not (ended.done() or broken.done()):
                await asyncio.wait((ended, broken), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                connection.look()
                if following.silent():
                    following.end(PlaneTimeoutError(f"{connection.where} has fallen silent"))
        finally:
            ended.cancel()
            broken.cancel()
            await asyncio.gather(ended, broken, return_exceptions=True)

    def _follower(self, connection: Connection, fold: Fold) -> Follower:
        return Follower(connection, fold, stamp=self._stamp, told=self._heard, counts=self._counts)

    def _heard(self, command: Command, result: Result) -> None:
        self._told(command, result)
        self._tell_news()

    def _tell_news(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    def _tell_everyone(self) -> None:
        self._tell_news()
        word, self._word = self._word, asyncio.Event()
        word.set()

    def _say(self, error: StatePlaneError) -> None:
        text = str(error)
        if text != self._said:
            self._said = text
            log.warning("state plane's log is not followed", reason=text)

    async def close(self) -> None:
        """Follow no more; every further call raises PlaneClosedError."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._broke(PlaneClosedError("the plane was closed"))
        self._tell_everyone()
