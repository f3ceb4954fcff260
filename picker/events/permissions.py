"""
Who may say what on NATS: a server configuration with one user per bridge and one for the replicas.

| role | publishes | subscribes |
|---|---|---|
| bridge | its own worker's events, of every rank; replies to questions it was asked | questions about its own worker |
| replica | questions, picks | events, picks, its inboxes |

So a replica cannot make up events, and a bridge cannot speak for another worker or another pool. Replies are
allowed by the server for a while after each question and only where it pointed to; the bridge itself refuses
questions whose reply would be one of these subjects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from picker.events.subjects import ROOT, token

INBOXES: Final = "_INBOX.>"
MOST_REPLIES: Final = 65_536
"""Pieces of the largest answer."""
REPLY_TIME: Final = "2m"
_NKEY: Final = re.compile(r"U[A-Z2-7]{55}")


@dataclass(frozen=True, slots=True)
class User:
    """
    Who somebody is: a public NKEY (``U...``), or a name with a password or its bcrypt hash.

    Raises:
        ValueError: neither, or both.

    """

    nkey: str = ""
    name: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        if bool(self.nkey) == bool(self.name and self.password):
            raise ValueError("a NATS user is either a public NKEY, or a name with a password")
        if self.nkey and not _NKEY.fullmatch(self.nkey):
            raise ValueError(f"{self.nkey[:60]!r} is no public NKEY of a user")

    def written(self) -> dict[str, str]:
        """As the server's configuration names it."""
        return {"nkey": self.nkey} if self.nkey else {"user": self.name, "password": self.password}


@dataclass(frozen=True, slots=True)
class Tls:
    """The server's certificate; ``ca`` is given where clients must show one of theirs."""

    certificate: Path
    key: Path
    ca: Path | None = None


def permissions(
    role: Literal["bridge", "replica"], pool: str, *, worker: str = "", more: Sequence[str] = ()
) -> dict[str, Any]:
    """
    What that role may do, in the terms of the server's configuration.

    Args:
        role: whose.
        pool: ``namespace/name``.
        worker: ``host:port`` of the bridge's engine.
        more: further subjects that may be subscribed to (Dynamo's events), or published to by asking.

    Raises:
        ValueError: a bridge without a worker, or with a rank in its name.

    """
    root = f"{ROOT}.{token(pool)}"
    if role == "replica":
        return {
            "publish": {"allow": [f"{root}.ask.*.*", f"{root}.picks.*.*", *more]},
            "subscribe": {"allow": [f"{root}.kv.*.*", f"{root}.picks.*.*", INBOXES, *more]},
        }
    if not worker or "@" in worker:
        raise ValueError(f"a bridge speaks for one engine, named host:port; {worker[:60]!r} is no such name")
    return {
        "publish": {"allow": [f"{root}.kv.{token(worker)}.*"]},
        "subscribe": {"allow": [f"{root}.ask.{token(worker)}.*"]},
        "allow_responses": {"max": MOST_REPLIES, "expires": REPLY_TIME},
    }


def server_configuration(
    pool: str,
    *,
    replicas: Iterable[User],
    bridges: Iterable[tuple[str, User]],
    others: Iterable[dict[str, Any]] = (),
    more: Sequence[str] = (),
    tls: Tls | None = None,
    max_payload: int | None = None,
) -> str:
    """
    A configuration for ``nats-server -c``, complete but for addresses and ports.

    Args:
        pool: ``namespace/name``.
        replicas: users with a replica's rights.
        bridges: each engine's ``host:port`` and its bridge's user.
        others: further users, written as the server wants them (the state plane's, an operator's).
        more: further subjects for replicas; see `permissions`.
        tls: the server's certificate; none: in the clear.
        max_payload: largest message in bytes; the server's default where none is given.

    """
    users = [user.written() | {"permissions": permissions("replica", pool, more=more)} for user in replicas]
    users += [
        user.written() | {"permissions": permissions("bridge", pool, worker=worker)}
        for worker, user in bridges
    ]
    whole: dict[str, Any] = {"authorization": {"users": [*users, *others]}}
    if tls is not None:
        client = {"ca_file": str(tls.ca), "verify": True} if tls.ca else {}
        whole["tls"] = {"cert_file": str(tls.certificate), "key_file": str(tls.key), **client}
    if max_payload is not None:
        whole["max_payload"] = max_payload
    return json.dumps(whole, indent=2) + "\n"  # the server reads JSON as its own language
