"""The ledger as it was at one message of the log, so that a replica that comes later need not read the whole of it.

A checkpoint is several keys ``c.<id>.<n>``, named by ``head``, which changes by compare-and-set: of two writers one
wins, and a head never goes back. Any key that is none of these is left alone.
"""

from __future__ import annotations

import asyncio
import secrets

import structlog
from nats.js import api

from stateplane.ledger import Ledger
from stateplane.nats import codec
from stateplane.nats.codec import ForeignError, Head
from stateplane.nats.fold import Counts, Fold
from stateplane.nats.translation import ConflictError, MissingError
from stateplane.nats.wire import Connection, created

log = structlog.get_logger(__name__)

PIECE = 512 * 1024
"""Bytes of one piece; a server's messages are a megabyte at most by default."""
TRIES = 3
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"


async def load(connection: Connection, info: api.StreamInfo, *, schema: int, counts: Counts) -> Fold:
    """The fold of the newest checkpoint of this log, an empty one where there is none. Raises StatePlaneError.

    ``schema`` is the newest that this program reads.
    """
    for _ in range(TRIES):
        head, _ = await _head(connection, schema, counts)
        if head is None or head.created != created(info) or head.sequence > info.state.last_seq:
            return Fold(newest=schema)
        try:
            pieces = [await _get(connection, f"c.{head.id}.{n}") for n in range(head.pieces)]
        except MissingError:
            continue
        try:
            state = codec.state_of(b"".join(data for data, _ in pieces))
        except ForeignError as error:
            counts.foreign += 1
            log.warning("the plane's checkpoint does not decode, reading the whole log", reason=str(error))
            return Fold(newest=schema)
        return Fold(
            sequence=head.sequence,
            stamp=head.stamp,
            run=head.run,
            schema=head.schema,
            ledger=Ledger.of(state),
            newest=schema,
        )
    return Fold(newest=schema)


async def save(connection: Connection, fold: Fold, log_created: str, *, counts: Counts) -> int:
    """Store the fold as it is now; the sequence of the newest checkpoint, ours or another's."""
    assert fold.ledger is not None
    sequence, stamp, run, schema = fold.sequence, fold.stamp, fold.run, fold.writes()
    state = codec.pack_state(fold.ledger.state())
    head, revision = await _head(connection, fold.newest, counts)
    if head is not None and head.created == log_created and head.sequence >= sequence:
        return head.sequence
    id_ = f"{sequence}-{secrets.token_hex(4)}"
    pieces = [state[at : at + PIECE] for at in range(0, len(state), PIECE)]
    for n, piece in enumerate(pieces):
        await _put(connection, f"c.{id_}.{n}", piece, expected=0)
        await asyncio.sleep(0)
    new = Head(schema, log_created, sequence, stamp or 0, run, id_, len(pieces))
    try:
        await _put(connection, "head", codec.pack_head(new), expected=revision)
    except ConflictError:
        await _purge(connection, id_)
        return 0
    counts.checkpoints += 1
    await _clean(connection, id_, sequence)
    return sequence


async def newest(connection: Connection, log_created: str, *, schema: int, counts: Counts) -> int:
    """The message that the newest checkpoint of this log is of; 0: there is none."""
    head, _ = await _head(connection, schema, counts)
    return head.sequence if head is not None and head.created == log_created else 0


async def _head(connection: Connection, schema: int, counts: Counts) -> tuple[Head | None, int]:
    try:
        data, revision = await _get(connection, "head")
    except MissingError:
        return None, 0
    try:
        return codec.head_of(data, schema), revision
    except ForeignError as error:
        counts.foreign += 1
        log.warning("the plane's bucket holds a head that is none of ours", reason=str(error))
        return None, revision


async def _get(connection: Connection, key: str) -> tuple[bytes, int]:
    names = connection.names
    found = await connection.ask(connection.js.get_last_msg(names.store, names.key(key)))
    return found.data or b"", found.seq or 0


async def _put(connection: Connection, key: str, data: bytes, *, expected: int) -> None:
    subject, headers = connection.names.key(key), {_EXPECTED: str(expected)}
    await connection.ask(connection.js.publish(subject, data, timeout=connection.timeout, headers=headers))


async def _purge(connection: Connection, id_: str) -> None:
    names = connection.names
    await connection.ask(connection.js.purge_stream(names.store, subject=names.key(f"c.{id_}.*")))


async def _clean(connection: Connection, kept: str, sequence: int) -> None:
    """Remove what older checkpoints left; writers still at work have a higher sequence or lose."""
    names = connection.names
    info = await connection.ask(connection.js.stream_info(names.store, subjects_filter=names.key("c.>")))
    subjects = getattr(info.state, "subjects", None) or {}
    for id_ in {subject.rsplit(".", 2)[1] for subject in subjects}:
        number = id_.partition("-")[0]
        if id_ != kept and number.isdigit() and int(number) <= sequence:
            await _purge(connection, id_)
