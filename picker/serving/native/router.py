"""Which call a request is: by its method, for who may ask it, within the time that its client names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from picker.serving.counts import Counts
from picker.serving.guard import REFUSAL
from picker.serving.http2.headers import Request
from picker.serving.http2.limits import Counts as Http2Counts
from picker.serving.http2.stream import Handler, Stream
from picker.serving.native.calls import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    Call,
    RefusedCallError,
    seconds_of,
)
from picker.serving.native.deadlines import Deadlines
from picker.serving.native.unserved import Refusal, Stranger
from picker.tls import names_shown

log = structlog.get_logger(__name__)

STRANGER_SECONDS = 10.0
"""How long a request that is not gRPC may take to be whole."""

REFUSE_SECONDS = 0.1
"""How long a call that is not served may take to begin before it is told so."""

Open = Callable[[Stream, float | None], Call]
"""Serves a new stream by a deadline, or raises `RefusedCallError`."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method."""

    open: Open
    guarded: bool = False
    """Whether only clients with an allowed name may ask."""


class Router:
    """Finds the call for each new stream of one port."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        deadlines: Deadlines,
        counts: Counts,
        http2: Http2Counts,
        clock: Callable[[], float],
    ) -> None:
        self._routes = {path.encode(): route for path, route in routes.items()}
        self._deadlines = deadlines
        self._counts = counts
        self._http2 = http2
        self._clock = clock
        self._said: set[bytes] = set()
        """Services that strangers were refused, each told of once."""

    def accept(
        self, stream: Stream, request: Request, stranger: Mapping[str, list[bytes]] | None = None
    ) -> Handler:
        """Serve a stream; ``stranger``: the names of a client that has none of the allowed ones; None: it may ask."""
        if not request.grpc and not request.too_large:
            self._http2.streams_denied += 1
            return self._waiting(Stranger(stream, self._clock() + STRANGER_SECONDS, self._deadlines.drop))
        try:
            return self._opened(stream, request, stranger)
        except RefusedCallError as error:
            self._http2.streams_denied += 1
            return self._waiting(Refusal(stream, self._clock() + REFUSE_SECONDS, self._deadlines.drop, error))

    def _opened(self, stream: Stream, request: Request, stranger: Mapping[str, list[bytes]] | None) -> Call:
        if request.too_large:
            raise RefusedCallError(RESOURCE_EXHAUSTED, "too large headers")
        route = self._routes.get(request.path)
        if route is None:
            raise RefusedCallError(UNIMPLEMENTED, "no such method")
        if route.guarded and stranger is not None:
            self._counts.refused_identity += 1
            self._say_once(request.path, stranger)
            raise RefusedCallError(PERMISSION_DENIED, REFUSAL)
        if not request.timeout:
            return route.open(stream, None)
        seconds = seconds_of(request.timeout)
        if seconds is None:
            raise RefusedCallError(INTERNAL, "grpc-timeout is not to be understood")
        if seconds <= 0:
            self._http2.deadlines += 1
            raise RefusedCallError(DEADLINE_EXCEEDED, "the deadline that the client named has passed")
        return route.open(stream, self._clock() + seconds)

    def _waiting(self, handler: Stranger | Refusal) -> Handler:
        if handler.deadline is not None:
            self._deadlines.put(handler, handler.deadline)
        return handler

    def _say_once(self, path: bytes, stranger: Mapping[str, list[bytes]]) -> None:
        if path not in self._said:
            self._said.add(path)
            log.warning(
                "a client's certificate has none of the names in PICKER_TLS_CLIENT_NAMES",
                names=names_shown(stranger),
            )
