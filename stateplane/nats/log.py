"""The log as this replica lives with it: its commands are written, their answers come from the fold."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import structlog
from nats.js import api

from stateplane.booking import Change, Gap, Owner, Rules, Version
from stateplane.connecting import CONNECT_SECONDS
from stateplane.errors import (
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
from stateplane.nats.codec import Body, Command
from stateplane.nats.fold import Counts, Fold, Result
from stateplane.nats.follower import Follower, Stamp
from stateplane.nats.life import Life
from stateplane.nats.translation import MissingError
from stateplane.nats.wire import Connection, created

log = structlog.get_logger(__name__)

WAITING = 8192
"""Most calls that wait for an answer; past it they fail at once."""
REPLAY_SECONDS = 10.0
"""For reading the log anew; each question of it has the deadline of a call."""


class Log:
    """One pool's log, followed by one plane."""

    def __init__(
        self,
        address: Address,
        *,
        pool: str,
        owner: Owner,
        rules: Rules,
        timeout: float,
        connect: float = CONNECT_SECONDS,
        stamp: Stamp,
        schema: int,
    ) -> None:
        """``schema``: the newest that this program reads."""
        self.counts = Counts()
        self.origin = secrets.token_hex(8)
        self._address = address
        self._names = Names.of(pool)
        self._owner = codec.owner_pair(owner)
        self._times = codec.times_of(rules)
        self._timeout = timeout
        self._stamp = stamp
        self._schema = schema
        self._number = 0
        self._asked: dict[int, asyncio.Future[Result]] = {}
        self._acknowledged: dict[int, tuple[Follower, float]] = {}
        """Who was to deliver what was acknowledged, and when anything had been delivered last."""
        self._life = Life(
            address, self._names, timeout=timeout, connect=connect, stamp=stamp, begin=self._begin_message,
            told=self._folded, broke=self._fail_asked, counts=self.counts, schema=schema,
        )  # fmt: skip

    @property
    def fold(self) -> Fold | None:
        """The log folded; None while it is not followed."""
        return self._life.fold

    # --- calls

    async def ready(self, within: float) -> Fold:
        """The fold, once it is followed. Raises StatePlaneError."""
        return await self._life.ready(within)

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
        connection, following = self._life.both
        self.counts.schema = schema = following.fold.writes()
        command = Command(schema, self.origin, number, epoch, self._owner, self._times, body)
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
        connection, following = self._life.both
        info = await self._info(connection, following)
        await following.reach(info.state.last_seq, self._timeout)
        return following.fold

    async def same(self) -> None:
        """See that the log is still the one that is followed. Raises StatePlaneError."""
        await self.ready(self._timeout)
        await self._info(*self._life.both)

    async def _info(self, connection: Connection, following: Follower) -> api.StreamInfo:
        try:
            async with asyncio.timeout(self._timeout):
                info = await connection.info()
        except (TimeoutError, PlaneTimeoutError) as error:
            self.counts.timeouts += 1
            raise PlaneTimeoutError(
                f"{self._address.where} gave no answer within {self._timeout} s"
            ) from error
        except MissingError as error:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} is gone"))
            raise PlaneDisconnectedError(f"the log {self._names.log} is gone") from error
        if created(info) != self._life.created:
            following.end(PlaneDisconnectedError(f"the log {self._names.log} was made anew"))
            raise PlaneDisconnectedError(f"the log {self._names.log} was made anew")
        return info

    async def replayed(self) -> Ledger:
        """The ledger as the server alone has it: its checkpoint and the log after it, folded apart from ours."""
        await self.ready(self._timeout)
        connection, following = self._life.both
        info = await self._info(connection, following)
        fold = await checkpoints.load(connection, info, schema=self._schema, counts=self.counts)
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
            news = self._life.news
            for change in fold.since(after):
                yield change
                if isinstance(change, Gap):
                    self.counts.gaps += 1
                    return
                after = change.version
            self._life.check_open()
            if self.fold is None:
                raise PlaneDisconnectedError(f"the changes broke off: {self._life.error}")
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
        connection, _ = self._life.both
        return await checkpoints.save(connection, fold, self._life.created, counts=self.counts)

    async def newest_checkpoint(self) -> int:
        """The message that the newest checkpoint is of. Raises StatePlaneError."""
        await self.ready(self._timeout)
        connection, _ = self._life.both
        return await checkpoints.newest(
            connection, self._life.created, schema=self._schema, counts=self.counts
        )

    def _begin_message(self, run: str, epoch: int, *, schema: int, lose: bool) -> bytes:
        body = codec.Begin(run=run, epoch=epoch, lose=lose)
        return codec.pack(Command(schema, self.origin, 0, 0, self._owner, self._times, body))

    def _folded(self, command: Command, result: Result) -> None:
        if command.origin == self.origin:
            answer = self._asked.get(command.number)
            if answer is not None and not answer.done():
                answer.set_result(result)

    def _fail_asked(self, error: StatePlaneError) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()

    async def close(self) -> None:
        """Follow no more; every further call raises PlaneClosedError."""
        await self._life.close()


def _nobody(command: Command, result: Result) -> None:
    del command, result
