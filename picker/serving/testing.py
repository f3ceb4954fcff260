"""For tests: a gateway that talks to one exchange under a clock of its own, and a reading that does as it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from picker.serving import encoded
from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import Effect, Over, Send, SendBody
from picker.serving.exchange import Exchange, Hold, Limits
from picker.serving.gateway import (
    POST,
    request_body,
    request_headers,
    response_body,
    response_headers,
)
from picker.serving.modes import BodyMode
from picker.serving.seam import End, Picked, Refused, Responded
from picker.serving.wire.extproc_pb2 import (
    ProcessingRequest,
    ProcessingResponse,
)

PICKED = Picked(destination="10.0.0.1:8000", booking_id="booking-1")
LIMITS = Limits(max_body=1 << 20, body_timeout=60.0, stream_timeout=600.0)


class ScriptedReading:
    """A reading that does as it is told, and remembers what it saw."""

    def __init__(
        self, change: Callable[[bytes, bool], bytes | None] = lambda data, end: None, *, rewrites: bool = True
    ) -> None:
        self.rewrites = rewrites
        self.begun: list[Responded] = []
        self.pieces: list[tuple[bytes, bool]] = []
        self._change = change

    def begin(self, response: Responded) -> None:
        """Remember the headers."""
        self.begun.append(response)

    def piece(self, data: bytes, *, end: bool) -> bytes | None:
        """Remember the piece and change it as told."""
        self.pieces.append((data, end))
        return self._change(data, end)


class Gateway:
    """One stream's gateway. Every method returns the effects of what it did; ``now`` is the clock."""

    def __init__(
        self,
        *,
        mode: BodyMode = BodyMode.UNTOLD,
        response_mode: BodyMode = BodyMode.NONE,
        ahead: bool = False,
        hold: Hold = "response",
        limits: Limits = LIMITS,
        budget: int = 1 << 30,
        refuse: Refused | None = None,
    ) -> None:
        self.now = 1000.0
        self.counts = Counts()
        self.budget = Budget(budget)
        self.overs: list[tuple[str, End]] = []
        self._mode = mode
        self._response_mode = response_mode
        self._ahead = ahead
        self.exchange = Exchange(
            limits,
            budget=self.budget,
            hold=lambda: hold,
            counts=self.counts,
            now=self.now,
            refuse=refuse,
        )

    def request_headers(self, headers: Mapping[str, str] = POST, *, end: bool = False) -> list[Effect]:
        """Send the first message, which names the modes."""
        return self.send(
            request_headers(
                headers, end=end, mode=self._mode, response_mode=self._response_mode, ahead=self._ahead
            )
        )

    def request_body(self, body: bytes, *, end: bool = True) -> list[Effect]:
        """Send a piece of the request's body."""
        return self.send(request_body(body, end=end))

    def response_headers(self, status: int = 200, **more: Any) -> list[Effect]:
        """Send response headers."""
        return self.send(response_headers(status, **more))

    def response_body(self, body: bytes, *, end: bool = False) -> list[Effect]:
        """Send a piece of the response's body."""
        return self.send(response_body(body, end=end))

    def send(self, message: ProcessingRequest) -> list[Effect]:
        """Send any message."""
        return self._noted(self.exchange.receive(message, self.now))

    def decided(self, answer: Picked | Refused = PICKED) -> list[Effect]:
        """Let the pick end."""
        return self._noted(self.exchange.decided(answer, self.now))

    def half_close(self) -> list[Effect]:
        """Close the gateway's side of the stream."""
        return self._noted(self.exchange.half_closed(self.now))

    def cancel(self) -> list[Effect]:
        """Break the stream."""
        return self._noted(self.exchange.cancelled(self.now))

    def drain(self) -> list[Effect]:
        """Let the replica go away."""
        return self._noted(self.exchange.drain(self.now))

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass."""
        self.now += seconds
        return self._noted(self.exchange.expired(self.now))

    def up_to_pick(self, body: bytes = b"{}") -> None:
        """Send a whole request in the gateway's mode and have it picked."""
        self.request_headers()
        if self._mode.collects:
            self.request_body(body)
        self.decided()

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        self.overs += [(effect.booking_id, effect.end) for effect in effects if isinstance(effect, Over)]
        self.exchange.performed()
        return effects


def answers(effects: list[Effect]) -> list[ProcessingResponse]:
    """The messages that some effects send."""
    messages: list[ProcessingResponse] = []
    for effect in effects:
        if isinstance(effect, Send):
            messages.append(effect.message)
        elif isinstance(effect, SendBody):
            pieces = encoded.streamed(effect.body, end=effect.end, response=effect.response)
            messages += map(ProcessingResponse.FromString, pieces)
    return messages
