"""One question to one bridge: send it, gather the pieces of the answer, or say why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import nats.errors
from nats.aio.subscription import Subscription

from picker.events.link import Link
from picker.events.records import Answer, Ask, Fault, decode_answer, encode

MAX_BLOCKS: Final = 4_000_000
"""Most blocks of one worker in a snapshot; beyond it the worker is not followed."""
MAX_PIECES: Final = 65_536
INBOX_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Silence:
    """No usable answer, and why."""

    reason: str
    reached: bool = False
    """Whether some bridge is there: it answered, if only with something that is of no use."""


async def question(link: Link, subject: str, ask: Ask, *, timeout: float) -> list[Answer] | Silence:
    """Ask, and wait for every piece of the answer; each may take ``timeout`` seconds after the one before."""
    opened = await link.inbox(INBOX_BYTES)
    if opened is None:
        return Silence("nats is away")
    inbox, subscription = opened
    try:
        if not await link.send(subject, encode(ask), reply=inbox):
            return Silence("nats is away")
        return await _pieces(subscription, timeout)
    finally:
        await link.leave(subscription)


async def _pieces(subscription: Subscription, timeout: float) -> list[Answer] | Silence:
    pieces: list[Answer] = []
    blocks = 0
    while len(pieces) < MAX_PIECES:
        try:
            message = await subscription.next_msg(timeout=timeout)
        except (nats.errors.Error, TimeoutError):
            return Silence(f"no answer within {timeout:g} s", reached=bool(pieces))
        if message.headers and message.headers.get("Status") == "503":
            return Silence("no bridge listens for this worker")
        piece = decode_answer(message.data)
        if isinstance(piece, Fault):
            return Silence(f"an answer that cannot be read: {piece.reason}", reached=True)
        if piece.kind == "busy":
            return Silence("the bridge is rebuilding", reached=True)
        if piece.piece != len(pieces) or not _continues(pieces, piece):
            return Silence("pieces of an answer are missing", reached=True)
        pieces.append(piece)
        blocks += sum(len(part.hashes) for part in piece.blocks)
        if blocks > MAX_BLOCKS:
            return Silence(f"a snapshot of more than {MAX_BLOCKS} blocks", reached=True)
        if piece.last:
            return pieces
    return Silence(f"an answer of more than {MAX_PIECES} pieces", reached=True)


def _continues(pieces: list[Answer], piece: Answer) -> bool:
    if not pieces:
        return True
    first = pieces[0]
    return (piece.epoch, piece.kind, piece.sequence) == (first.epoch, first.kind, first.sequence)
