"""The log as this replica lives with it: connected, followed, resumed after every break, its commands answered.

A task of its own does all that takes longer than one call may: connecting, making the streams, reading the log. A call
that finds it not ready wakes it and waits for its next word, within the call's deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import structlog
from nats.js import api

from stateplane.booking import SCHEMA, Change, Gap, Owner, Rules, Version
from stateplane.errors import (
    PlaneClosedError,
    PlaneDisconnectedError,
    PlaneEpochError,
    PlaneRefusedError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.ledger import Ledger
from stateplane.nats import checkpoints, codec
from stateplane.nats.address import Address, Names
from stateplane.nats.attaching import Attacher
from stateplane.nats.codec import Body, Command
from stateplane.nats.fold import Counts, Fold, Result
from stateplane.nats.follower import Follower, Stamp
from stateplane.nats.translation import MissingError
from stateplane.nats.wire import Connection, created

log = structlog.get_logger(__name__)

WAITING = 8192
"""Most calls that wait for an answer; past it they fail at once."""
SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
REPLAY_SECONDS = 10.0
"""For reading the log anew; each question of it has the deadline of a call."""


class Log:
    """One pool's log, followed by one plane."""

    def __init__(
        self, address: Address, *, pool: str, owner: Owner, rules: Rules, timeout: float, stamp: Stamp
    ) -> None:
        self.counts = Counts()
        self.origin = secrets.token_hex(8)
        self._address = address
        self._names = Names.of(pool)
        self._owner = codec.owner_pair(owner)
        self._times = codec.times_of(rules)
        self._timeout = timeout
        self._stamp = stamp
        self._number = 0
        self._asked: dict[int, asyncio.Future[Result]] = {}
        self._acknowledged: dict[int, tuple[Follower, float]] = {}
        """Who was to deliver what was acknowledged, and when anything had been delivered last."""
        self._attacher = Attacher(self._begin_message, self._follower, self.counts)
        self._connection: Connection | None = None
        self._following: Follower | None = None
        self._error: StatePlaneError = PlaneDisconnectedError(f"not connected to {address.where} yet")
        self._failures = 0
        self._followed = False
        self._word = asyncio.Event()
        self._news = asyncio.Event()
        self._nudge = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._said = ""
        self.created = ""
        """When the log was created, as checkpoints know it."""

    @property
    def fold(self) -> Fold | None:
        """The log folded; None while it is not followed."""
        following, connection = self._following, self._connection
        if (
            following is None
            or connection is None
            or following.error is not None
            or connection.closed.is_set()
        ):
            return None
        return following.fold

    # --- calls

    async def ready(self, within: float) -> Fold:
        """The fold, once it is followed. Raises StatePlaneError."""
        self._check_open()
        failures = self._failures
        try:
            async with asyncio.timeout(within):
                while (fold := self.fold) is None:
                    if self._failures > failures:
                        raise self._error
                    self._wake()
                    word = self._word
                    await word.wait()
                    self._check_open()
        except TimeoutError as error:
            self.counts.timeouts += 1
            raise PlaneTimeoutError(
                f"{self._address.where} gave no answer within {within} s ({self._error})"
            ) from error
        return fold

    async def tell(self, body: Body, epoch: int) -> Result:
        """Append a command and wait until it is folded; ``epoch`` 0: whichever is. Raises StatePlaneError."""
        if len(self._asked) >= WAITING:
            raise PlaneUnavailableError(f"{WAITING} calls to {self._address.where} are waiting already")
        self.counts.calls += 1
        self._number += 1
        number = self._number
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                fold = await self.ready(self._timeout)
                if epoch and fold.epoch != epoch:
                    raise PlaneEpochError(
                        f"{self._address.where} is in epoch {fold.epoch}, we joined {epoch}"
                    )
                self._asked[number] = answer
                await self._publish(body, number, epoch)
                result = await answer
        except TimeoutError as error:
            self.counts.timeouts += 1
            self._suspect(number)
            raise PlaneTimeoutError(
                f"{self._address.where} gave no answer within {self._timeout} s"
            ) from error
        except PlaneRefusedError:
            self.counts.refused += 1
            raise
        except PlaneDisconnectedError:
            self.counts.disconnects += 1
            raise
        finally:
            self._asked.pop(number, None)
            self._acknowledged.pop(number, None)
        if isinstance(result, StatePlaneError):
            raise result
        return result

    async def _publish(self, body: Body, number: int, epoch: int) -> None:
        connection, following = self._connection, self._following
        if connection is None or following is None:
            raise self._error
        command = Command(SCHEMA, self.origin, number, epoch, self._owner, self._times, body)
        folded, told = following.fold.sequence, following.told_at
        try:
            sequence = await connection.publish(codec.pack(command))
        except MissingError as error:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} is gone"))
            raise PlaneDisconnectedError(f"the log {self._names.log} is gone") from error
        if sequence <= folded:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} was made anew"))
        self._acknowledged[number] = (following, told)

    def _suspect(self, number: int) -> None:
        """Acknowledged, not delivered, and nothing else was since: the subscription is dead, or of another log."""
        following, told = self._acknowledged.get(number, (None, 0.0))
        if following is not None and following.told_at == told:
            following.end(PlaneTimeoutError(f"{self._address.where} does not deliver the log"))

    async def level(self) -> Fold:
        """The fold with everything in it that the log holds now. Raises StatePlaneError."""
        await self.ready(self._timeout)
        connection, following = self._connection, self._following
        if connection is None or following is None:
            raise self._error
        info = await self._info(connection, following)
        await following.reach(info.state.last_seq, self._timeout)
        return following.fold

    async def same(self) -> None:
        """See that the log is still the one that is followed. Raises StatePlaneError."""
        await self.ready(self._timeout)
        if self._connection is not None and self._following is not None:
            await self._info(self._connection, self._following)

    async def _info(self, connection: Connection, following: Follower) -> api.StreamInfo:
        try:
            info = await connection.info()
        except PlaneTimeoutError:
            self.counts.timeouts += 1
            raise
        except MissingError as error:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} is gone"))
            raise PlaneDisconnectedError(f"the log {self._names.log} is gone") from error
        if created(info) != self.created:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} was made anew"))
            raise PlaneDisconnectedError(f"the log {self._names.log} was made anew")
        return info

    async def replayed(self) -> Ledger:
        """The ledger as the server alone has it: its checkpoint and the log after it, folded apart from ours."""
        await self.ready(self._timeout)
        connection, following = self._connection, self._following
        if connection is None or following is None:
            raise self._error
        info = await self._info(connection, following)
        fold = await checkpoints.load(connection, info, counts=self.counts)
        counts = Counts()
        follower = Follower(connection, fold, stamp=self._stamp, told=_nobody, counts=counts)
        try:
            await follower.open()
            await follower.reach(info.state.last_seq, REPLAY_SECONDS)
        finally:
            await follower.close()
        if fold.ledger is None:
            raise PlaneUnavailableError(f"the log {self._names.log} holds no epoch")
        return fold.ledger

    async def changes(self, after: Version) -> AsyncIterator[Change]:
        """Every change after that version; a ``Gap`` is the last. Raises PlaneUnavailableError when it breaks."""
        fold = await self.ready(self._timeout)
        while True:
            news = self._news
            for change in fold.since(after):
                yield change
                if isinstance(change, Gap):
                    self.counts.gaps += 1
                    return
                after = change.version
            self._check_open()
            if self.fold is None:
                raise PlaneDisconnectedError(f"the changes broke off: {self._error}")
            if fold is not self.fold:
                fold = self.fold
            elif fold.ledger is not None and after == fold.ledger.version:
                await news.wait()

    def forget(self) -> None:
        """Drop the kept changes, as a long time would."""
        if self.fold is not None:
            self.fold.forget()

    async def checkpoint(self) -> int:
        """Store the fold as it is; the message that the newest checkpoint is of. Raises StatePlaneError."""
        fold = await self.ready(self._timeout)
        if self._connection is None:
            raise self._error
        return await checkpoints.save(self._connection, fold, self.created, counts=self.counts)

    async def newest_checkpoint(self) -> int:
        """The message that the newest checkpoint is of. Raises StatePlaneError."""
        await self.ready(self._timeout)
        if self._connection is None:
            raise self._error
        return await checkpoints.newest(self._connection, self.created, counts=self.counts)

    def _check_open(self) -> None:
        if self._closed:
            raise PlaneClosedError("the plane was closed before this call")

    # --- the task

    def _wake(self) -> None:
        self._nudge.set()
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name="plane log")
        elif self._task.done():
            task, self._task = self._task, None
            task.result()

    async def _live(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            self._followed = False
            try:
                await self._life()
            except StatePlaneError as error:
                self._error = error
                self._say(error)
            pause = SHORTEST_PAUSE if self._followed else min(2 * pause, LONGEST_PAUSE)
            self._failures += not self._followed
            self._tell_everyone()
            self._nudge.clear()
            await asyncio.sleep(SHORTEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._nudge.wait()

    async def _life(self) -> None:
        """One connection, from its making to its end. Raises StatePlaneError, always."""
        connection = Connection(self._address, names=self._names, timeout=max(self._timeout, 0.25))
        try:
            await connection.open()
            self.counts.connects += 1
            while True:
                await self._follow(connection)
        finally:
            self._connection = None
            await connection.close()

    async def _follow(self, connection: Connection) -> None:
        """One stretch of following. Raises StatePlaneError when the connection ended."""
        self._connection = connection
        info = await connection.prepare()
        following = await self._attacher.attach(connection, info)
        try:
            self.created = created(info)
            self._following, self._followed = following, True
            self._tell_everyone()
            log.info("state plane's log followed", server=connection.where, sequence=following.fold.sequence)
            await self._watch(connection, following)
        finally:
            self._following = None
            await following.close()
            self._fail_asked(following.error or self._error)
        if connection.closed.is_set():
            raise PlaneDisconnectedError(f"the connection to {connection.where} broke")
        if isinstance(following.error, PlaneRefusedError):
            raise following.error
        self._error = following.error or self._error
        self._tell_everyone()
        await asyncio.sleep(SHORTEST_PAUSE)

    async def _watch(self, connection: Connection, following: Follower) -> None:
        """Return once it can be followed no more."""
        ended = asyncio.create_task(connection.closed.wait())
        broken = asyncio.create_task(following.broken.wait())
        try:
            while not (ended.done() or broken.done()):
                await asyncio.wait((ended, broken), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if following.silent():
                    following.end(PlaneTimeoutError(f"{connection.where} has fallen silent"))
        finally:
            ended.cancel()
            broken.cancel()
            await asyncio.gather(ended, broken, return_exceptions=True)

    def _follower(self, connection: Connection, fold: Fold) -> Follower:
        return Follower(connection, fold, stamp=self._stamp, told=self._folded, counts=self.counts)

    def _begin_message(self, run: str, epoch: int, *, lose: bool) -> bytes:
        body = codec.Begin(run=run, epoch=epoch, lose=lose)
        return codec.pack(Command(SCHEMA, self.origin, 0, 0, self._owner, self._times, body))

    def _folded(self, command: Command, result: Result) -> None:
        if command.origin == self.origin:
            answer = self._asked.get(command.number)
            if answer is not None and not answer.done():
                answer.set_result(result)
        self._tell_news()

    def _fail_asked(self, error: StatePlaneError) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()

    def _tell_news(self) -> None:
        news, self._news = self._news, asyncio.Event()
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
        self._fail_asked(PlaneClosedError("the plane was closed"))
        self._tell_everyone()


def _nobody(command: Command, result: Result) -> None:
    del command, result
