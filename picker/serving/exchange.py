"""One ext_proc stream as a state machine: messages in, effects out; no input or output, no clock, no logging.

The gateway's messages go in through `Exchange.receive`, the pick's answer through `Exchange.decided`, the end of the
stream and the passing of time through methods of their own. Each returns the effects that the transport has to perform,
and nothing raises. Every `Picked` that goes in is answered by exactly one `Over`.

Which message gets which answer, by body mode, is the table of docs/ext-proc-modes.md. An override of the response's
mode (`Limits.mode_override`) goes with the decision in a HeadersResponse; answers follow the mode told at first, so a
gateway that ignores it is served right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from picker.serving import encoded, refusals
from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import Abandon, BodySeen, Close, Decide, Effect, Over, ResponseSeen, Send
from picker.serving.modes import FULL_DUPLEX, MODE_UNTOLD, STREAMED, BodyMode
from picker.serving.reading import responded
from picker.serving.refusals import RefusedError
from picker.serving.request_side import AT_BODY, AT_DUPLEX, AT_HEADERS, AT_TRAILERS, Awaiting, RequestSide
from picker.serving.response_side import AT_ONCE_SECONDS, Hold, ResponseSide
from picker.serving.seam import End, Picked, Refused
from picker.serving.shown import Shown, shown_of
from picker.serving.wire.extproc_pb2 import ProcessingRequest

__all__ = ["AT_ONCE_SECONDS", "Exchange", "Hold", "Limits"]

GUESS_SECONDS = 0.1
"""How long a gateway that names no body mode may take to send a body unasked; its message timeout starts at 0.2 s."""
MAX_MESSAGES = 4_000_000
"""Most messages of one stream."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one stream may take. Sizes in bytes, times in seconds."""

    max_body: int
    body_timeout: float
    stream_timeout: float
    mode: BodyMode = MODE_UNTOLD
    """Request body mode that overrides what the gateway says."""
    mode_override: bool = False
    """Whether to ask for another response body mode where that is of use."""


class _Phase(Enum):
    NEW = auto()  # nothing came yet
    BODY = auto()  # the request's body is being collected
    DECIDING = auto()  # a pick is in progress
    PASSING = auto()  # the request went on, with or without a pick: the rest is passed through
    OBSERVING = auto()  # observability mode: nothing is answered
    OVER = auto()


# by names of their own: see `picker.serving.modes`
_NEW, _BODY, _DECIDING, _PASSING, _OBSERVING, _OVER = _Phase


