"""Records, replies and changes as they stand on the server, and our values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from stateplane.booking import (
    SCHEMA,
    Amount,
    Booked,
    Booking,
    Candidate,
    Cause,
    Change,
    Gone,
    Member,
    Outcome,
    Owner,
    OwnerLapsed,
    Rebooked,
    State,
    Status,
    Terms,
    Version,
)
from stateplane.errors import PlaneCorruptError, PlaneRefusedError
from stateplane.schema import readable, unreadable


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A booking as it is stored: the fields that ``prelude.lua`` numbers, in its order."""

    schema: int
    key: str
    worker: str
    owner: str
    lease: int
    tokens: int
    blocks: int
    requests: int
    attempt: int
    term: int
    op: int
    state: int
    cause: str
    superseded: int
    outrun: int
    deadline: int
    via: int


class _Any(msgspec.Struct, array_like=True, frozen=True):
    schema: int


_encode = msgspec.msgpack.Encoder().encode
_RECORD = msgspec.msgpack.Decoder(Record)
_ANY = msgspec.msgpack.Decoder(_Any)
_INFO = msgspec.json.Decoder(dict[str, str])
_STATES = (State.ACTIVE, State.DRAINING)
_CAUSES = {cause.value: cause for cause in Cause}
_STATUSES = {status.value.encode(): status for status in Status}
"""By their words: looking one up costs a fifth of what making it does."""


def owner_token(owner: Owner) -> str:
    """An owner as one string; neither name holds a NUL."""
    return f"{owner.name}\0{owner.incarnation}"


def owner_of(token: str, key: str) -> Owner:
    """The owner that a token names."""
    owner = _owner(token)
    if owner is None:
        raise PlaneCorruptError(key, "an owner's name is not one of ours")
    return owner


@lru_cache(maxsize=1_024)  # a pool has few, and each is named in every record
def _owner(token: str) -> Owner | None:
    name, separator, incarnation = token.partition("\0")
    return Owner(name, incarnation) if separator else None


def text_of(raw: bytes, key: str) -> str:
    """UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise PlaneCorruptError(key, "a name is not UTF-8") from error


def pack(booking: Booking, owner: str, schema: int) -> bytes:
    """A booking that is handed in, to be kept in that schema: a `Record`."""
    amount = booking.amount
    return _encode(
        (
            schema, booking.key, booking.worker, owner, 0, amount.prefill_tokens, amount.blocks, amount.requests,
            booking.attempt, booking.term, booking.op, _STATES.index(booking.state),
            booking.cause.value if booking.cause else "", int(booking.superseded), int(booking.outrun), 0, -1,
        )
    )  # fmt: skip


def record_of(raw: bytes, key: str, newest: int = SCHEMA) -> Record:
    """A stored record. Raises PlaneCorruptError, PlaneRefusedError for one of a schema that is not read here."""
    try:
        record = _RECORD.decode(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        _check_schema(_schema_of(raw), newest)
        raise PlaneCorruptError(key, "a stored booking does not decode") from error
    _check_schema(record.schema, newest)
    if not record.worker:
        raise PlaneCorruptError(key, "a stored booking names no worker")
    return record


def _schema_of(raw: bytes) -> int:
    """The number that a record of any schema begins with; ours where there is none."""
    try:
        return _ANY.decode(raw).schema
    except (msgspec.MsgspecError, ValueError):
        return SCHEMA


def _check_schema(schema: int, newest: int) -> None:
    if not readable(schema, newest=newest):
        raise PlaneRefusedError(unreadable(schema, newest=newest))


def booking_of(booking_id: str, record: Record, left_ms: int) -> Booking:
    """The booking that a record holds; ``left_ms`` until its drain deadline, if it drains."""
    try:
        state = _STATES[record.state]
        cause = _CAUSES[record.cause] if record.cause else None
    except (KeyError, IndexError) as error:
        raise PlaneCorruptError(booking_id, "a stored booking has an unknown state or cause") from error
    return Booking(
        booking_id, record.key, record.worker, owner_of(record.owner, booking_id),
        Amount(record.tokens, record.blocks, record.requests), record.attempt, record.term, record.op, state, cause,
        bool(record.superseded), None if state is State.ACTIVE else left_ms / 1000, bool(record.outrun),
    )  # fmt: skip


@lru_cache(maxsize=2_048)
def told_booking(booking_id: str, raw: bytes, left_ms: int, newest: int = SCHEMA) -> Booking:
    """The booking that an answer or a change holds. Raises as `record_of` does.

    Of an own booking the feed brings soon what an answer told: the same bytes, and then the same object.
    """
    return booking_of(booking_id, record_of(raw, booking_id, newest), left_ms)


def version_of(raw: bytes) -> Version:
    """``<epoch>-<number>``."""
    epoch, _, number = raw.partition(b"-")
    return Version(int(epoch), int(number))


def outcome_of(booking_id: str, reply: Sequence[bytes], newest: int = SCHEMA) -> Outcome:
    """What an operation answered."""
    status, raw, left, cause, superseded, version = reply
    return Outcome(
        status=_STATUSES.get(status) or Status(status.decode()),
        booking=told_booking(booking_id, raw, int(left), newest) if raw else None,
        cause=Cause(cause.decode()) if cause else None,
        superseded=(text_of(superseded, booking_id),) if superseded else (),
        version=version_of(version) if version else None,
    )


def members_of(flat: Sequence[bytes], epoch: int, key: str) -> tuple[Member, ...]:
    """The owners' hash."""
    members = []
    for token, value in zip(flat[::2], flat[1::2], strict=True):
        try:
            _, rebooked, raw = value.split(b" ", 2)
            info = _INFO.decode(raw)
            members.append(Member(owner_of(token.decode(), key), info, int(rebooked) == epoch))
        except (ValueError, msgspec.MsgspecError) as error:
            raise PlaneCorruptError(key, "a member's entry does not decode") from error
    return tuple(members)


