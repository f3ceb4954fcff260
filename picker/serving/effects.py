"""What an exchange asks of its transport: values. What is sent keeps its order; all else is done before it."""

from __future__ import annotations

from dataclasses import dataclass

from picker.serving.seam import End, HttpRequest, Responded
from picker.serving.wire.extproc_pb2 import ProcessingResponse


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the gateway."""

    message: ProcessingResponse


@dataclass(frozen=True, slots=True)
class SendBody:
    """Send these bytes of a full duplex body to the gateway, in as many messages as they need (`replies.streamed`).

    The transport cuts them as it sends: a large body is then in memory once, not once more in its pieces.
    """

    body: bytes
    end: bool
    """Whether they end the body."""
    response: bool = False
    """Whether it is the response's body; else the request's."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Ask for a pick; its answer comes back through `Exchange.decided`."""

    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel the pick in progress: nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class ResponseSeen:
    """Tell the picker that response headers came."""

    booking_id: str
    response: Responded


@dataclass(frozen=True, slots=True)
class BodySeen:
    """Tell the picker that the first piece of a response body came."""

    booking_id: str


@dataclass(frozen=True, slots=True)
class Over:
    """Tell the picker that the stream of this booking is over: exactly one for each pick."""

    booking_id: str
    end: End


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream with OK; nothing follows."""


Effect = Send | SendBody | Decide | Abandon | ResponseSeen | BodySeen | Over | Close