class Exchange:
    """One stream. ``hold`` is asked at response headers until when the stream is to be held.

    A stream whose response somebody here changes is held to its end, whatever ``hold`` says: bytes that went past us
    changed cannot go on without us. One that is only read is not: where ``hold`` says ``headers``, it is not read.

    ``refuse``, where given, is the answer to whatever request comes: for a stream beyond the bound.
    """

    __slots__ = (
        "_counts",
        "_hold",
        "_limits",
        "_messages",
        "_open_booking",
        "_phase",
        "_refuse",
        "_request",
        "_response",
        "deadline",
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
        self._phase = _NEW
        self.deadline: float | None = now + limits.body_timeout
        """When `expired` has to be called, unless something else comes first; None: never."""
        self._messages = 0
        self._open_booking = ""
        self._request = RequestSide(limits, budget=budget, counts=counts)
        self._response = ResponseSide(budget=budget, counts=counts)

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return self._phase is _OVER

    # -- what comes in ------------------------------------------------------------------------------------------

    def receive(self, message: Shown | ProcessingRequest, now: float) -> list[Effect]:
        """A message of the gateway."""
        if not isinstance(message, Shown):
            message = shown_of(message)
        if self._phase is _OVER or self._phase is _OBSERVING:
            return []
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            self._counts.closed_flooded += 1
            return self._end(End.CLOSED_BY_US)
        if self._phase is _NEW and message.observed:
            self._phase, self.deadline = _OBSERVING, now + self._limits.stream_timeout
            self._counts.observed += 1
            return []
        kind = message.kind
        if not kind:
            self._counts.unreadable += 1
            return self._give_up(refusals.OUT_OF_ORDER)
        if self._phase is _PASSING:
            self.deadline = now + self._limits.stream_timeout
        try:
            if kind == "request_headers":
                return self._request_headers(message, now)
            if kind == "request_body":
                return self._request_body(message, now)
            if kind == "request_trailers":
                return self._request_trailers(now)
        except RefusedError as refused:
            return self._refused(refused.refusal)
        return self._response_message(kind, message, now)

    def decided(self, answer: Picked | Refused, now: float) -> list[Effect]:
        """The answer to the last `Decide`; it may come too late."""
        if self._phase is not _DECIDING:
            # never told to the gateway: no worker knows of it
            return [Over(answer.booking_id, End.PROVEN)] if isinstance(answer, Picked) else []
        self._phase, self.deadline = _PASSING, now + self._limits.stream_timeout
        if isinstance(answer, Refused):
            return self._refused(answer)
        try:
            return self._answered(answer)
        except RefusedError as refused:
            return [Over(answer.booking_id, End.PROVEN), *self._refused(refused.refusal)]

    def performed(self) -> None:
        """All effects handed out so far are done: what they held in memory is free."""
        body = self._request.body
        if body.paid and (self._phase is _PASSING or self._phase is _OVER):
            body.forget()

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
        self._response.drop()
        return self._end(End.CANCELLED)

    def overrun(self) -> list[Effect]:
        """A message that is still coming cannot be kept: the memory for bodies is in use."""
        if self._phase is _PASSING or self._phase is _OBSERVING:
            return self._end(End.CLOSED_BY_US)
        if self._phase is _OVER:
            return []
        self._counts.refused_memory += 1
        return self._refused(refusals.MEMORY_FULL)

    def oversized(self) -> list[Effect]:
        """A message that is larger than any body may be was not read; does nothing where no body is awaited."""
        if self._phase is not _BODY:
            return []
        self._counts.refused_too_large += 1
        return self._refused(refusals.too_large(self._limits.max_body))

    def expired(self, now: float) -> list[Effect]:
        """The deadline passed; does nothing before it."""
        if self.deadline is None or now < self.deadline:
            return []
        if self._phase is _BODY and self._request.mode is MODE_UNTOLD:
            # whatever the mode is, a decision in the headers answer is right
            self._counts.modes_guessed += 1
            return self._decide(AT_HEADERS, now)
        if self._phase is _BODY and self._request.ahead:
            self._counts.bodies_ahead += 1
            return self._decide(AT_HEADERS, now, ended=False, collected=True)
        if self._phase is _BODY:
            self._counts.body_timeouts += 1
            return self._refused(refusals.BODY_TIMEOUT)
        if self._phase is _DECIDING:
            self._counts.pick_timeouts += 1
            return self._refused(refusals.PICK_TIMEOUT)
        if self._phase is _NEW:
            self._counts.closed_silent += 1
        else:
            self._counts.closed_idle += 1
        return self._end(End.CLOSED_BY_US)

    def drain(self, now: float) -> list[Effect]:
        """The replica goes away and waits no longer."""
        if self._phase in (_BODY, _DECIDING):
            self._counts.refused_draining += 1
            return self._give_up(refusals.SHUTTING_DOWN)
        if self._phase is not _OVER:
            self._counts.closed_draining += 1
        return self._end(End.DRAINED)

    # -- the request --------------------------------------------------------------------------------------------

    def _request_headers(self, message: Shown, now: float) -> list[Effect]:
        if self._phase is not _NEW:
            return self._unexpected()
        if self._refuse is not None:
            return self._refused(self._refuse)
        request = self._request
        request.headers(message)
        self._response.told = request.told.response
        if message.end:
            return self._decide(AT_HEADERS, now)
        if request.ahead or request.mode is MODE_UNTOLD:
            wait = min(GUESS_SECONDS, self._limits.body_timeout)
        elif request.mode.collects:
            wait = self._limits.body_timeout
        else:
            return self._decide(AT_HEADERS, now)
        if not request.ahead:
            request.check_declared()
        self._phase, self.deadline = _BODY, now + wait
        return request.headers_passed() if request.mode.whole else []

    def _request_body(self, message: Shown, now: float) -> list[Effect]:
        end, request = message.end, self._request
        if self._phase is _DECIDING:
            request.owe(message.body, end=end)
            return []
        if self._phase is _PASSING:
            return request.passed(message.body, end=end)
        if self._phase is not _BODY:
            return self._unexpected()
        if request.ahead:
            kept = request.add_ahead(message.body, end=end)
            if kept and not end:
                return []
            self._counts.bodies_ahead += not kept
            return self._decide(AT_HEADERS, now, ended=kept, collected=kept)
        if request.mode is MODE_UNTOLD:
            # a body before its headers were answered
            request.mode = FULL_DUPLEX
            self.deadline = now + self._limits.body_timeout
        request.add(message.body)
        if request.mode is not FULL_DUPLEX:
            # the one message with the whole body; its end of stream is missing where trailers follow
            return self._decide(AT_BODY, now, ended=end)
        return self._decide(AT_DUPLEX, now) if end else []

    def _request_trailers(self, now: float) -> list[Effect]:
        request = self._request
        if self._phase is _PASSING:
            return request.trailers_passed()
        if self._phase is _DECIDING or (self._phase is _BODY and request.ahead):
            request.owe_trailers()
            ahead = self._phase is _BODY
            return self._decide(AT_HEADERS, now, collected=True) if ahead else []
        if self._phase is not _BODY or request.mode.whole:
            return self._unexpected()
        request.mode = FULL_DUPLEX
        return self._decide(AT_TRAILERS, now)

    def _decide(
        self, awaiting: Awaiting, now: float, *, ended: bool = True, collected: bool = False
    ) -> list[Effect]:
        asked = self._request.asked(awaiting, ended=ended, collected=collected)
        self._phase, self.deadline = _DECIDING, now + self._limits.body_timeout
        return [Decide(asked)]

    def _answered(self, picked: Picked) -> list[Effect]:
        """The decision on its way to the gateway; nothing is booked before all of it is sure to be sent."""
        response = self._response
        if picked.reading is not None:
            response.expect(picked.reading)
        asked = self._request.override(reads=response.read)
        if asked is STREAMED and not response.rewrites and self._hold() == "headers":
            asked = None  # the stream will be gone before the body comes
        effects = self._request.answers(picked, shown=asked)
        response.override(asked)
        self._counts.decided += 1
        self._open_booking = picked.booking_id
        return effects

    # -- the response -------------------------------------------------------------------------------------------

    def _response_message(self, kind: str, message: Shown, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._phase is not _PASSING:
            # the gateway answers by itself, or shows us no request: nothing is booked
            if self._phase is _DECIDING:
                effects += self._abandoned()
            self._counts.local_replies += 1
            self._request.drop()
            self._phase, self.deadline = _PASSING, now + self._limits.stream_timeout
        if kind == "response_headers":
            return effects + self._response_headers(message, now)
        if kind == "response_body":
            return effects + self._response_body(message)
        effects += self._response.finish(self._response_mode())
        return [*effects, Send(encoded.RESPONSE_TRAILERS_PASSED), *self._booking_over(End.PROVEN)]

    def _response_headers(self, message: Shown, now: float) -> list[Effect]:
        effects: list[Effect] = []
        end, headers = message.end, message.headers or {}
        response, unreached = responded(headers, message.attributes, message.served)
        if self._open_booking:
            effects.append(ResponseSeen(self._open_booking, response))
        effects.append(Send(encoded.RESPONSE_HEADERS_PASSED))
        if end or unreached:
            effects += self._booking_over(End.PROVEN)
        if not self._response.headers(response, headers, now, over=end or unreached, hold=self._hold):
            effects += self._end(End.CLOSED_BY_US)
        return effects

    def _response_body(self, message: Shown) -> list[Effect]:
        data, end = message.body, message.end
        effects: list[Effect] = []
        if self._response.first_bytes(data) and self._open_booking:
            effects.append(BodySeen(self._open_booking))
        effects += self._response.piece(data, self._response_mode(), end=end)
        return effects + self._booking_over(End.PROVEN) if end else effects

    def _response_mode(self) -> BodyMode:
        told = self._response.told
        return told if told is not MODE_UNTOLD else self._request.mode

    # -- ends ---------------------------------------------------------------------------------------------------

    def _booking_over(self, end: End) -> list[Effect]:
        booking, self._open_booking = self._open_booking, ""
        return [Over(booking, end)] if booking else []

    def _abandoned(self) -> list[Effect]:
        self._counts.abandoned += 1
        return [Abandon()]

    def _end(self, end: End) -> list[Effect]:
        """The stream is over: the one place where that happens, but for refusals."""
        if self._phase is _OVER:
            return []
        effects = self._abandoned() if self._phase is _DECIDING else []
        effects += self._booking_over(end)
        if self._response.read:
            effects += self._response.finish(self._response_mode())
        return effects + self._closed()

    def _closed(self) -> list[Effect]:
        if self._phase is not _PASSING:
            self._request.drop()
        self._phase, self.deadline = _OVER, None
        return [Close()]

    def _let_go(self, now: float) -> list[Effect]:
        if self._response.read:
            self._response.drop()
        return self._end(End.CANCELLED if self._response.too_early(now) else End.HALF_CLOSED)

    def _refused(self, refusal: Refused) -> list[Effect]:
        self._counts.refused += 1
        abandon: list[Effect] = [Abandon()] if self._phase is _DECIDING else []
        return [*abandon, Send(encoded.refused(refusal)), *self._closed()]

    def _unexpected(self) -> list[Effect]:
        self._counts.out_of_order += 1
        return self._give_up(refusals.OUT_OF_ORDER)

    def _give_up(self, refusal: Refused) -> list[Effect]:
        """Refuse a request that was not answered yet; let one that went on go on without us."""
        if self._phase is _PASSING:
            return self._end(End.CANCELLED)
        if refusal is refusals.OUT_OF_ORDER:
            self._counts.refused_order += 1
        return self._refused(refusal)
