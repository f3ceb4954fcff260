"""Body modes: what a gateway sends of a body, and what it wants back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Self


class BodyMode(IntEnum):
    """A body mode of ext_proc, numbered as on the wire; ``UNTOLD`` where the gateway did not name one."""

    # told once: they are asked on every message
    collects: bool
    """Whether the body is held here until it is whole."""
    shows: bool
    """Whether the gateway is known to show the body at all."""
    whole: bool
    """Whether the body comes in one message, and its answer takes one body in place of it."""

    def __new__(cls, number: int) -> Self:
        """A member and what is true of it."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.collects = number not in (0, 1)
        member.shows = number > 0
        member.whole = number in (2, 3)
        return member

    UNTOLD = -1
    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4


MODE_UNTOLD, NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX = BodyMode
"""The members by names of their own: to ask an enumeration for one costs as much as a call, and is done very often."""


class UnsupportedModeError(Exception):
    """The gateway named a body mode that is not known here."""

    def __init__(self, number: int) -> None:
        super().__init__(f"body mode {number}")
        self.number = number


def mode_named(name: str) -> BodyMode:
    """The mode of a setting's value (``full_duplex_streamed``); empty: ``UNTOLD``."""
    return BodyMode[name.upper()] if name else BodyMode.UNTOLD


@dataclass(frozen=True, slots=True)
class Told:
    """What the first message of a stream says about the gateway's settings."""

    request: BodyMode = BodyMode.UNTOLD
    response: BodyMode = BodyMode.UNTOLD
    ahead: bool = False
    """Whether request body pieces come without waiting for the answer to the headers."""

    @property
    def overridable(self) -> bool:
        """Whether an answer to request headers may change the response's body mode.

        Envoy 1.40 ignores an override where either direction is FULL_DUPLEX_STREAMED, and where bodies are sent ahead.
        """
        duplex = BodyMode.FULL_DUPLEX_STREAMED
        unknown = self.request is BodyMode.UNTOLD
        return not (unknown or self.ahead or self.request is duplex or self.response is duplex)


UNTOLD = Told()


@lru_cache(maxsize=64)  # a gateway has few settings and names them on every stream
def modes_told(modes: tuple[int, int, bool] | None) -> Told:
    """The modes as the first message of a stream numbers them: request's, response's, and whether bodies come ahead.

    Raises:
        UnsupportedModeError: where one of them is none of ours.
    """
    if modes is None:
        return UNTOLD
    request, response, ahead = modes
    return Told(_mode(request), _mode(response), ahead)


def _mode(number: int) -> BodyMode:
    if number == BodyMode.UNTOLD:
        raise UnsupportedModeError(number)
    try:
        return BodyMode(number)
    except ValueError:
        raise UnsupportedModeError(number) from None
