"""
Where events travel on NATS: one subject per worker and rank, any name packed into one safe token.

``picker.v1.<pool>.kv.<worker>.<rank>`` carries a rank's events, ``picker.v1.<pool>.ask.<worker>.<rank>``
the questions of replicas that missed some, ``picker.v1.<pool>.picks.<worker>.<rank>`` what replicas tell
each other of workers without events, and on ``...<rank>-tails`` of prompts with media. The pool's and the
worker's names are tokens, so that server permissions can be written per worker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from picker.core.worker import worker_address, worker_rank

ROOT = "picker.v1"
MAX_NAME = 1024
TAILS = "-tails"

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_PACKED = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+|=")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


def token(name: str) -> str:
    """
    Pack a name into one NATS token: letters, digits, ``_`` and ``-`` stay, every other byte of UTF-8 is
    ``=XX``.

    The empty name is ``=``. No two names share a token.

    Raises:
        ValueError: the name is longer than ``MAX_NAME`` bytes.

    """
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_NAME:
        raise ValueError(f"a name of {len(raw)} bytes is too long for a NATS subject (at most {MAX_NAME})")
    return _UNSAFE.sub(lambda found: b"=%02X" % ord(found[0]), raw).decode("ascii") or "="


def untoken(packed: str) -> str | None:
    """The name inside a token, or ``None`` when no name packs to it."""
    if not _PACKED.fullmatch(packed):
        return None
    if packed == "=":
        return ""
    raw = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), packed.encode("ascii"))
    try:
        name = raw.decode("utf-8", "surrogatepass")
        return name if token(name) == packed else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of one pool."""

    pool: str
    """``namespace/name``."""

    def events(self, worker: str) -> str:
        """Where this worker's events are published; ``worker`` is its full name, rank included."""
        return f"{self._prefix('kv')}.{_tail(worker)}"

    def asks(self, worker: str) -> str:
        """Where this worker's bridge is asked for what was missed."""
        return f"{self._prefix('ask')}.{_tail(worker)}"

    def picks(self, worker: str) -> str:
        """Where replicas tell each other what they sent to this worker, if its events do not tell."""
        return f"{self._prefix('picks')}.{_tail(worker)}"

    def tails(self, worker: str) -> str:
        """Where replicas tell each other what they sent to this worker behind what its events can tell."""
        return self.picks(worker) + TAILS

    @property
    def all_picks(self) -> str:
        """The subscription that carries the picks of every worker of the pool, tails included."""
        return f"{self._prefix('picks')}.*.*"

    @property
    def all_events(self) -> str:
        """The subscription that carries the events of every worker of the pool."""
        return f"{self._prefix('kv')}.*.*"

    def _prefix(self, kind: str) -> str:
        return f"{ROOT}.{token(self.pool)}.{kind}"


def _tail(worker: str) -> str:
    return f"{token(worker_address(worker))}.{worker_rank(worker)}"
