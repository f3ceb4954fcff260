"""
What travels on NATS: normalised events, questions and answers, in msgpack.

Every record is an array that opens with the schema number. A reader takes its own schema and the one
before, ignores elements it does not know, and never raises: bytes that make no record come back as a
``Fault``, to be counted.

A block is told by its **sequence hash**, which stands for the whole prefix up to it; hence no parent is
sent. What a bridge announces is prefix-closed: a block is held only while every block before it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

SCHEMA = 1
OLDEST_SCHEMA = 1

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_EVENT_HASHES = 4_096
"""Applied without a pause, hence the bound: some milliseconds of the event loop."""
MAX_ANSWER_HASHES = 1_000_000
MAX_ANSWER_EVENTS = 65_536
MAX_NOTE = 200
TIERS = 3
"""0 device, 1 host, 2 disk."""

Count = Annotated[int, Meta(ge=0)]
Tier = Annotated[int, Meta(ge=0, le=TIERS - 1)]
EventHashes = Annotated[list[Count], Meta(max_length=MAX_EVENT_HASHES)]
Note = Annotated[str, Meta(max_length=MAX_NOTE)]
Kind = Literal["stored", "removed", "cleared", "beat"]
AnswerKind = Literal["events", "snapshot", "busy"]


class Epoch(NamedTuple):
    """
    One life of a source: nanoseconds since 1970 at which the bridge, and the engine as the bridge saw it,
    started.

    The bridge's start comes first, so that plain comparison orders epochs by age.
    """

    bridge: int
    engine: int


@dataclass(frozen=True, slots=True)
class Fault:
    """
    Bytes that are no record. ``reason`` is one of ``size``, ``schema``, ``malformed``: safe as a metric's
    label.
    """

    reason: Literal["size", "schema", "malformed"]


class Event(Struct, array_like=True, frozen=True):
    """
    One change of what a worker holds.

    ``stored`` and ``removed`` name blocks of one tier; ``cleared`` empties every tier. ``beat`` changes
    nothing and repeats the last sequence number, so that a lost last event is noticed and silence can be
    told from death. Numbers of an epoch rise by one from event to event; after a ``cleared`` the state is
    known whatever was missed before.
    """

    schema: Count
    bridge: Count
    engine: Count
    sequence: Count
    kind: Kind
    hashes: EventHashes = []
    tier: Tier = 0
    partial: bool = False
    """The bridge may know less than the engine holds: what it says is true, but not all."""
    note: Note = ""
    """Why this worker cannot be known, in plain words; empty when all is well."""

    @property
    def epoch(self) -> Epoch:
        """The life of the source that this event belongs to."""
        return Epoch(self.bridge, self.engine)


class Ask(Struct, array_like=True, frozen=True):
    """A replica's question: what follows number ``next`` - 1 of this epoch? Zeros: I know nothing."""

    schema: Count
    bridge: Count
    engine: Count
    next: Count

    @property
    def epoch(self) -> Epoch:
        """The epoch that the replica knows."""
        return Epoch(self.bridge, self.engine)


class Blocks(Struct, array_like=True, frozen=True):
    """Blocks of one tier inside a snapshot."""

    tier: Tier
    hashes: Annotated[list[Count], Meta(max_length=MAX_ANSWER_HASHES)]


class Answer(Struct, array_like=True, frozen=True):
    """
    One piece of a bridge's answer; pieces count from 0 and the last one says so.

    ``events`` holds encoded events that follow each other; ``snapshot`` the whole state as of ``sequence``;
    ``busy`` says that the bridge is itself rebuilding: ask again. Once all pieces are applied, the replica
    is at ``sequence``.
    """

    schema: Count
    bridge: Count
    engine: Count
    kind: AnswerKind
    sequence: Count
    piece: Count = 0
    last: bool = True
    partial: bool = False
    note: Note = ""
    events: Annotated[list[bytes], Meta(max_length=MAX_ANSWER_EVENTS)] = []
    blocks: Annotated[list[Blocks], Meta(max_length=MAX_ANSWER_EVENTS)] = []

    @property
    def epoch(self) -> Epoch:
        """The life of the source that this answer speaks of."""
        return Epoch(self.bridge, self.engine)


Record = TypeVar("Record", Event, Ask, Answer)

_ENCODER = msgspec.msgpack.Encoder()
_EVENT = msgspec.msgpack.Decoder(Event)
_ASK = msgspec.msgpack.Decoder(Ask)
_ANSWER = msgspec.msgpack.Decoder(Answer)
_HEAD = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode(record: Event | Ask | Answer) -> bytes:
    """The record in msgpack."""
    return _ENCODER.encode(record)


def decode_event(data: bytes) -> Event | Fault:
    """Read an event; never raises."""
    return _read(_EVENT, data)


def decode_ask(data: bytes) -> Ask | Fault:
    """Read a question; never raises."""
    return _read(_ASK, data)


def decode_answer(data: bytes) -> Answer | Fault:
    """Read a piece of an answer; never raises."""
    return _read(_ANSWER, data)


def _read(decoder: msgspec.msgpack.Decoder[Record], data: bytes) -> Record | Fault:
    if len(data) > MAX_MESSAGE_BYTES:
        return Fault("size")
    try:
        record = decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return Fault("schema") if _is_newer(data) else Fault("malformed")
    return record if OLDEST_SCHEMA <= record.schema <= SCHEMA else Fault("schema")


def _is_newer(data: bytes) -> bool:
    """Whether bytes that do not fit are a record of a schema that we do not know yet."""
    try:
        schema = msgspec.msgpack.decode(_HEAD.decode(data)[0], type=int)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, IndexError):
        return False
    return schema > SCHEMA
