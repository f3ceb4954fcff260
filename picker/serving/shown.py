"""A gateway's message as far as it concerns us: read from its bytes, or from the protobuf runtime's picture of it.

`read` looks at the bytes itself where they are laid out as gateways lay them out, each part once and none unknown, and
leaves all others to the runtime; `shown_of` says what either way comes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from google.protobuf.message import DecodeError

from picker.serving.known import UnusualError, length
from picker.serving.known import headers as headers_in
from picker.serving.messages import message_of
from picker.serving.reading import (
    MAX_HEADER_BYTES,
    HeadersTooLargeError,
    attributes_of,
    headers_of,
    is_control,
    served_of,
    subset_of,
)
from picker.serving.wire.extproc_pb2 import ProcessingRequest

KNOWN_EXTRA_SIZE = 1_024
"""Longest metadata and attributes that are remembered as they were read."""

_KINDS = {
    0x12: "request_headers",
    0x1A: "response_headers",
    0x22: "request_body",
    0x2A: "response_body",
    0x32: "request_trailers",
    0x3A: "response_trailers",
}
"""First byte of a field -> its name."""
_BODIES = {tag: kind for tag, kind in _KINDS.items() if kind.endswith("body")}
_EXTRA, _OBSERVED, _PROTOCOL = (0x42, 0x4A), 0x50, 0x5A
"""Metadata and attributes, observability mode, protocol configuration."""
_HEADERS, _HEADERS_END = 0x0A, 0x18
_BODY, _BODY_END, _BODY_END_EMPTY, _BODY_COMPRESSED = 0x0A, 0x10, 0x18, 0x20

Extra = tuple[tuple[str, ...] | None, Mapping[str, str], str]
"""The subset, the attributes, and who served."""

_NO_HEADERS: Mapping[str, str] = {}
_NO_EXTRA: Extra = (None, {}, "")


class Shown:
    """One message. What it does not concern is as in a message without it.

    Made for every message, so without naming what it is given: that costs time.
    """

    __slots__ = (
        "attributes",
        "body",
        "control",
        "end",
        "headers",
        "kind",
        "modes",
        "observed",
        "served",
        "subset",
    )

    def __init__(
        self,
        kind: str,
        observed: bool = False,
        end: bool = False,
        body: bytes = b"",
        headers: Mapping[str, str] | None = _NO_HEADERS,
        control: tuple[str, ...] = (),
        modes: tuple[int, int, bool] | None = None,
        extra: Extra = _NO_EXTRA,
    ) -> None:
        self.kind = kind
        """Which message it is, as the oneof names it; empty: none."""
        self.observed = observed
        """Observability mode: nothing is to be answered."""
        self.end = end
        """Whether the body ends with it."""
        self.body = body
        self.headers = headers
        """By lower-case name; None: more or longer ones than are read."""
        self.control = control
        """Names of the control headers among them."""
        self.modes = modes
        """Numbers of the request's and response's body modes, and whether bodies are sent ahead; None: not told."""
        self.subset, self.attributes, self.served = extra


def read(data: bytes) -> Shown:
    """The message; one of no kind where it is none. Never raises."""
    try:
        return _bare_body(data) or _plain(data)
    except (UnusualError, IndexError, DecodeError, UnicodeDecodeError):
        return shown_of(message_of(data))


def shown_of(message: ProcessingRequest) -> Shown:
    """What a message of the protobuf runtime shows."""
    kind, observed, modes = message.WhichOneof("request") or "", message.observability_mode, None
    if kind == "request_body" or kind == "response_body":
        body = message.request_body if kind == "request_body" else message.response_body
        return Shown(
            kind,
            observed=observed,
            body=body.body,
            end=body.end_of_stream or body.end_of_stream_without_message,
        )
    if kind != "request_headers" and kind != "response_headers":
        return Shown(kind, observed=observed)
    http = message.request_headers if kind == "request_headers" else message.response_headers
    headers: Mapping[str, str] | None
    try:
        headers = headers_of(http.headers)
    except HeadersTooLargeError:
        headers = None
    if message.HasField("protocol_config"):
        told = message.protocol_config
        ahead = told.send_body_without_waiting_for_header_response
        modes = (told.request_body_mode, told.response_body_mode, ahead)
    return Shown(
        kind, observed=observed, end=http.end_of_stream, headers=headers, modes=modes, extra=_extra_of(message),
        control=tuple([name for name in headers or () if is_control(name)]),
    )  # fmt: skip


def _extra_of(message: ProcessingRequest) -> Extra:
    return subset_of(message), attributes_of(message), served_of(message)


def _bare_body(data: bytes) -> Shown | None:
    """A piece of a body and nothing else, as most messages are; None: something else. Raises what `read` catches."""
    if data[0] not in _BODIES:
        return None
    kind = _BODIES[data[0]]
    end, (size, at) = len(data), length(data, 1)
    if at + size != end or not size or data[at] != _BODY:
        return None
    size, at = length(data, at + 1)
    after = at + size
    if after == end:
        return Shown(kind, False, False, data[at:])
    if after + 2 == end and data[after] == _BODY_END:
        return Shown(kind, False, _flag(data, after), data[at:after])
    return None


def _plain(data: bytes) -> Shown:
    """Read the usual layout. Raises what `read` catches."""
    kind, observed, modes, extra = "", False, None, b""
    first = last = at = 0
    end = len(data)
    while at < end:
        begin, tag = at, data[at]
        if tag == _OBSERVED:
            observed = _flag(data, at)
            at += 2
            continue
        size, start = data[at + 1], at + 2
        if size > 0x7F:
            size, start = length(data, at + 1)
        at = start + size
        if tag in _KINDS:
            if kind:
                raise UnusualError
            kind, first, last = _KINDS[tag], start, at
        elif tag in _EXTRA:
            extra += data[begin:at]
        elif tag == _PROTOCOL and modes is None:
            modes = _modes(data[start:at])
        else:
            raise UnusualError
    if at != end:
        raise UnusualError
    seen = (
        _NO_EXTRA
        if not extra
        else _extra(extra)
        if len(extra) <= KNOWN_EXTRA_SIZE
        else _extra.__wrapped__(extra)
    )
    if kind == "request_body" or kind == "response_body":
        body, over = _body(data, first, last)
        return Shown(kind, observed, over, body)
    if kind == "request_headers" or kind == "response_headers":
        headers, control, over = _headers(data, first, last)
        return Shown(kind, observed, over, b"", headers, control, modes, seen)
    if first != last:
        raise UnusualError
    return Shown(kind, observed=observed)


def _headers(data: bytes, at: int, end: int) -> tuple[Mapping[str, str], tuple[str, ...], bool]:
    """An HttpHeaders: the headers, the control ones among them, and whether no body follows."""
    headers: Mapping[str, str] = _NO_HEADERS
    control: tuple[str, ...] = ()
    over = False
    if at < end and data[at] == _HEADERS:
        size, at = length(data, at + 1)
        stop = at + size
        if size > MAX_HEADER_BYTES or stop > end:
            raise UnusualError
        headers, control = headers_in(data, at, stop)
        at = stop
    if at < end:
        if end - at != 2 or data[at] != _HEADERS_END:
            raise UnusualError
        over = _flag(data, at)
    return headers, control, over


def _body(data: bytes, at: int, end: int) -> tuple[bytes, bool]:
    """An HttpBody: its bytes, and whether it is the last one."""
    body, over, empty = b"", False, False
    if at < end and data[at] == _BODY:
        size, at = length(data, at + 1)
        body = data[at : at + size]
        at += size
    while at < end:
        tag, value = data[at], _flag(data, at)
        at += 2
        if tag == _BODY_END:
            over = value
        elif tag == _BODY_END_EMPTY:
            empty = value
        elif tag != _BODY_COMPRESSED:
            raise UnusualError
    if at != end:
        raise UnusualError
    return body, over or empty


def _flag(data: bytes, at: int) -> bool:
    """The value of a flag whose field begins there."""
    value = data[at + 1]
    if value > 1:
        raise UnusualError
    return value == 1


@lru_cache(maxsize=64)  # a gateway has few settings and names them on every stream
def _modes(data: bytes) -> tuple[int, int, bool]:
    config = ProcessingRequest.FromString(bytes((_PROTOCOL, len(data))) + data).protocol_config
    return (
        config.request_body_mode,
        config.response_body_mode,
        config.send_body_without_waiting_for_header_response,
    )


@lru_cache(maxsize=512)
def _extra(data: bytes) -> Extra:
    return _extra_of(ProcessingRequest.FromString(data))
