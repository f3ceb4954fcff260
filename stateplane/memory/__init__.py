"""The plane in this process's memory: the ledger behind the seam.

It is the model that the other backends are compared with, and it serves a single replica, or several in one process.
Planes that open the same name and pool share one ``MemoryStore``. A test holds the store and may freeze it, take it
away, restart it and set its clock.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from stateplane.booking import Owner, Rules
from stateplane.memory.plane import Counts, MemoryPlane
from stateplane.memory.store import HISTORY, MemoryStore, shared_store


def open_url(
    url: str,
    *,
    pool: str,
    owner: Owner,
    rules: Rules,
    timeout: float,
    connect: float,
    password_file: Path | None,
) -> MemoryPlane:
    """``memory://`` is this plane's own, ``memory://NAME`` is shared by all of this process and pool that name it."""
    del connect, password_file
    name = urlsplit(url).netloc
    return MemoryPlane(shared_store(name, pool, rules), owner=owner, timeout=timeout)


__all__ = ["HISTORY", "Counts", "MemoryPlane", "MemoryStore", "open_url"]
