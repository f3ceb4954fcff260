"""Which layout of records a replica reads, and which it writes while replicas of two versions run side by side.

A program of version N reads N and N-1. It writes N-1 until every member of the pool is N; from then on N, for good.
"""

from __future__ import annotations

from collections.abc import Iterable

from stateplane.booking import SCHEMA, Member

MEMBER_KEY = "schema"
"""Where a member's info says the newest schema that it reads."""


def oldest_of(newest: int = SCHEMA) -> int:
    """The oldest schema that a program reads whose newest is ``newest``."""
    return max(1, newest - 1)


def written(members: Iterable[Member], *, newest: int = SCHEMA) -> int:
    """The schema to write, given who reads it: the newest that every member reads, never older than we may write.

    A member that does not say what it reads is taken to read the oldest only; so is a pool without members.
    """
    oldest = oldest_of(newest)
    read = [_told(member.info.get(MEMBER_KEY, ""), oldest) for member in members]
    return max(oldest, min([newest, *read])) if read else oldest


def readable(schema: int, *, newest: int = SCHEMA) -> bool:
    """Whether a program whose newest schema is ``newest`` reads that one."""
    return oldest_of(newest) <= schema <= newest


def unreadable(schema: int, *, newest: int = SCHEMA) -> str:
    """What to tell about records of a schema that is not ``readable``."""
    if schema > newest:
        return (
            f"the pool's records have schema {schema}, this replica reads none newer than {newest}; "
            "upgrade the replica"
        )
    return (
        f"the pool's records have schema {schema}, this replica reads none older than {oldest_of(newest)}; "
        "upgrade through the version between, or delete the pool's keys"
    )


def _told(text: str, unsaid: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else unsaid


__all__ = ["MEMBER_KEY", "oldest_of", "readable", "unreadable", "written"]
