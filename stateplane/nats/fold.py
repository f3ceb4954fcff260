"""The log, folded: the ledger after each of its commands. Pure but for the time since the last one."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import structlog

from stateplane import checks
from stateplane.booking import SCHEMA, Beat, Change, Gap, Outcome, Owner, Version
from stateplane.errors import PlaneCorruptError, PlaneEpochError, StatePlaneError
from stateplane.ledger import Ledger
from stateplane.nats import codec
from stateplane.nats.codec import Command, ForeignError
from stateplane.schema import written
from stateplane.servingtime import milliseconds

log = structlog.get_logger(__name__)

REMEMBERED = 4096
"""Messages of which the fold remembers what it came to, to compare it with what others came to."""
HISTORY = 16_384
"""Changes kept for watchers; one that is further behind gets a ``Gap``."""

Result = Outcome | Beat | StatePlaneError | None
"""What a command's writer is answered."""


@dataclass(slots=True)
class Counts:
    """What happened to this plane's calls and to its log."""

    calls: int = 0
    connects: int = 0
    timeouts: int = 0
    disconnects: int = 0
    refused: int = 0
    epochs: int = 0
    gaps: int = 0
    reaped: int = 0
    lapsed: int = 0
    rebased: int = 0
    folded: int = 0
    foreign: int = 0
    faults: int = 0
    resumes: int = 0
    reloads: int = 0
    cuts: int = 0
    checkpoints: int = 0
    checkpoints_failed: int = 0
    diverged: int = 0
    schema: int = 0  # of the commands that are written


