"""The shapes of what replicas tell one another. Whatever comes from outside is held to them, and to their bounds."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import orjson

Word = Annotated[str, msgspec.Meta(max_length=300)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]

SUMMARY_BYTES = 128 * 1024
WHY_BYTES = 1024 * 1024
STATUS_BYTES = 8 * 1024 * 1024
"""Most bytes of an answer."""


class OddAnswerError(ValueError):
    """An answer that has not the shape it should have."""


class PlaneSummary(msgspec.Struct, frozen=True):
    """How a replica stands to the state plane."""

    mode: Word
    state: Word
    """``healthy``, ``slow`` or ``away``."""
    joined: bool
    epoch: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    number: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    lag_seconds: Seconds = 0.0


class EventsSummary(msgspec.Struct, frozen=True):
    """How it stands to the KV events."""

    state: Word
    """``off``, ``healthy`` or ``away``."""
    unrecovered: Count = 0
    """Workers whose part of the index is not known yet."""


class WorkersSummary(msgspec.Struct, frozen=True):
    """Its workers."""

    known: Count
    reporting: Count = 0


class BookingsSummary(msgspec.Struct, frozen=True):
    """The bookings in its view."""

    own: Count = 0
    foreign: Count = 0
    draining: Count = 0


class Summary(msgspec.Struct, frozen=True):
    """One replica in short: what tells whether all of them agree."""

    name: Word
    incarnation: Word
    pool: Word
    version: Word
    state: Word
    """``starting``, ``ready`` or ``stopping``."""
    settings_digest: Word
    plane: PlaneSummary
    events: EventsSummary
    workers: WorkersSummary
    bookings: BookingsSummary = BookingsSummary()
    degraded: Annotated[list[Word], msgspec.Meta(max_length=32)] = []
    members: Annotated[list[Word], msgspec.Meta(max_length=1024)] = []
    """Names of the replicas that the plane knows, this one included."""
    uptime_seconds: Seconds = 0.0
    index_entries: Count = 0
    open_streams: Count = 0
    requests_under_way: Count = 0


class Why(msgspec.Struct, frozen=True):
    """The decisions that a replica remembers under an id."""

    decisions: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=64)]


def read_json(body: bytes) -> Any:
    """The value of a JSON text that can be told on as JSON.

    Raises:
        OddAnswerError: it is none, or nests too deep.
    """
    try:
        value = orjson.loads(body)
        orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError) as error:
        raise OddAnswerError(f"no JSON: {error}"[:200]) from None
    return value


def read_summary(body: bytes) -> Summary:
    """A replica's summary. Raises `OddAnswerError`."""
    try:
        return msgspec.convert(read_json(body), Summary)
    except (msgspec.ValidationError, RecursionError) as error:
        raise OddAnswerError(str(error)[:200]) from None


def read_why(body: bytes) -> list[dict[str, Any]]:
    """A replica's decisions. Raises `OddAnswerError`."""
    try:
        return msgspec.convert(read_json(body), Why).decisions
    except (msgspec.ValidationError, RecursionError) as error:
        raise OddAnswerError(str(error)[:200]) from None


def read_status(body: bytes) -> dict[str, Any]:
    """A replica's whole status: a JSON object that names it. Raises `OddAnswerError`."""
    value = read_json(body)
    replica = value.get("replica") if isinstance(value, dict) else None
    if not isinstance(replica, dict) or not isinstance(replica.get("name"), str):
        raise OddAnswerError("no status of a replica")
    return dict(value)


def shown(summary: Summary) -> dict[str, Any]:
    """A summary as JSON values."""
    value: dict[str, Any] = msgspec.to_builtins(summary)
    return value
