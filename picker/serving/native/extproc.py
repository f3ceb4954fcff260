"""ext_proc as calls: what comes goes into the stream's exchange, what the exchange asks for is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog

from picker.serving import encoded, refusals
from picker.serving.effects import (
    BodySeen,
    Close,
    Decide,
    Effect,
    Over,
    ResponseSeen,
    Send,
    SendBody,
)
from picker.serving.exchange import Exchange
from picker.serving.http2 import frames
from picker.serving.http2.stream import Stream
from picker.serving.native.calls import DEADLINE_EXCEEDED, NOT_COMPRESSED, Call, Shared, prefix
from picker.serving.native.deadlines import SLOT_SECONDS, Deadlines
from picker.serving.seam import HttpRequest, Picked, Refused
from picker.serving.shown import read
from picker.serving.streams import WRITE_SECONDS, Streams

log = structlog.get_logger(__name__)

_ANSWERS = (Picked, Refused)
"""Not as a union: that is built anew wherever it is asked for."""


class ExtProc:
    """The ext_proc service: every open call of one server."""

    def __init__(self, streams: Streams, shared: Shared, deadlines: Deadlines) -> None:
        self.streams = streams
        self.requests = streams.requests
        self.clock = streams.clock
        self.shared = shared
        self.deadlines = deadlines
        self.calls: set[ExtProcCall] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self, stream: Stream, deadline: float | None) -> ExtProcCall:
        """A new call; ``deadline`` is its client's."""
        call = ExtProcCall(self, stream, self.streams.begin(self.clock()), deadline)
        if not self.calls:
            self._idle.clear()
        self.calls.add(call)
        call.schedule()
        return call

    def closed(self, call: ExtProcCall) -> None:
        """A call is over."""
        self.deadlines.drop(call)
        self.calls.discard(call)
        self.streams.ended()
        if not self.calls:
            self._idle.set()

    async def idle(self, timeout: float) -> bool:
        """Wait until no call is open, at most ``timeout`` seconds; False where some still are."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def drain(self) -> int:
        """Close all open calls with OK; says how many."""
        rest = tuple(self.calls)
        for call in rest:
            call.drain()
        return len(rest)


class ExtProcCall(Call):
    """One stream of the gateway."""

    __slots__ = ("_answers_by", "_client_deadline", "_exchange", "_over", "_owner", "_pick", "slot")

    def __init__(
        self, owner: ExtProc, stream: Stream, exchange: Exchange, client_deadline: float | None
    ) -> None:
        super().__init__(stream, owner.shared)
        self.slot = 0
        self._over = False
        self._owner = owner
        self._exchange = exchange
        self._pick: asyncio.Future[Picked | Refused] | None = None
        self._client_deadline = client_deadline
        self._answers_by: float | None = None
        """When the gateway has to have taken what waits for it."""

    # -- what comes in ------------------------------------------------------------------------------------------

    def message(self, data: bytes) -> None:
        """A message of the gateway."""
        effects = self._exchange.receive(read(data), self._owner.clock())
        if effects:
            self._perform(effects)
        elif not self._over:
            self.schedule()

    def half_closed(self) -> None:
        """The gateway will send nothing more."""
        self._perform(self._exchange.half_closed(self._owner.clock()))

    def full(self) -> None:
        """The memory for bodies is in use."""
        self._perform(self._exchange.overrun())

    def too_large(self, size: int) -> None:
        """A body that the gateway has buffered is over the limit: the client is told so."""
        if size > self._owner.streams.max_body:
            self._perform(self._exchange.oversized())
        if not self.finished:
            super().too_large(size)

    def drain(self) -> None:
        """Close with OK."""
        try:
            self._perform(self._exchange.drain(self._owner.clock()))
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            self.stream.failed(error)

    # -- deadlines ----------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """The next time that something has to happen."""
        found = self._exchange.deadline
        for other in (self._answers_by, self._client_deadline):
            if other is not None and (found is None or other < found):
                found = other
        return found

    def schedule(self) -> None:
        """Have it told by its deadline."""
        if not self.slot:
            deadline = self.deadline
        else:
            # the exchange's is the only one that moves, most often later: the slot it is in is early enough
            deadline = self._exchange.deadline
            if deadline is None or deadline >= (self.slot - 1) * SLOT_SECONDS:
                return
        if deadline is not None:
            self._owner.deadlines.put(self, deadline)

    def due(self, now: float) -> None:
        """A deadline has passed."""
        try:
            self._due(now)
            if not self._over:
                self.schedule()
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            self.stream.failed(error)

    def _due(self, now: float) -> None:
        owner = self._owner
        if self._answers_by is not None and self._answers_by <= now:
            owner.streams.counts.write_timeouts += 1
            self.stream.reset(frames.CANCEL)
            self.lost()
        elif self._client_deadline is not None and self._client_deadline <= now:
            owner.shared.counts.deadlines += 1
            self._client_deadline = None
            self.fail(DEADLINE_EXCEEDED, "the deadline that the client named has passed")
        else:
            self._perform(self._exchange.expired(now))

    # -- what the exchange asks for -----------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        stream = self.stream
        while effects:
            parts: list[bytes] = []
            more, closes = self._tell(effects, parts)
            if parts:
                self.send_framed(b"".join(parts))
            if not stream.waits:
                self._exchange.performed()
            elif self._answers_by is None:
                self._answers_by = self._owner.clock() + WRITE_SECONDS
                self._owner.deadlines.put(self, self._answers_by)
            if closes:
                self._close()
            effects = more
        if not self._over:
            self.schedule()

    def _tell(self, effects: list[Effect], parts: list[bytes]) -> tuple[list[Effect], bool]:
        """Tell the picker what concerns it, and gather what is to be sent, with its prefixes.

        Returns what a pick that was made at once asks for, and whether the call is to be closed.
        """
        more: list[Effect] = []
        closes, requests = False, self._owner.requests
        for effect in effects:
            # by how often they come
            if isinstance(effect, Send):
                parts += (prefix(NOT_COMPRESSED, len(effect.data)), effect.data)
            elif isinstance(effect, SendBody):
                if len(effect.body) <= encoded.PIECE:
                    parts += _message_parts(effect)
                else:
                    self._send_large(effect, parts)
            elif isinstance(effect, Over):
                requests.over(effect.booking_id, effect.end)
            elif isinstance(effect, Decide):
                more = self._decide(effect.request)
            elif isinstance(effect, ResponseSeen):
                requests.responded(effect.booking_id, effect.response)
            elif isinstance(effect, Close):
                closes = True
            elif isinstance(effect, BodySeen):
                requests.body_seen(effect.booking_id)
            else:
                self._abandon()
        return more, closes

    def _send_large(self, effect: SendBody, parts: list[bytes]) -> None:
        """Have a body cut into messages as the gateway takes them, after what there is to send before it."""
        if parts:
            self.send_framed(b"".join(parts))
            parts.clear()
        self.send_from(encoded.streamed(effect.body, end=effect.end, response=effect.response))

    def _close(self) -> None:
        # what is still to be sent keeps the call open, or the bodies that it holds would belong to nobody
        if not self.finished:
            self.finish()
            if not self.stream.waits:
                self._end()

    def sent(self) -> None:
        """The gateway has taken everything."""
        self._answers_by = None
        self._exchange.performed()
        if self.finished:
            self._end()

    def cancelled(self) -> None:
        """The gateway ended the call, or a fault of its did."""
        self._leave(self._exchange.cancelled(self._owner.clock()))

    def broken(self) -> None:
        """The call is lost."""
        self._leave(self._exchange.broken(self._owner.clock()))

    def _leave(self, effects: list[Effect]) -> None:
        self._tell(effects, [])
        self._exchange.performed()
        self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._owner.closed(self)

    # -- picks --------------------------------------------------------------------------------------------------

    def _decide(self, request: HttpRequest) -> list[Effect]:
        owner = self._owner
        try:
            answer: Picked | Refused | Awaitable[Picked | Refused] = owner.requests.pick(request)
        except Exception:
            # the request is answered all the same
            owner.streams.counts.pick_errors += 1
            log.exception("a pick raised")
            answer = refusals.PICK_FAILED
        if isinstance(answer, _ANSWERS):
            return self._exchange.decided(answer, owner.clock())
        pick = self._pick = asyncio.ensure_future(answer)
        pick.add_done_callback(self._picked)
        return []

    def _picked(self, pick: asyncio.Future[Picked | Refused]) -> None:
        streams = self._owner.streams
        late = pick is not self._pick
        if late and pick.cancelled():
            return
        try:
            effects = self._exchange.decided(_answer(pick, streams.counts), streams.clock())
            if late:
                self._tell(effects, [])
                return
            self._pick = None
            self._perform(effects)
        except Exception as error:  # noqa: BLE001 - one stream's defect must not touch another
            self.stream.failed(error)

    def _abandon(self) -> None:
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.cancel()


def _message_parts(effect: SendBody) -> tuple[bytes, ...]:
    """One message with its prefix, in parts."""
    body = effect.body
    if not body and not effect.end:
        return ()
    head, tail = encoded.around(len(body), effect.end, effect.response)
    return prefix(NOT_COMPRESSED, len(head) + len(body) + len(tail)), head, body, tail


def _answer(pick: asyncio.Future[Picked | Refused], counts: Any) -> Picked | Refused:
    if pick.cancelled():
        return refusals.PICK_FAILED
    error = pick.exception()
    if error is None:
        return pick.result()
    counts.pick_errors += 1
    log.error("a pick raised", exc_info=error)
    return refusals.PICK_FAILED
