"""One question to one bridge: send it, gather the pieces of the answer, or say why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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
        return await _pieces(link, subscription, timeout)
    finally:
        await link.leave(subscription)


def gathered(messages: Iterable[bytes]) -> list[Answer] | Silence:
    """The pieces of an answer given inside this process."""
    gathering = _Gathering()
    for message in messages:
        done = gathering.take(message)
        if done is not None:
            return done
    return Silence("pieces of an answer are missing", reached=True)


async def _pieces(link: Link, subscription: Subscription, timeout: float) -> list[Answer] | Silence:
    gathering = _Gathering()
    while True:
        message = await link.hear(subscription, timeout)
        if message is None:
            return Silence(f"no answer within {timeout:g} s", reached=bool(gathering.pieces))
        if message.headers and message.headers.get("Status") == "503":
            return Silence("no bridge listens for this worker")
        done = gathering.take(message.data)
        if done is not None:
            return done


class _Gathering:
    """The pieces of one answer, until they are all there or make no answer."""

    def __init__(self) -> None:
        self.pieces: list[Answer] = []
        self._blocks = 0

    def take(self, message: bytes) -> list[Answer] | Silence | None:
        """One message; what the answer is, once that is known."""
        piece = decode_answer(message)
        if isinstance(piece, Fault):
            return Silence(f"an answer that cannot be read: {piece.reason}", reached=True)
        if piece.kind == "busy":
            return Silence("the bridge is rebuilding", reached=True)
        if piece.piece != len(self.pieces) or not _continues(self.pieces, piece):
            return Silence("pieces of an answer are missing", reached=True)
        self.pieces.append(piece)
        self._blocks += sum(len(part.hashes) for part in piece.blocks)
        if self._blocks > MAX_BLOCKS:
            return Silence(f"a snapshot of more than {MAX_BLOCKS} blocks", reached=True)
        if piece.last:
            return self.pieces
        if len(self.pieces) >= MAX_PIECES:
            return Silence(f"an answer of more than {MAX_PIECES} pieces", reached=True)
        return None


def _continues(pieces: list[Answer], piece: Answer) -> bool:
    if not pieces:
        return True
    first = pieces[0]
    return (piece.epoch, piece.kind, piece.sequence) == (first.epoch, first.kind, first.sequence)
