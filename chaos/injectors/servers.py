"""What is said to the servers of a cluster themselves, beside the product: save what you hold, tell the time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chaos.injectors import InjectionError
from picker.sim.cluster import Cluster

ANSWER_SECONDS = 5.0
_DUMP = "dump.rdb"


async def valkey_says(address: str, command: str) -> list[str]:
    """The lines of the answer to one command of a Valkey: ``SAVE``, ``TIME``.

    Raises InjectionError for an error answer, OSError and TimeoutError where none comes.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(f"{command}\r\n".encode())
            return await _answer(reader, command)
        finally:
            writer.close()


async def _answer(reader: asyncio.StreamReader, command: str) -> list[str]:
    head = (await reader.readline()).decode().strip()
    if head.startswith("-") or not head:
        raise InjectionError(f"Valkey refuses {command!r}: {head or 'the connection ended'}")
    if head.startswith("$"):
        return (await reader.readexactly(int(head[1:]) + 2)).decode().split("\r\n")
    if not head.startswith("*"):
        return [head[1:]]
    lines = []
    for _ in range(int(head[1:])):
        await reader.readline()
        lines.append((await reader.readline()).decode().strip())
    return lines


async def keep(cluster: Cluster, name: str) -> None:
    """Have the server write down what it holds, so that its next life begins with it. Raises InjectionError."""
    if name != "valkey":
        raise InjectionError(
            f"{name} cannot keep what it holds over a restart here: only Valkey can be told to"
        )
    await valkey_says(cluster.valkey, "SAVE")


def forget_kept(cluster: Cluster, name: str) -> None:
    """The next life of the server begins empty."""
    if name == "valkey":
        Path(cluster.folder, _DUMP).unlink(missing_ok=True)