class Fold:
    """The ledger as of one message of the log."""

    def __init__(
        self,
        *,
        sequence: int = 0,
        stamp: int | None = None,
        run: str = "",
        schema: int = 0,
        ledger: Ledger | None = None,
        newest: int = SCHEMA,
    ) -> None:
        self.newest = newest
        """The newest schema that this program reads."""
        self.sequence = sequence
        """The last message that is in it."""
        self.stamp = stamp
        """The server's time of that message, nanoseconds; None: not known."""
        self.run = run
        """The server's life that the epoch is of."""
        self.schema = schema
        """The newest of its commands: what was once written, all read, and it is written for good."""
        self.ledger = ledger
        """None before the first epoch."""
        self._at = 0
        self._told = time.monotonic()
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._numbers: deque[int] = deque(maxlen=REMEMBERED)
        """The ledger's number after each of the last messages; the last one is of ``sequence``."""

    @property
    def life(self) -> str:
        """The server's life, without what made a new epoch in it necessary."""
        return self.run.partition(" ")[0]

    @property
    def epoch(self) -> int:
        """The epoch; 0 before the first."""
        return self.ledger.epoch if self.ledger is not None else 0

    def now(self) -> int:
        """The server's clock as far as it can be told between two messages, milliseconds."""
        return self._at + milliseconds(time.monotonic() - self._told)

    def writes(self) -> int:
        """The schema that the next command is written in."""
        if self.schema >= self.newest:
            return self.schema
        members = self.ledger.members() if self.ledger is not None else ()
        return max(self.schema, written(members, newest=self.newest))

    def since(self, after: Version) -> list[Change]:
        """The kept changes after that version, or a ``Gap``."""
        ledger = self.ledger
        if ledger is None or after.epoch != ledger.epoch:
            return [Gap(f"the plane is in epoch {self.epoch}, not {after.epoch}")]
        missing = ledger.number - after.number
        if missing == 0:
            return []
        if missing < 0 or missing > len(self._history):
            return [Gap(f"changes {after.number + 1} to {ledger.number} are no longer kept")]
        return [self._history[n] for n in range(len(self._history) - missing, len(self._history))]

    def forget(self) -> None:
        """Drop the kept changes."""
        self._history.clear()

    def apply(
        self, sequence: int, stamp: int, data: bytes, *, now: int, counts: Counts
    ) -> tuple[Command, Result] | None:
        """Fold the next message; None if it is none of ours. Raises PlaneRefusedError for a schema not read here."""
        try:
            command = codec.command_of(data, self.newest)
        except ForeignError as error:
            counts.foreign += 1
            if counts.foreign == 1:
                log.warning(
                    "the plane's log holds a message that is none of ours",
                    sequence=sequence,
                    reason=str(error),
                )
            self._step(sequence, stamp, now)
            return None
        self.schema = max(self.schema, command.schema)
        result = self._judged(command, now, counts)
        self._step(sequence, stamp, now)
        counts.folded += 1
        if self.ledger is not None:
            self._history.extend(self.ledger.take())
        return command, result

    def _step(self, sequence: int, stamp: int, now: int) -> None:
        self.sequence, self.stamp = sequence, stamp
        self._numbers.append(self.ledger.number if self.ledger is not None else 0)
        self._at, self._told = now, time.monotonic()

    def _judged(self, command: Command, now: int, counts: Counts) -> Result:
        """What the ledger says. Every replica comes to the same, so that a fault is the same everywhere too."""
        try:
            if isinstance(command.body, codec.Begin):
                self._begin(command, command.body, now)
                return None
            ledger = self.ledger
            joining = isinstance(command.body, codec.Join)
            if ledger is None or (command.epoch != ledger.epoch and not joining):
                return PlaneEpochError(f"the plane is in epoch {self.epoch}, not {command.epoch}")
            self._rule(ledger, command)
            if isinstance(command.body, codec.Heartbeat):
                self._compare(command, command.body, counts)
            return _act(ledger, command, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, every replica must get past it, and alike
            counts.faults += 1
            log.warning("a command of the plane's log cannot be carried out", reason=repr(error)[:200])
            return PlaneCorruptError(
                f"{command.origin}/{command.number}", "the command cannot be carried out"
            )

    def _compare(self, command: Command, beat: codec.Heartbeat, counts: Counts) -> None:
        """The same log must come to the same everywhere; where it does not, versions differ, and people must know."""
        back = self.sequence - beat.sequence
        if 0 <= back < len(self._numbers) and self._numbers[-1 - back] != beat.change:
            counts.diverged += 1
            log.error(
                "replicas come to different bookings from the same log: run one version of the picker",
                other=str(Owner(*command.owner)),
                sequence=beat.sequence,
                ours=self._numbers[-1 - back],
                theirs=beat.change,
            )

    def _begin(self, command: Command, begin: codec.Begin, now: int) -> None:
        if begin.run == self.run:
            return
        self.run = begin.run
        self._history.clear()
        if self.ledger is None or begin.lose:
            # exactly as told: who begins to read here knows no older epoch
            self.ledger = Ledger(command.times, now=now, epoch=begin.epoch)
            return
        self.ledger.epoch = max(begin.epoch, self.ledger.epoch + 1) - 1
        self.ledger.restart(now=now, lose=False)

    @staticmethod
    def _rule(ledger: Ledger, command: Command) -> None:
        rules = command.times
        if rules != ledger.rules:
            ledger.rules = rules
            ledger.time.lease, ledger.time.heartbeat = (
                milliseconds(rules.lease),
                milliseconds(rules.heartbeat),
            )


def _act(ledger: Ledger, command: Command, now: int) -> Result:
    owner = Owner(*command.owner)
    match command.body:
        case codec.Join(info=info, limit=limit):
            return ledger.join(owner, info, now=now, limit=limit)
        case codec.Heartbeat(info=info, limit=limit):
            return ledger.beat(owner, info, now=now, limit=limit)
        case codec.Reap(limit=limit):
            reaped = ledger.reap(now=now, limit=limit)
            return Beat(version=ledger.version, members=(), reaped=reaped)
        case codec.Rebook():
            return ledger.rebooked(owner, now=now)
        case codec.Leave():
            ledger.leave(owner, now=now)
            return None
        case codec.Book(booking=booking):
            return ledger.book(owner, checks.booking(booking), now=now)
        case _:
            return _act_on(ledger, owner, command, now)


def _act_on(ledger: Ledger, owner: Owner, command: Command, now: int) -> Result:
    match command.body:
        case codec.Move(id=id_, term=term, op=op, worker=worker, amount=amount):
            checks.operation(id_, op)
            checks.amount(amount)
            return ledger.move(owner, id_, term=term, op=op, worker=worker, amount=amount, now=now)
        case codec.Adjust(id=id_, term=term, op=op, amount=amount):
            checks.operation(id_, op)
            checks.amount(amount)
            return ledger.adjust(owner, id_, term=term, op=op, amount=amount, now=now)
        case codec.Drain(id=id_, term=term, op=op, cause=cause, seconds=seconds):
            checks.operation(id_, op)
            return ledger.drain(owner, id_, term=term, op=op, cause=cause, seconds=seconds, now=now)
        case codec.Reclaim(id=id_):
            return ledger.reclaim(owner, id_, now=now)
        case codec.Release(id=id_, cause=cause, term=term_judged):
            checks.end_cause(cause, term_judged)
            return ledger.release(id_, cause, term=term_judged, now=now)
    raise ValueError(f"a command of the unknown kind {type(command.body).__name__}")
