"""Commands of the log and checkpoints of the ledger, as they are stored.

Both are msgpack arrays that begin with the number of their schema, so that any version can tell a newer one.
"""

from __future__ import annotations

import msgspec

from stateplane.booking import SCHEMA, Amount, Booking, Cause, Owner, Rules
from stateplane.errors import PlaneRefusedError
from stateplane.ledger import LedgerState
from stateplane.schema import readable, unreadable


class Begin(msgspec.Struct, array_like=True, frozen=True, tag="begin"):
    """A life of the server begins, and with it an epoch; heard again in the same life it does nothing."""

    run: str
    epoch: int
    """The new epoch; where nothing is lost it is above the last one in any case."""
    lose: bool
    """Whether what came before is void: ends and leases too."""


class Join(msgspec.Struct, array_like=True, frozen=True, tag="join"):
    """Become a member."""

    info: dict[str, str]
    limit: int


class Heartbeat(msgspec.Struct, array_like=True, frozen=True, tag="beat"):
    """Renew the lease."""

    info: dict[str, str]
    limit: int
    sequence: int
    """The message up to which its writer had folded the log."""
    change: int
    """The number of the last change that it had come to by then: everybody must have come to the same."""


class Reap(msgspec.Struct, array_like=True, frozen=True, tag="reap"):
    """One more slice of what is due."""

    limit: int


class Rebook(msgspec.Struct, array_like=True, frozen=True, tag="rebooked"):
    """All live bookings of the owner stand."""


class Leave(msgspec.Struct, array_like=True, frozen=True, tag="leave"):
    """The owner goes in good order."""


class Book(msgspec.Struct, array_like=True, frozen=True, tag="book"):
    """Let it stand."""

    booking: Booking


class Move(msgspec.Struct, array_like=True, frozen=True, tag="move"):
    """Another endpoint served."""

    id: str
    term: int
    op: int
    worker: str
    amount: Amount


class Adjust(msgspec.Struct, array_like=True, frozen=True, tag="adjust"):
    """It occupies so much."""

    id: str
    term: int
    op: int
    amount: Amount


class Drain(msgspec.Struct, array_like=True, frozen=True, tag="drain"):
    """Neither its end nor its life is proven."""

    id: str
    term: int
    op: int
    cause: Cause
    seconds: float | None


class Reclaim(msgspec.Struct, array_like=True, frozen=True, tag="reclaim"):
    """Proof of life."""

    id: str


class Release(msgspec.Struct, array_like=True, frozen=True, tag="release"):
    """It ended."""

    id: str
    cause: Cause
    term: int | None


Body = Begin | Join | Heartbeat | Reap | Rebook | Leave | Book | Move | Adjust | Drain | Reclaim | Release


class Command(msgspec.Struct, array_like=True, frozen=True):
    """One message of the log."""

    schema: int
    origin: str
    """The plane that wrote it, by a name of its own."""
    number: int
    """The how-manieth of that plane, by which it knows its own answer."""
    epoch: int
    """The epoch that its writer joined; 0 in one that needs none."""
    owner: tuple[str, str]
    rules: tuple[float, float, float, float | None, float]
    """The times of the writer's pool, in the order of ``Rules``."""
    body: Body

    @property
    def times(self) -> Rules:
        """The rules that it is to be judged by."""
        return Rules(*self.rules)


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Which checkpoint holds, and of what."""

    schema: int
    created: str
    """When the log that it is of was created."""
    sequence: int
    stamp: int
    """The server's time of the message with that sequence, nanoseconds: by it the log is known again."""
    run: str
    id: str
    pieces: int


class _Any(msgspec.Struct, array_like=True, frozen=True):
    schema: int


_COMMAND = msgspec.msgpack.Decoder(Command)
_HEAD = msgspec.msgpack.Decoder(Head)
_ANY = msgspec.msgpack.Decoder(_Any)
_STATE = msgspec.msgpack.Decoder(LedgerState)
_ENCODER = msgspec.msgpack.Encoder()


class ForeignError(Exception):
    """What stands there is none of ours."""


def pack(command: Command) -> bytes:
    """A command as a message."""
    return _ENCODER.encode(command)


def command_of(data: bytes, newest: int = SCHEMA) -> Command:
    """The command in a message. Raises ForeignError, or PlaneRefusedError for a schema that is not read here."""
    try:
        command = _COMMAND.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        _check_schema(data, newest)
        raise ForeignError(str(error)[:200]) from error
    _check(command.schema, newest)
    return command


def pack_head(head: Head) -> bytes:
    """A head as a value."""
    return _ENCODER.encode(head)


def head_of(data: bytes, newest: int = SCHEMA) -> Head:
    """The head in a value. Raises ForeignError, or PlaneRefusedError for a schema that is not read here."""
    try:
        head = _HEAD.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        _check_schema(data, newest)
        raise ForeignError(str(error)[:200]) from error
    _check(head.schema, newest)
    return head


def pack_state(state: LedgerState) -> bytes:
    """A ledger as bytes."""
    return _ENCODER.encode(state)


def state_of(data: bytes) -> LedgerState:
    """The ledger in those bytes. Raises ForeignError."""
    try:
        return _STATE.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ForeignError(str(error)[:200]) from error


def owner_pair(owner: Owner) -> tuple[str, str]:
    """An owner as it is stored."""
    return owner.name, owner.incarnation


def times_of(rules: Rules) -> tuple[float, float, float, float | None, float]:
    """Rules as they are stored."""
    return rules.lease, rules.heartbeat, rules.drain, rules.superseded_drain, rules.tombstone


def _check_schema(data: bytes, newest: int) -> None:
    try:
        schema = _ANY.decode(data).schema
    except (msgspec.MsgspecError, ValueError):
        return
    _check(schema, newest)


def _check(schema: int, newest: int) -> None:
    if not readable(schema, newest=newest):
        raise PlaneRefusedError(unreadable(schema, newest=newest))
