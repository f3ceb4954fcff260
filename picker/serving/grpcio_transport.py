"""ext_proc over grpcio: one coroutine per stream, raw bytes in and out, the exchange in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import grpc
import structlog

from picker.serving import encoded, refusals
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
    SendBody,
)
from picker.serving.exchange import Exchange, Hold
from picker.serving.methods import PROCESS
from picker.serving.seam import HttpRequest, Picked, Refused, Requests
from picker.serving.shown import read
from picker.serving.streams import CLOSE_SECONDS, WRITE_SECONDS, Streams
from picker.settings import ServingSettings

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

METHOD = PROCESS


class ExtProc(grpc.GenericRpcHandler):
    """The ext_proc service: every open stream of one server, and what they share."""

    def __init__(
        self,
        settings: ServingSettings,
        requests: Requests,
        *,
        hold: Callable[[], Hold],
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self.shared = Streams(settings, requests, hold=hold, counts=counts, clock=clock)
        self.requests = requests
        self.counts = counts
        self.clock = clock
        self.budget = self.shared.budget
        self.streams: set[Stream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            cast("Any", self._process)
        )

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of our one method."""
        return self._handler if details.method == METHOD else None

    async def drain(self, timeout: float) -> int:
        """Wait until no stream is open, at most ``timeout`` seconds; then close the rest with OK. Says how many."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout)
        rest = tuple(self.streams)
        for stream in rest:
            stream.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), CLOSE_SECONDS)
        return len(rest)

    async def _process(self, _: Any, context: Context) -> None:
        exchange = self.shared.begin(self.clock())
        stream = Stream(self, exchange, context)
        self.streams.add(stream)
        self._idle.clear()
        try:
            await stream.run()
        finally:
            self.streams.discard(stream)
            if not self.streams:
                self._idle.set()
            self.shared.ended()


class Stream:
    """One open stream: reads, lets the exchange judge, performs what it asks for."""

    __slots__ = ("_closing", "_context", "_exchange", "_owner", "_pick", "_read", "_wake")

    def __init__(self, owner: ExtProc, exchange: Exchange, context: Context) -> None:
        self._owner = owner
        self._exchange = exchange
        self._context = context
        self._read: asyncio.Future[Any] | None = None
        self._pick: asyncio.Future[Picked | Refused] | None = None
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = False

    def drain(self) -> None:
        """Ask the stream to close with OK."""
        if not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Serve the stream to its end; returning ends it with OK."""
        exchange, clock = self._exchange, self._owner.clock
        effects: list[Effect] = []
        try:
            while not self._closing:
                await self._perform(await self._next())
        except asyncio.CancelledError:
            effects = exchange.cancelled(clock())
            raise
        finally:
            # nothing left to say after a close; a break after a defect or an answer that was not taken
            effects += exchange.broken(clock())
            exchange.performed()
            self._wake.cancel()
            if self._read is not None:
                self._read.cancel()
            self._abandon()
            self._tell(effects)

    async def _next(self) -> list[Effect]:
        """What the next event asks for."""
        exchange, clock = self._exchange, self._owner.clock
        if self._read is None:
            self._read = asyncio.ensure_future(self._context.read())
        waiting: set[asyncio.Future[Any]] = {self._read, self._wake}
        if self._pick is not None:
            waiting.add(self._pick)
        left = None if exchange.deadline is None else max(0.0, exchange.deadline - clock())
        done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        now = clock()
        if self._pick is not None and self._pick in done:
            pick, self._pick = self._pick, None
            return exchange.decided(_answer(pick, self._owner.counts), now)
        if self._read in done:
            read, self._read = self._read, None
            return self._received(read.result(), now)
        if self._wake in done:
            return exchange.drain(now)
        return exchange.expired(now)

    def _received(self, data: Any, now: float) -> list[Effect]:
        if data is grpc.aio.EOF:
            return self._exchange.half_closed(now)
        return self._exchange.receive(read(data), now)

    async def _perform(self, effects: list[Effect]) -> None:
        # what the picker has to know first: a write may be cut off
        self._tell(effects)
        sends = [effect for effect in effects if isinstance(effect, Send | SendBody)]
        if sends:
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    for send in sends:
                        await self._send(send)
            except TimeoutError:
                self._owner.counts.write_timeouts += 1
                self._closing = True
        self._exchange.performed()

    async def _send(self, send: Send | SendBody) -> None:
        if isinstance(send, Send):
            await self._context.write(send.data)
            return
        for data in encoded.streamed(send.body, end=send.end, response=send.response):
            await self._context.write(data)

    def _tell(self, effects: list[Effect]) -> None:
        requests = self._owner.requests
        for effect in effects:
            match effect:
                case Decide(request):
                    self._pick = _asked(requests, request)
                case Abandon():
                    self._abandon()
                case ResponseSeen(booking_id, response):
                    requests.responded(booking_id, response)
                case BodySeen(booking_id):
                    requests.body_seen(booking_id)
                case Over(booking_id, end):
                    requests.over(booking_id, end)
                case Close():
                    self._closing = True

    def _abandon(self) -> None:
        pick, self._pick = self._pick, None
        if pick is not None:
            pick.add_done_callback(self._came_too_late)
            pick.cancel()

    def _came_too_late(self, pick: asyncio.Future[Picked | Refused]) -> None:
        if not pick.cancelled():
            answer = _answer(pick, self._owner.counts)
            self._tell(self._exchange.decided(answer, self._owner.clock()))


def _asked(requests: Requests, request: HttpRequest) -> asyncio.Future[Picked | Refused]:
    answer = requests.pick(request)
    if not isinstance(answer, Picked | Refused):
        return asyncio.ensure_future(answer)
    made: asyncio.Future[Picked | Refused] = asyncio.get_running_loop().create_future()
    made.set_result(answer)
    return made


def _answer(pick: asyncio.Future[Picked | Refused], counts: Counts) -> Picked | Refused:
    if pick.cancelled():
        return refusals.PICK_FAILED
    error = pick.exception()
    if error is None:
        return pick.result()
    counts.pick_errors += 1
    log.error("a pick raised", exc_info=error)
    return refusals.PICK_FAILED
