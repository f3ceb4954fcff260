"""What an exchange asks of its transport: values. What is sent keeps its order; all else is done before it."""

from __future__ import annotations

from picker.serving.seam import End, HttpRequest, Responded
from picker.serving.wire.extproc_pb2 import ProcessingResponse
from stateplane.values import value


class Send:
    """Send this message to the gateway."""

    __match_args__ = ("message",)
    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data
        """A ProcessingResponse as bytes."""

    @property
    def message(self) -> ProcessingResponse:
        """The message, for those that want to look into it."""
        return ProcessingResponse.FromString(self.data)


@value
class SendBody:
    """Send these bytes of a full duplex body to the gateway, in as many messages as they need (`encoded.streamed`).

    The transport cuts them as it sends: a large body is then in memory once, not once more in its pieces.
    """

    body: bytes
    end: bool
    """Whether they end the body."""
    response: bool = False
    """Whether it is the response's body; else the request's."""


@value
class Decide:
    """Ask for a pick; its answer comes back through `Exchange.decided`."""

    request: HttpRequest


@value
class Abandon:
    """Cancel the pick in progress: nobody waits for it any more."""


@value
class ResponseSeen:
    """Tell the picker that response headers came."""

    booking_id: str
    response: Responded


@value
class BodySeen:
    """Tell the picker that the first piece of a response body came."""

    booking_id: str


@value
class Over:
    """Tell the picker that the stream of this booking is over: exactly one for each pick."""

    booking_id: str
    end: End


@value
class Close:
    """End the stream with OK; nothing follows."""


Effect = Send | SendBody | Decide | Abandon | ResponseSeen | BodySeen | Over | Close
