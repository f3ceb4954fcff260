"""What is counted of questions between replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Failure = Literal[
    "no_credentials", "unreachable", "deadline", "certificate", "refused", "status", "too_large", "odd", "pool",
    "too_many",
]  # fmt: skip
Refusal = Literal["secret", "certificate", "loopback", "locked"]

FAILURES: dict[Failure, str] = {
    "no_credentials": "not asked: this replica has neither a secret nor a certificate to show",
    "unreachable": "no connection",
    "deadline": "no answer in time",
    "certificate": "it could not prove itself, or did not believe our certificate",
    "refused": "it refused our secret or certificate",
    "status": "it answered with an error",
    "too_large": "its answer was too large",
    "odd": "its answer made no sense",
    "pool": "it serves another pool",
    "too_many": "not asked: too many peers at once",
}
"""Why a peer did not answer, in words."""


@dataclass(slots=True)
class Counts:
    """Questions asked of others, and questions answered."""

    asked: int = 0
    answers: int = 0
    unknown: int = 0
    """Answers that the peer knows nothing of what was asked for."""
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES, 0))
    """Questions without an answer, by reason."""
    served: int = 0
    refusals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("secret", "certificate", "loopback", "locked"), 0)
    )
    """Questions of others that were refused, by what was wrong."""
    secret_failures: int = 0
    """Looks at the secret's file that found none that can be used."""
    tls_reloads: int = 0
    tls_reload_failures: int = 0
