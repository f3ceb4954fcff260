"""What the gateway's side asks of the picker, and the values that travel between them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from stateplane.values import value

DESTINATION_HEADER = "x-gateway-destination-endpoint"
BOOKING_HEADER = "x-picker-booking"
REASON_HEADER = "x-llm-d-request-dropped-reason"


@value
class HttpRequest:
    """A request as the gateway showed it: everything in it is the client's word."""

    headers: Mapping[str, str]
    """Lower-case names, pseudo headers included (``:path``, ``:method``); of a repeated header the last value."""
    body: bytes | None
    """The body, or None where the gateway does not show it (mode NONE or STREAMED, or a request without one)."""
    complete: bool = True
    """False where the gateway cut the body (BUFFERED_PARTIAL)."""
    subset: tuple[str, ...] | None = None
    """Endpoints the gateway allows (``host:port`` or ``host``); empty: none; None: the whole pool."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    response_shown: bool = False
    """Whether the gateway will show the response's body: only then is it worth while to read it."""
    rewritable: bool = False
    """Whether the answer may carry another body: where the gateway showed the whole of it and waits for it back."""


class ResponseReading(Protocol):
    """Reads one response as its pieces pass by, and may change them. Never raises, never keeps more than a little."""

    rewrites: bool
    """Whether it may ask for other bytes than came: where not, pieces go on at once and lengths stay as they are."""

    def begin(self, response: Responded) -> None:
        """Response headers were seen: status, content type and encoding tell what can be read."""
        ...

    def piece(self, data: bytes, *, end: bool) -> bytes | None:
        """Return what goes on instead of ``data``, empty where nothing does yet; None: ``data`` itself."""
        ...


@value
class Picked:
    """The answer to a request: where it should go."""

    destination: str
    """``host:port[,host:port...]``, the first one preferred."""
    booking_id: str
    set_headers: tuple[tuple[str, str], ...] = ()
    """Further headers for the worker, rank and request id among them."""
    body: bytes | None = None
    """The body to send on instead of the client's; None: that one. Only where `HttpRequest.rewritable`."""
    reading: ResponseReading | None = None
    """What wants to see the response's body; None: nobody. Only where `HttpRequest.response_shown`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a request that gets no worker; becomes an immediate response with a JSON body in OpenAI's shape."""

    status: int
    type: str
    """``invalid_request_error``, ``rate_limit_error``, ``service_unavailable``, ``server_error``."""
    code: str
    message: str
    reason: str = ""
    """Value of the drop reason header, where there is one."""
    retry_after: int | None = None
    """Seconds."""
    param: str | None = None


@value
class Responded:
    """Response headers as the gateway showed them."""

    status: int
    served: str = ""
    """``host:port`` that answered, where the gateway says."""
    attempts: int = 1
    """How many tries the gateway made."""
    event_stream: bool = False
    content_type: str = ""
    """Lower case, parameters included, at most 256 characters."""
    content_encoding: str = ""
    """Lower case; empty: identity."""


class End(StrEnum):
    """How an ext_proc stream was over, seen from a booking."""

    PROVEN = "proven"  # the end of the response was seen, or the gateway answered itself without a worker
    HALF_CLOSED = (
        "half_closed"  # the gateway closed a held stream in good order: the end, or a client that left
    )
    CANCELLED = "cancelled"  # the stream broke or was cancelled before its end: the worker may still work
    CLOSED_BY_US = (
        "closed_by_us"  # we let go of it after response headers: the access log or reports tell the end
    )
    DRAINED = "drained"  # we are shutting down and closed it while the response ran


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One access log entry that concerns us."""

    booking_id: str
    end: bool
    """True for the last entry of a request, False for a periodic one: proof that it still runs."""
    served: str = ""
    """``host:port`` of the worker that the gateway reached, empty if none was."""
    status: int = 0
    attempts: int = 0
    flags: frozenset[str] = frozenset()
    """Names of the response flags that are set, as in Envoy's ``ResponseFlags``."""


class Requests(Protocol):
    """The picker behind the gateway's side. Nothing but `pick` may wait; nothing raises."""

    def pick(self, request: HttpRequest) -> Picked | Refused | Awaitable[Picked | Refused]:
        """Decide, at once where nothing has to be waited for.

        What is waited for is cancelled when the stream ends first: then nothing stays booked.
        """
        ...

    def responded(self, booking_id: str, response: Responded) -> None:
        """Response headers were seen."""
        ...

    def body_seen(self, booking_id: str) -> None:
        """The first piece of a response body was seen: prefill is over."""
        ...

    def over(self, booking_id: str, end: End) -> None:
        """The stream of that booking is over; said exactly once for each Picked."""
        ...

    def logged(self, entries: Sequence[LogEntry]) -> None:
        """Access log entries that name bookings, of any replica."""
        ...
