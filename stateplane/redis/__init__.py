"""The plane on Redis and Valkey: scripts, calls, feed."""

from __future__ import annotations

from pathlib import Path

from stateplane.booking import Owner, Rules
from stateplane.redis.plane import RedisPlane


def open_url(
    url: str,
    *,
    pool: str,
    owner: Owner,
    rules: Rules,
    timeout: float,
    connect: float,
    password_file: Path | None,
) -> RedisPlane:
    """The URLs are described at ``stateplane.redis.address.read_url``."""
    return RedisPlane(
        url,
        pool=pool,
        owner=owner,
        rules=rules,
        timeout=timeout,
        connect=connect,
        password_file=password_file,
    )


__all__ = ["RedisPlane", "open_url"]
