"""Body modes: what a gateway sends of a body, and what it wants back."""

from __future__ import annotations

from enum import IntEnum

from picker.serving.wire.extproc_pb2 import ProcessingRequest


class BodyMode(IntEnum):
    """A body mode of ext_proc, numbered as on the wire; ``UNTOLD`` where the gateway did not name one."""

    UNTOLD = -1
    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4

    @property
    def collects(self) -> bool:
        """Whether the body is held here until it is whole."""
        return self not in (BodyMode.NONE, BodyMode.STREAMED)


class UnsupportedModeError(Exception):
    """The gateway named a body mode that is not known here."""

    def __init__(self, number: int) -> None:
        super().__init__(f"body mode {number}")
        self.number = number


def mode_named(name: str) -> BodyMode:
    """The mode of a setting's value (``full_duplex_streamed``); empty: ``UNTOLD``."""
    return BodyMode[name.upper()] if name else BodyMode.UNTOLD


def modes_told(message: ProcessingRequest) -> tuple[BodyMode, BodyMode]:
    """Request and response body mode as the first message of a stream names them.

    Raises:
        UnsupportedModeError: where one of them is none of ours.
    """
    if not message.HasField("protocol_config"):
        return BodyMode.UNTOLD, BodyMode.UNTOLD
    told = message.protocol_config
    return _mode(told.request_body_mode), _mode(told.response_body_mode)


def _mode(number: int) -> BodyMode:
    if number == BodyMode.UNTOLD:
        raise UnsupportedModeError(number)
    try:
        return BodyMode(number)
    except ValueError:
        raise UnsupportedModeError(number) from None
