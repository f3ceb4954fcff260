"""A gateway's message as far as it concerns us: read from its bytes, or from the protobuf runtime's picture of it.

`read` looks at the bytes itself where they are laid out as gateways lay them out, each part once and none unknown, and
leaves all others to the runtime; `shown_of` says what either way comes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from google.protobuf.message import DecodeError

from picker.serving.messages import message_of
from picker.serving.reading import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    HeadersTooLargeError,
    attributes_of,
    headers_of,
    is_control,
    served_of,
    subset_of,
)
from picker.serving.wire.extproc_pb2 import HeaderValue, ProcessingRequest
from picker.settings import SECRET_HEADERS

KNOWN_ENTRIES = 2_048
KNOWN_ENTRY_SIZE = 128
"""So many headers, none longer, are remembered as they were read: most of them come with every request."""
KNOWN_EXTRA_SIZE = 1_024
"""Longest metadata and attributes that are remembered as they were read."""

_SECRETS = frozenset((*SECRET_HEADERS, "set-cookie"))
"""Headers of which nothing is remembered."""

_KINDS = {
    0x12: "request_headers",
    0x1A: "response_headers",
    0x22: "request_body",
    0x2A: "response_body",
    0x32: "request_trailers",
    0x3A: "response_trailers",
}
"""First byte of a field -> its name."""
_EXTRA, _OBSERVED, _PROTOCOL = (0x42, 0x4A), 0x50, 0x5A
"""Metadata and attributes, observability mode, protocol configuration."""
_HEADERS, _HEADERS_END = 0x0A, 0x18
_BODY, _BODY_END, _BODY_END_EMPTY, _BODY_COMPRESSED = 0x0A, 0x10, 0x18, 0x20

Entry = tuple[str, str, bool]
"""Name, value, and whether it is a control header."""
Extra = tuple[tuple[str, ...] | None, Mapping[str, str], str]
"""The subset, the attributes, and who served."""

_NO_HEADERS: Mapping[str, str] = {}
_NO_EXTRA: Extra = (None, {}, "")
_entries: dict[bytes, Entry] = {}
_decode_entry = HeaderValue.FromString


class Shown:
    """One message. What it does not concern is as in a message without it."""

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
        *,
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


class _UnusualError(Exception):
    """The bytes are not laid out as gateways lay them out."""


def read(data: bytes) -> Shown:
    """The message; one of no kind where it is none. Never raises."""
    try:
        return _plain(data)
    except (_UnusualError, IndexError, DecodeError, UnicodeDecodeError):
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
        size = data[at + 1]
        at += 2
        if size > 0x7F:
            size, at = _long(data, at - 1)
        start, at = at, at + size
        if tag in _KINDS:
            if kind:
                raise _UnusualError
            kind, first, last = _KINDS[tag], start, at
        elif tag in _EXTRA:
            extra += data[begin:at]
        elif tag == _PROTOCOL and modes is None:
            modes = _modes(data[start:at])
        else:
            raise _UnusualError
    if at != end:
        raise _UnusualError
    seen = (
        _NO_EXTRA
        if not extra
        else _extra(extra)
        if len(extra) <= KNOWN_EXTRA_SIZE
        else _extra.__wrapped__(extra)
    )
    if kind == "request_body" or kind == "response_body":
        body, over = _body(data, first, last)
        return Shown(kind, observed=observed, body=body, end=over)
    if kind == "request_headers" or kind == "response_headers":
        headers, control, over = _headers(data, first, last)
        return Shown(
            kind, observed=observed, end=over, headers=headers, control=control, modes=modes, extra=seen
        )
    if first != last:
        raise _UnusualError
    return Shown(kind, observed=observed)


def _headers(data: bytes, at: int, end: int) -> tuple[Mapping[str, str], tuple[str, ...], bool]:
    """An HttpHeaders: the headers, the control ones among them, and whether no body follows."""
    headers: dict[str, str] = {}
    control: dict[str, None] = {}
    known, over = _entries, False
    if at < end and data[at] == _HEADERS:
        size = data[at + 1]
        at += 2
        if size > 0x7F:
            size, at = _long(data, at - 1)
        stop = at + size
        if size > MAX_HEADER_BYTES or stop > end:
            raise _UnusualError
        number = 0
        while at < stop:
            if data[at] != _HEADERS:
                raise _UnusualError
            size = data[at + 1]
            at += 2
            if size > 0x7F:
                size, at = _long(data, at - 1)
            entry = data[at : at + size]
            at += size
            found = known.get(entry) or _entry(entry)
            headers[found[0]] = found[1]
            if found[2]:
                control[found[0]] = None
            number += 1
        if at != stop or number > MAX_HEADERS:
            raise _UnusualError
    if at < end:
        if end - at != 2 or data[at] != _HEADERS_END:
            raise _UnusualError
        over = _flag(data, at)
    return headers, tuple(control) if control else (), over


def _entry(entry: bytes) -> Entry:
    """A header, remembered where it is short."""
    header = _decode_entry(entry)
    name, raw = header.key.lower(), header.raw_value
    found = (name, raw.decode("utf-8", "replace") if raw else header.value, is_control(name))
    if len(entry) <= KNOWN_ENTRY_SIZE and name not in _SECRETS:
        if len(_entries) >= KNOWN_ENTRIES:
            _entries.clear()
        _entries[entry] = found
    return found


def _body(data: bytes, at: int, end: int) -> tuple[bytes, bool]:
    """An HttpBody: its bytes, and whether it is the last one."""
    body, over, empty = b"", False, False
    if at < end and data[at] == _BODY:
        size = data[at + 1]
        at += 2
        if size > 0x7F:
            size, at = _long(data, at - 1)
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
            raise _UnusualError
    if at != end:
        raise _UnusualError
    return body, over or empty


def _flag(data: bytes, at: int) -> bool:
    """The value of a flag whose field begins there."""
    value = data[at + 1]
    if value > 1:
        raise _UnusualError
    return value == 1


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A length of two to four bytes, and where it ends."""
    size = shift = 0
    for place in range(at, at + 4):
        byte = data[place]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, place + 1
        shift += 7
    raise _UnusualError


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
