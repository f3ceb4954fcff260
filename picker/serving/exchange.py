"""One ext_proc stream as a state machine: messages in, effects out; no input or output, no clock, no logging.

The gateway's messages go in through `Exchange.receive`, the pick's answer through `Exchange.decided`, the end of the
stream and the passing of time through methods of their own. Each returns the effects that the transport has to perform,
and nothing raises. Every `Picked` that goes in is answered by exactly one `Over`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from picker.serving import refusals, replies
from picker.serving.buffers import Body, Budget
from picker.serving.counts import Counts
from picker.serving.effects import (
    Abandon,
    BodySeen,
    Close,
    Decide,
    Effect,
    Over,
    ResponseSeen,
    Send,
)
from picker.serving.modes import BodyMode, UnsupportedModeError, modes_told
from picker.serving.reading import (
    HeadersTooLargeError,
    attributes_of,
    control_headers,
    declared_length,
    headers_of,
    responded,
    subset_of,
)
from picker.serving.seam import End, HttpRequest, Picked, Refused
from picker.serving.wire.extproc_pb2 import HttpBody, ProcessingRequest

Hold = Literal["headers", "response"]

GUESS_SECONDS = 0.1
"""How long a gateway that names no body mode may take to send a body unasked; its message timeout starts at 0.2 s."""
AT_ONCE_SECONDS = 0.1
"""A half-close this soon after the headers of an event stream is no end of it."""
MAX_PIECES = 100_000
"""Most messages of one request's body."""
MAX_MESSAGES = 4_000_000
"""Most messages of one stream."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one stream may take. Sizes in bytes, times in seconds."""

    max_body: int
    body_timeout: float
    stream_timeout: float
    mode: BodyMode = BodyMode.UNTOLD
    """Request body mode that overrides what the gateway says."""


class _Phase(Enum):
    NEW = auto()  # nothing came yet
    BODY = auto()  # the request's body is being collected
    DECIDING = auto()  # a pick is in progress
    PASSING = auto()  # the request went on, with or without a pick: the rest is passed through
    OBSERVING = auto()  # observability mode: nothing is answered
    OVER = auto()


class _Awaiting(Enum):
    """The message of the gateway that waits for the decision."""

    HEADERS = auto()
    BODY = auto()
    DUPLEX = auto()  # headers held back; the body follows them, the last piece ends the stream
    TRAILERS = auto()  # headers held back; the body follows them, trailers end the stream


