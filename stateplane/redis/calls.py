"""One command, one reply: what is done with a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

Argument = str | bytes | int | float


@dataclass(slots=True)
class Counts:
    """What happened to this plane's calls."""

    calls: int = 0
    batches: int = 0
    connects: int = 0
    timeouts: int = 0
    disconnects: int = 0
    refused: int = 0
    corrupt: int = 0
    epochs: int = 0
    scripts_loaded: int = 0
    gaps: int = 0
    snapshots: int = 0
    snapshot_retries: int = 0
    reaped: int = 0
    lapsed: int = 0
    rebased: int = 0
    unguarded: int = 0  # 1 while the server has replicas and accepts writes that none of them has
    schema: int = 0  # of the records that are written


def packed(command: Sequence[Argument]) -> bytes:
    """By the C packer: the driver's own, in Python, costs a call of many arguments a third of its client time."""
    data: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type] # its stub knows tuples of one item only
    return data


class Head:
    """The arguments with which many commands begin, packed once."""

    __slots__ = ("_number", "_packed")

    def __init__(self, *arguments: Argument) -> None:
        self._number = len(arguments)
        self._packed = packed(arguments).partition(b"\r\n")[2]

    def packed(self, arguments: Sequence[Argument]) -> bytes:
        """The whole command, `packed`; ``arguments`` are the rest of it."""
        rest = packed(arguments)
        return b"*%d\r\n%b%b" % (self._number + len(arguments), self._packed, rest[rest.index(b"\n") + 1 :])


async def ask(connection: AbstractConnection, *command: Argument) -> Any:
    """One command, one reply as it came."""
    await connection.send_packed_command(packed(command), check_health=False)
    return await connection.read_response(disable_decoding=True)


async def ask_all(connection: AbstractConnection, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Several in one write. Raises the first error that was replied, after all replies were read."""
    await connection.send_packed_command(b"".join(map(packed, commands)), check_health=False)
    replies: list[Any] = []
    fault: ResponseError | None = None
    for _ in commands:
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except ResponseError as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return replies


__all__ = ["Argument", "Counts", "Head", "ask", "ask_all", "packed"]