def lapses_of(flat: Sequence[bytes], key: str) -> dict[int, tuple[int, Cause]]:
    """The lapses' hash: lease -> deadline, cause."""
    lapses = {}
    for lease, value in zip(flat[::2], flat[1::2], strict=True):
        try:
            deadline, cause = value.decode().split(" ")
            lapses[int(lease)] = (int(deadline), Cause(cause))
        except ValueError as error:
            raise PlaneCorruptError(key, "a lapse does not decode") from error
    return lapses


def epoch_of(raw: bytes | None, key: str) -> int | None:
    """The epoch as the plane keeps it; None where there is none."""
    try:
        return None if raw is None else int(raw)
    except ValueError as error:
        raise PlaneCorruptError(key, "the epoch is no number") from error


def change_of(
    entry_id: bytes, fields: Sequence[bytes], newest: int = SCHEMA, version: Version | None = None
) -> Change | None:
    """One entry of the stream; None for the one that begins an epoch. ``version`` is its id's, if it was read already.

    Raises PlaneCorruptError, PlaneRefusedError for one of a schema that is not read here.
    """
    version = version_of(entry_id) if version is None else version
    key = f"stream entry {entry_id.decode()}"
    kind, subject = fields[0][:1], text_of(fields[1], key)
    told = dict(zip(fields[2::2], fields[3::2], strict=True))
    try:
        _check_schema(int(fields[0][1:]), newest)
        if kind == b"b":
            return Booked(version, told_booking(subject, told[b"r"], int(told[b"d"]), newest))
        if kind == b"g":
            return Gone(version, subject, Cause(told[b"c"].decode()))
        if kind == b"l":
            cause = Cause(told[b"c"].decode())
            return OwnerLapsed(version, owner_of(subject, key), int(told[b"d"]) / 1000, cause)
        if kind == b"k":
            return Rebooked(version, owner_of(subject, key))
    except (ValueError, KeyError) as error:
        raise PlaneCorruptError(key, "a change does not decode") from error
    if kind == b"e":
        return None
    raise PlaneCorruptError(key, f"a change of the unknown kind {kind!r}")


def pack_choice(candidates: Sequence[Candidate], terms: Terms) -> tuple[bytes, bytes]:
    """Candidates and weights for ``select.lua``."""
    numbers: list[float] = []
    for one in candidates:
        amount = one.amount
        numbers += (float(one.base), amount.prefill_tokens, amount.blocks, amount.requests, one.max_requests)
    weights = (float(terms.per_token), float(terms.per_block), float(terms.per_request))
    offered = ([one.worker for one in candidates], numbers)
    return msgspec.msgpack.encode(offered), msgspec.msgpack.encode(weights)


def amounts_of(flat: Sequence[bytes], key: str) -> dict[str, Amount]:
    """The sums' hash."""
    sums = {}
    for worker, value in zip(flat[::2], flat[1::2], strict=True):
        try:
            tokens, blocks, requests = map(int, value.split(b" "))
        except ValueError as error:
            raise PlaneCorruptError(key, "a sum does not decode") from error
        sums[text_of(worker, key)] = Amount(tokens, blocks, requests)
    return sums
