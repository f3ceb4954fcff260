"""The response's half of one stream: what passes us of it, and whether the stream is held for it.

Pure, and without a say in bookings: `picker.serving.exchange` asks it at the right time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from picker.serving import encoded
from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import Effect, Send, SendBody
from picker.serving.modes import BUFFERED, FULL_DUPLEX, MODE_UNTOLD, NONE, STREAMED, BodyMode
from picker.serving.passage import Passage
from picker.serving.seam import Responded, ResponseReading

Hold = Literal["headers", "response"]

AT_ONCE_SECONDS = 0.1
"""A half-close this soon after the headers of an event stream is no end of it."""


class ResponseSide:
    """What one response showed so far."""

    __slots__ = (
        "_asked",
        "_at_headers",
        "_budget",
        "_counts",
        "_declared",
        "_event_stream",
        "_passage",
        "_seen",
        "told",
    )

    def __init__(self, *, budget: Budget, counts: Counts) -> None:
        self.told = MODE_UNTOLD
        """The mode that the gateway named; an override may be obeyed or not, so pieces are judged as they come."""
        self._asked: BodyMode | None = None
        self._budget = budget
        self._counts = counts
        self._passage: Passage | None = None
        self._at_headers: float | None = None
        self._event_stream = False
        self._declared = False
        self._seen = False

    def expect(self, reading: ResponseReading) -> None:
        """Somebody wants to see the body."""
        self._passage = Passage(reading, budget=self._budget, counts=self._counts)

    def override(self, asked: BodyMode | None) -> None:
        """The gateway was asked for this mode; None: for none."""
        self._asked = asked
        if not self.told.shows and asked is not STREAMED:
            self._passage = None

    @property
    def read(self) -> bool:
        """Whether somebody wants to see what is still to come."""
        return self._passage is not None

    @property
    def rewrites(self) -> bool:
        """Whether somebody may change what is still to come."""
        return self._passage is not None and self._passage.rewrites

    def too_early(self, now: float) -> bool:
        """Whether the response cannot be over yet: no headers came, or just now those of an event stream."""
        if self._at_headers is None:
            return True
        return self._event_stream and now - self._at_headers < AT_ONCE_SECONDS

    def headers(
        self,
        response: Responded,
        headers: Mapping[str, str],
        now: float,
        *,
        over: bool,
        hold: Callable[[], Hold],
    ) -> bool:
        """Begin the reading, unless the response is ``over``; returns whether the stream has to be held."""
        again, self._at_headers = self._at_headers is not None, now
        self._event_stream = response.event_stream
        self._declared = "content-length" in headers
        # a response that is answered piece by piece goes on without us, all others need us to their end
        free = self.told is NONE or self.told is STREAMED
        lets_go = free and hold() == "headers"
        passage = self._passage
        if passage is None or again:
            return not lets_go or self.rewrites
        if over or (lets_go and not passage.rewrites):
            self._passage = None
        else:
            passage.begin(response)
        return not lets_go or self.rewrites

    def first_bytes(self, data: bytes) -> bool:
        """Whether these are the first bytes of the body."""
        if self._seen or not data:
            return False
        self._seen = True
        return True

    def piece(self, data: bytes, mode: BodyMode, *, end: bool) -> list[Effect]:
        """The answer to a piece of the body in the mode ``mode``: what goes on in its place."""
        if self._asked is NONE:
            self._asked = None
            self._counts.overrides_ignored += 1
        changed = data
        if self._passage is not None:
            # a buffered body is all that is shown, though trailers or an unshown rest may follow
            changed = self._passage.piece(data, end=end or mode.whole)
        if mode is FULL_DUPLEX:
            return [SendBody(changed, end, response=True)] if changed or end else []
        if changed is data or changed == data:
            return [Send(encoded.RESPONSE_BODY_PASSED)]
        length = mode is BUFFERED and self._declared
        return [Send(encoded.response_body_changed(changed, length=length))]

    def finish(self, mode: BodyMode) -> list[Effect]:
        """No piece follows, though none ended the body: what was held back goes on where it still can."""
        tail = b""
        if self._passage is not None:
            tail = self._passage.finish()
            self._passage = None
        if tail and mode is FULL_DUPLEX:
            return [SendBody(tail, end=False, response=True)]
        self._counts.response_tails_lost += bool(tail)
        return []

    def drop(self) -> None:
        """The gateway is gone: nothing goes on."""
        if self._passage is not None:
            self._passage.drop()
            self._passage = None
