"""The seam: who bears a token, and what they may read, by the word of somebody who knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ReviewError(Exception):
    """Nobody could be asked, or the question itself is not allowed; the message holds nothing of the token."""


@dataclass(frozen=True, slots=True)
class Review:
    """What is said of one token and one thing to be done."""

    known: bool
    """Whether the token is somebody's."""
    allowed: bool = False
    """Whether they may do it."""
    user: str = ""
    """Who it is, at most 256 characters."""


class Reviewer(Protocol):
    """Knows tokens and rights."""

    async def review(self, token: str, *, path: str, verb: str) -> Review:
        """
        Ask whose token it is and whether they may do that.

        Args:
            token: As it was borne.
            path: What is to be read, as a URL's path.
            verb: ``get``, ``post``.

        Raises:
            ReviewError: there is no answer.

        """
        ...

    async def close(self) -> None:
        """Let go of what is held."""
        ...
