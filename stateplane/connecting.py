"""How long the making of a connection may take: more than a call, for it takes many round trips and nobody waits."""

from __future__ import annotations

CONNECT_SECONDS = 5.0
"""Usual deadline of one connection with all that stands before its first call: some seventeen round trips at most, by
way of sentinels and over TLS."""
SILENCE_SECONDS = 1.0
"""A server that says nothing for so long in between is taken for gone, so that its return is soon noticed."""


def silence(timeout: float) -> float:
    """Seconds for one question on the way, where a call may take ``timeout``."""
    return max(2 * timeout, SILENCE_SECONDS)
