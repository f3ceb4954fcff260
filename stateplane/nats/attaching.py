"""Taking up the log: where we left it, or from its checkpoint; and beginning an epoch where one is due."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Protocol

import structlog
from nats.js import api

from stateplane.nats import checkpoints
from stateplane.nats.codec import Begin, Command
from stateplane.nats.fold import Counts, Fold
from stateplane.nats.follower import BrokenLogError, Follower, OtherLogError
from stateplane.nats.wire import Connection, created
from stateplane.schema import oldest_of

log = structlog.get_logger(__name__)

CATCH_UP_SECONDS = 30.0
"""For folding what the log holds beyond the checkpoint."""
TRIES = 3

AHEAD = 1000
"""How far above every epoch that we can see one begins that must hold for those who see more."""


class BeginMessage(Protocol):
    """Makes the message that begins an epoch."""

    def __call__(self, run: str, epoch: int, *, schema: int, lose: bool) -> bytes:
        """Encoded in that schema."""
        ...


class Attacher:
    """Remembers, over all connections, what was folded last."""

    def __init__(
        self,
        begin: BeginMessage,
        follower: Callable[[Connection, Fold], Follower],
        counts: Counts,
        *,
        schema: int,
    ) -> None:
        """``schema``: the newest that this program reads."""
        self._begin = begin
        self._follower = follower
        self._counts = counts
        self._schema = schema
        self._fold: Fold | None = None
        self._epoch = 0

    async def attach(self, connection: Connection, info: api.StreamInfo) -> Follower:
        """A follower that has folded all that the log holds, in an epoch of the server's present life."""
        life = connection.life(info)
        if self._fold is not None:
            self._epoch = max(self._epoch, self._fold.epoch)
        lost = ""
        following = None
        if self._fold is not None and self._fold.life == life:
            try:
                following = await self._resumed(connection, self._fold, info)
                self._counts.resumes += 1
            except OtherLogError:
                lost = f" lost {self._epoch}"
            except BrokenLogError as error:
                log.info("state plane's log is read anew", reason=str(error))
        if following is None:
            following = await self._loaded(connection, info, life)
        try:
            await self._live_in(connection, following, info, life, lost)
        except BaseException:
            await following.close()
            raise
        self._fold = following.fold
        return following

    async def _resumed(self, connection: Connection, fold: Fold, info: api.StreamInfo) -> Follower:
        if info.state.last_seq < fold.sequence:
            raise OtherLogError(f"the log ends at {info.state.last_seq}, we had folded {fold.sequence}")
        return await self._followed(connection, fold, info.state.last_seq)

    async def _followed(self, connection: Connection, fold: Fold, until: int) -> Follower:
        following = self._follower(connection, fold)
        try:
            await following.open()
            await following.reach(until, CATCH_UP_SECONDS)
        except BaseException:
            await following.close()
            raise
        return following

    async def _loaded(self, connection: Connection, info: api.StreamInfo, life: str) -> Follower:
        """Read it from the newest checkpoint on; where that is impossible, begin anew at its end."""
        self._counts.reloads += 1
        reason = ""
        for _ in range(TRIES):
            fold = await checkpoints.load(connection, info, schema=self._schema, counts=self._counts)
            try:
                return await self._followed(connection, fold, info.state.last_seq)
            except BrokenLogError as error:
                reason = str(error)
                info = await connection.info()
        self._counts.cuts += 1
        log.error("state plane's log cannot be read back to a checkpoint, beginning anew", reason=reason)
        last = await connection.last_command(self._schema)
        epoch = max(self._epoch, _epoch(last), _milliseconds(info)) + AHEAD
        # what was written last, everybody reads
        schema = max(oldest_of(self._schema), last.schema if last is not None else 0)
        run = f"{life} cut {secrets.token_hex(8)}"
        sequence = await connection.publish(self._begin(run, epoch, schema=schema, lose=True))
        fold = Fold(sequence=sequence - 1, newest=self._schema)
        following = await self._followed(connection, fold, sequence)
        await checkpoints.save(connection, following.fold, created(info), counts=self._counts)
        return following

    async def _live_in(
        self, connection: Connection, following: Follower, info: api.StreamInfo, life: str, lost: str
    ) -> None:
        """Begin an epoch if this life of the server has none, or a tail was lost in it that we had folded."""
        run = f"{life}{lost}"
        fold = following.fold
        if fold.life == life and (not lost or fold.run == run) and fold.epoch >= self._epoch:
            return
        if fold.life == life and not lost:
            run = f"{life} after {self._epoch}"
        epoch = max(self._epoch + 1, _milliseconds(info))
        sequence = await connection.publish(self._begin(run, epoch, schema=fold.writes(), lose=False))
        await following.reach(sequence, CATCH_UP_SECONDS)
        log.info("state plane begins an epoch", epoch=fold.epoch, server=connection.where)


def _epoch(command: Command | None) -> int:
    """The epoch that it speaks of; 0 where it tells none."""
    if command is None:
        return 0
    return command.body.epoch if isinstance(command.body, Begin) else command.epoch


def _milliseconds(info: api.StreamInfo) -> int:
    """The server's clock as its stream tells it, else ours: epochs rise even if all who knew the last one are gone."""
    last = info.created.timestamp() if info.created is not None else 0.0
    return round(max(last, time.time()) * 1000)