class Exchange:
    """One stream. ``hold`` is asked at response headers until when the stream is to be held.

    ``refuse``, where given, is the answer to whatever request comes: for a stream beyond the bound.
    """

    __slots__ = (
        "_at_headers",
        "_attributes",
        "_awaiting",
        "_body",
        "_body_seen",
        "_counts",
        "_deadline",
        "_event_stream",
        "_headers",
        "_hold",
        "_limits",
        "_messages",
        "_open_booking",
        "_owed",
        "_phase",
        "_refuse",
        "_remove",
        "_request_mode",
        "_response_mode",
        "_subset",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        budget: Budget,
        hold: Callable[[], Hold],
        counts: Counts,
        now: float,
        refuse: Refused | None = None,
    ) -> None:
        self._limits = limits
        self._hold = hold
        self._counts = counts
        self._refuse = refuse
        self._phase = _Phase.NEW
        self._deadline: float | None = now + limits.body_timeout
        self._messages = 0
        self._request_mode = limits.mode
        self._response_mode = BodyMode.UNTOLD
        self._headers: dict[str, str] = {}
        self._remove: tuple[str, ...] = ()
        self._subset: tuple[str, ...] | None = None
        self._attributes: dict[str, str] = {}
        self._body = Body(budget)
        self._awaiting = _Awaiting.HEADERS
        self._owed: list[ProcessingRequest] = []
        self._open_booking = ""
        self._at_headers: float | None = None
        self._event_stream = False
        self._body_seen = False

    @property
    def deadline(self) -> float | None:
        """When `expired` has to be called, unless something else comes first; None: never."""
        return self._deadline

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return self._phase is _Phase.OVER

    # -- what comes in ------------------------------------------------------------------------------------------

    def receive(self, message: ProcessingRequest, now: float) -> list[Effect]:
        """A message of the gateway."""
        if self._phase is _Phase.OVER or self._phase is _Phase.OBSERVING:
            return []
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            self._counts.closed_flooded += 1
            return self._end(End.CLOSED_BY_US)
        if self._phase is _Phase.NEW and message.observability_mode:
            self._phase, self._deadline = _Phase.OBSERVING, now + self._limits.stream_timeout
            self._counts.observed += 1
            return []
        kind = message.WhichOneof("request")
        if kind is None:
            self._counts.unreadable += 1
            return self._give_up(refusals.OUT_OF_ORDER)
        if self._phase is _Phase.PASSING:
            self._deadline = now + self._limits.stream_timeout
        if kind == "request_headers":
            return self._request_headers(message, now)
        if kind == "request_body":
            return self._request_body(message, now)
        if kind == "request_trailers":
            return self._request_trailers(message, now)
        return self._response(kind, message, now)

    def decided(self, answer: Picked | Refused, now: float) -> list[Effect]:
        """The answer to the last `Decide`; it may come too late."""
        if self._phase is not _Phase.DECIDING:
            # never told to the gateway: no worker knows of it
            return [Over(answer.booking_id, End.PROVEN)] if isinstance(answer, Picked) else []
        if isinstance(answer, Refused):
            return self._refused(answer)
        self._counts.decided += 1
        self._open_booking = answer.booking_id
        self._phase, self._deadline = _Phase.PASSING, now + self._limits.stream_timeout
        effects = self._answered(answer)
        # a held stream lives long and needs none of this any more
        self._headers, self._remove, self._attributes = {}, (), {}
        owed, self._owed = self._owed, []
        for message in owed:
            effects += self.receive(message, now)
        return effects

    def performed(self) -> None:
        """All effects handed out so far are done: what they held in memory is free."""
        if self._phase in (_Phase.PASSING, _Phase.OVER):
            self._body.forget()

    def half_closed(self, now: float) -> list[Effect]:
        """The gateway will send nothing more."""
        return self._let_go(now)

    def cancelled(self, now: float) -> list[Effect]:
        """The gateway reset the stream.

        That is how Envoy 1.40 leaves a held stream, whatever the cause: half-close and reset together, or a reset
        alone where the response came at once. So it tells the same as a half-close.
        """
        return self._let_go(now)

    def broken(self, now: float) -> list[Effect]:
        """The stream is lost without a word of the gateway, for a transport that can tell."""
        return self._end(End.CANCELLED)

    def expired(self, now: float) -> list[Effect]:
        """The deadline passed; does nothing before it."""
        if self._deadline is None or now < self._deadline:
            return []
        if self._phase is _Phase.BODY and self._request_mode is BodyMode.UNTOLD:
            return self._guess(now)
        if self._phase is _Phase.BODY:
            self._counts.body_timeouts += 1
            return self._refused(refusals.BODY_TIMEOUT)
        if self._phase is _Phase.DECIDING:
            self._counts.pick_timeouts += 1
            return [Abandon(), *self._refused(refusals.PICK_TIMEOUT)]
        self._counts.closed_idle += 1
        return self._end(End.CLOSED_BY_US)

    def drain(self, now: float) -> list[Effect]:
        """The replica goes away and waits no longer."""
        if self._phase in (_Phase.BODY, _Phase.DECIDING):
            self._counts.refused_draining += 1
            return self._give_up(refusals.SHUTTING_DOWN)
        if self._phase is not _Phase.OVER:
            self._counts.closed_draining += 1
        return self._end(End.DRAINED)

    # -- the request --------------------------------------------------------------------------------------------

    def _request_headers(self, message: ProcessingRequest, now: float) -> list[Effect]:
        if self._phase is not _Phase.NEW:
            return self._unexpected()
        if self._refuse is not None:
            return self._refused(self._refuse)
        try:
            self._headers = headers_of(message.request_headers.headers)
            told, self._response_mode = modes_told(message)
        except HeadersTooLargeError:
            self._counts.refused_headers += 1
            return self._refused(refusals.HEADERS_TOO_LARGE)
        except UnsupportedModeError as mode:
            self._counts.refused_mode += 1
            return self._refused(refusals.unsupported_mode(mode.number))
        if self._request_mode is BodyMode.UNTOLD:
            self._request_mode = told
        self._remove = control_headers(self._headers)
        self._subset = subset_of(message)
        self._attributes = attributes_of(message)
        if message.request_headers.end_of_stream or not self._request_mode.collects:
            return self._decide(_Awaiting.HEADERS, now)
        if (declared_length(self._headers) or 0) > self._limits.max_body:
            return self._too_large()
        self._phase = _Phase.BODY
        if self._request_mode is BodyMode.UNTOLD:
            self._deadline = now + min(GUESS_SECONDS, self._limits.body_timeout)
            return []
        self._deadline = now + self._limits.body_timeout
        if self._request_mode is BodyMode.FULL_DUPLEX_STREAMED:
            return []
        return [Send(replies.headers_passed(self._remove))]

    def _request_body(self, message: ProcessingRequest, now: float) -> list[Effect]:
        body = message.request_body
        if self._phase is _Phase.DECIDING:
            return self._owe(message)
        if self._phase is _Phase.PASSING:
            return self._pass_body(body)
        if self._phase is not _Phase.BODY:
            return self._unexpected()
        if self._request_mode is BodyMode.UNTOLD:
            # a body before its headers were answered
            self._request_mode = BodyMode.FULL_DUPLEX_STREAMED
            self._deadline = now + self._limits.body_timeout
        fault = self._add(body.body)
        if fault is not None:
            return fault
        if self._request_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            # the one message with the whole body; its end of stream is missing where trailers follow
            return self._decide(_Awaiting.BODY, now, ended=_ends(body))
        return self._decide(_Awaiting.DUPLEX, now) if _ends(body) else []

    def _request_trailers(self, message: ProcessingRequest, now: float) -> list[Effect]:
        if self._phase is _Phase.DECIDING:
            return self._owe(message)
        if self._phase is _Phase.PASSING:
            return [Send(replies.trailers_passed())]
        if self._phase is not _Phase.BODY or self._request_mode in (
            BodyMode.BUFFERED,
            BodyMode.BUFFERED_PARTIAL,
        ):
            return self._unexpected()
        self._request_mode = BodyMode.FULL_DUPLEX_STREAMED
        return self._decide(_Awaiting.TRAILERS, now)

    def _add(self, piece: bytes) -> list[Effect] | None:
        """Append to the body, or the effects of a refusal."""
        if self._body.size + len(piece) > self._limits.max_body:
            return self._too_large()
        if self._messages > MAX_PIECES:
            self._counts.refused_too_large += 1
            return self._refused(refusals.TOO_MANY_PIECES)
        if not self._body.add(piece):
            self._counts.refused_memory += 1
            return self._refused(refusals.MEMORY_FULL)
        return None

    def _owe(self, message: ProcessingRequest) -> list[Effect]:
        """Keep a message that came before the decision: it is answered after it, in its order."""
        fault = self._add(message.request_body.body)
        if fault is not None:
            return [Abandon(), *fault]
        self._owed.append(message)
        return []

    def _decide(self, awaiting: _Awaiting, now: float, *, ended: bool = True) -> list[Effect]:
        self._phase, self._awaiting = _Phase.DECIDING, awaiting
        self._deadline = now + self._limits.body_timeout
        whole = None if awaiting is _Awaiting.HEADERS else self._body.whole()
        cut = self._request_mode is BodyMode.BUFFERED_PARTIAL and awaiting is _Awaiting.BODY and not ended
        request = HttpRequest(
            headers=self._headers,
            body=whole,
            complete=not cut or len(whole or b"") == declared_length(self._headers),
            subset=self._subset,
            attributes=self._attributes,
        )
        return [Decide(request)]

    def _guess(self, now: float) -> list[Effect]:
        """No mode was named and no body came: whatever the mode is, a decision in the headers answer is right."""
        self._counts.modes_guessed += 1
        return self._decide(_Awaiting.HEADERS, now)

    def _answered(self, picked: Picked) -> list[Effect]:
        """The decision on its way to the gateway, where the message that waits for it wants it."""
        if self._awaiting is _Awaiting.BODY:
            return [Send(replies.body_decided(picked, self._remove))]
        effects: list[Effect] = [Send(replies.headers_decided(picked, self._remove))]
        if self._awaiting is _Awaiting.HEADERS:
            return effects
        end = self._awaiting is _Awaiting.DUPLEX
        effects += [Send(piece) for piece in replies.body_echoed(self._body.taken(), end=end)]
        if not end:
            effects.append(Send(replies.trailers_passed()))
        return effects

    def _pass_body(self, body: HttpBody) -> list[Effect]:
        """A piece of a body that nobody here waits for any more."""
        if self._request_mode is BodyMode.UNTOLD:
            # After a guess. Buffered bodies come whole; a duplex gateway's first piece does not end its body.
            self._request_mode = (
                BodyMode.BUFFERED if _ends(body) and body.body else BodyMode.FULL_DUPLEX_STREAMED
            )
        if self._request_mode is BodyMode.FULL_DUPLEX_STREAMED:
            return [Send(piece) for piece in replies.body_echoed(body.body, end=_ends(body))]
        return [Send(replies.body_passed())]

    # -- the response -------------------------------------------------------------------------------------------

    def _response(self, kind: str, message: ProcessingRequest, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._phase is not _Phase.PASSING:
            # the gateway answers by itself, or shows us no request: nothing is booked
            if self._phase is _Phase.DECIDING:
                self._counts.abandoned += 1
                effects.append(Abandon())
            self._counts.local_replies += 1
            self._body.forget()
            self._owed = []
            self._phase, self._deadline = _Phase.PASSING, now + self._limits.stream_timeout
        if kind == "response_headers":
            return effects + self._response_headers(message, now)
        if kind == "response_body":
            return effects + self._response_body(message.response_body)
        return [*effects, Send(replies.response_trailers_passed()), *self._booking_over(End.PROVEN)]

    def _response_headers(self, message: ProcessingRequest, now: float) -> list[Effect]:
        effects: list[Effect] = []
        end = message.response_headers.end_of_stream
        try:
            response, unreached = responded(message, headers_of(message.response_headers.headers))
        except HeadersTooLargeError:
            response, unreached = responded(message, {})
        self._at_headers, self._event_stream = now, response.event_stream
        if self._open_booking:
            effects.append(ResponseSeen(self._open_booking, response))
        effects.append(Send(replies.response_headers_passed()))
        if end or unreached:
            effects += self._booking_over(End.PROVEN)
        if self._response_mode in (BodyMode.NONE, BodyMode.STREAMED) and self._hold() == "headers":
            effects += self._end(End.CLOSED_BY_US)
        return effects

    def _response_body(self, body: HttpBody) -> list[Effect]:
        effects: list[Effect] = []
        if self._open_booking and body.body and not self._body_seen:
            self._body_seen = True
            effects.append(BodySeen(self._open_booking))
        mode = self._response_mode if self._response_mode is not BodyMode.UNTOLD else self._request_mode
        if mode is BodyMode.FULL_DUPLEX_STREAMED:
            effects += [Send(piece) for piece in replies.response_body_echoed(body.body, end=_ends(body))]
        else:
            effects.append(Send(replies.response_body_passed()))
        if _ends(body):
            effects += self._booking_over(End.PROVEN)
        return effects

    # -- ends ---------------------------------------------------------------------------------------------------

    def _booking_over(self, end: End) -> list[Effect]:
        booking, self._open_booking = self._open_booking, ""
        return [Over(booking, end)] if booking else []

    def _end(self, end: End) -> list[Effect]:
        """The stream is over: the one place where that happens."""
        if self._phase is _Phase.OVER:
            return []
        effects: list[Effect] = []
        if self._phase is _Phase.DECIDING:
            self._counts.abandoned += 1
            effects.append(Abandon())
        effects += self._booking_over(end)
        self._phase, self._deadline, self._owed = _Phase.OVER, None, []
        return [*effects, Close()]

    def _let_go(self, now: float) -> list[Effect]:
        if self._at_headers is None:
            return self._end(End.CANCELLED)
        at_once = self._event_stream and now - self._at_headers < AT_ONCE_SECONDS
        return self._end(End.CANCELLED if at_once else End.HALF_CLOSED)

    def _refused(self, refusal: Refused) -> list[Effect]:
        self._counts.refused += 1
        self._phase, self._deadline, self._owed = _Phase.OVER, None, []
        return [Send(replies.refused(refusal)), Close()]

    def _too_large(self) -> list[Effect]:
        self._counts.refused_too_large += 1
        return self._refused(refusals.too_large(self._limits.max_body))

    def _unexpected(self) -> list[Effect]:
        self._counts.out_of_order += 1
        return self._give_up(refusals.OUT_OF_ORDER)

    def _give_up(self, refusal: Refused) -> list[Effect]:
        """Refuse a request that was not answered yet; let one that went on go on without us."""
        if self._phase is _Phase.PASSING:
            return self._end(End.CANCELLED)
        if refusal is refusals.OUT_OF_ORDER:
            self._counts.refused_order += 1
        abandon: list[Effect] = [Abandon()] if self._phase is _Phase.DECIDING else []
        return [*abandon, *self._refused(refusal)]


def _ends(body: HttpBody) -> bool:
    return body.end_of_stream or body.end_of_stream_without_message
