"""Headers of requests: from a compressed block to what a server needs to know, checked as RFC 9113 8.2 and 8.3 ask.

The decompression is the hpack library's. A block that changes nothing in the decoder's table, which is every block of
a peer that repeats itself, is decoded once for as long as that table stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from hpack import Decoder, HPACKDecodingError, HPACKError, OversizedHeaderListError
from hpack.hpack import decode_integer
from hpack.huffman_table import decode_huffman

from picker.serving.http2.frames import COMPRESSION_ERROR, ConnectionFault
from picker.serving.http2.limits import Counts, Limits
from picker.serving.http2.literals import (
    HUFFMAN,
    INDEXED,
    KIND,
    LONG_INDEXED,
    LONG_VALUE,
    RESIZE,
    literals_end,
    string_at,
)

KNOWN_BLOCKS = 256
KNOWN_BLOCK_SIZE = 2_048
ENTRY_OVERHEAD = 32
"""What each header counts beside its bytes, by RFC 9113 6.5.2."""

_RESIZES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*+[\0-\x7f]){3}")
"""More changes of the table's size than a block can have any use for, by RFC 7541 4.2."""
FIELD_COST, LITERAL_COST, BYTE_COST = 1.0, 4.0, 0.2
"""Microseconds: of each header; besides of one that the library decodes, and of each of its bytes in a block."""
LONG_NAME = 128
"""Longest name that is looked at where its value is passed over."""
CHECKED_SIZE = 128
"""Longest value of a header that is remembered as one that is allowed."""
_NAME = re.compile(rb"[!-9;-@\[-~]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|^[ \t]|[ \t]$")
_PSEUDO = frozenset((b":method", b":scheme", b":authority", b":path"))
_READ = _PSEUDO | {b"content-type", b"content-length", b"grpc-timeout", b"te"}
_OF_CONNECTIONS = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


class MalformedError(Exception):
    """Headers that no request may have; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the headers of a request say, as far as a gRPC server wants to know."""

    method: bytes = b""
    path: bytes = b""
    grpc: bool = False
    """Whether it is a call of gRPC, by its method and content type."""
    timeout: bytes = b""
    """Of ``grpc-timeout``; empty: none."""
    length: int | None = None
    """Of ``content-length``."""
    too_large: bool = False
    """Whether the headers are over the limit: then nothing else is told of them."""


Field = tuple[bytes, bytes]
Fields = Iterable[Field]
TOO_LARGE = Request(too_large=True)


class Reader:
    """Reads the blocks of one connection, every one of them and in their order.

    ``charge`` is told the microseconds that each block cost which had to be decoded, and may raise.

    Long values that nothing asks for and that enter no table, a trace's state among them, are passed over: they appear
    as empty ones, and count as such.
    """

    __slots__ = ("_charge", "_counts", "_decoder", "_known", "_limits", "_state")

    def __init__(
        self, limits: Limits, counts: Counts, charge: Callable[[float], None] = lambda _: None
    ) -> None:
        self._charge = charge
        self._limits = limits
        self._counts = counts
        self._decoder = Decoder(max_header_list_size=limits.header_list_hard)
        self._known: dict[bytes, Request] = {}
        self._state: tuple[object, int, int] = self._table()

    def request(self, block: bytes) -> Request:
        """The headers of a request.

        Raises:
            MalformedError: where they break the rules.
            ConnectionFault: where the block cannot be decoded, so that no later one can.
        """
        request = self._known.get(block)
        if request is not None:
            return request
        before = self._state
        fields = self.fields(block)
        request = TOO_LARGE if self._size(fields) > self._limits.header_list else request_of(fields)
        if self._state is before and len(block) <= KNOWN_BLOCK_SIZE:
            if len(self._known) >= KNOWN_BLOCKS:
                self._known.clear()
            self._known[block] = request
        return request

    def trailers(self, block: bytes) -> None:
        """Trailers of a request, of which nothing is wanted. Raises as `request` does."""
        check_trailers(self.fields(block))

    def fields(self, block: bytes) -> list[Field]:
        """Decode a block, whatever becomes of it."""
        if _RESIZES.match(block):
            raise ConnectionFault(
                COMPRESSION_ERROR, "headers that resize the decoder's table again and again"
            )
        self._counts.headers_decoded += 1
        try:
            fields = self._decoded(block)
        except HPACKError as error:
            raise ConnectionFault(
                COMPRESSION_ERROR, f"headers cannot be decoded: {type(error).__name__}"
            ) from None
        self._look()
        return fields

    def _decoded(self, block: bytes) -> list[Field]:
        """Decode a block part by part: what stands in the table is taken from there, the library decodes the rest.

        Most blocks of a peer that repeats itself but for a trace's id have one part for the library.
        """
        fields: list[Field] = []
        decoder, at, size, cost = self._decoder, 0, 0, 0.0
        look_up, most = decoder.header_table.get_by_index, self._limits.header_list_hard
        while at < len(block):
            first = block[at]
            if INDEXED < first < LONG_INDEXED:
                name, value = look_up(first & 0x7F)
                fields.append((bytes(name), bytes(value)))
                size += len(name) + len(value) + ENTRY_OVERHEAD
                at += 1
            else:
                if fields and first & KIND == RESIZE:
                    raise HPACKDecodingError("a change of the table's size amid headers")
                end = literals_end(block, at)
                found = self._passed_over(block, at, end)
                if found is None:
                    decoded = decoder.decode(block[at:end], raw=True)
                    found = [(bytes(name), bytes(value)) for name, value in decoded]
                    cost += LITERAL_COST * len(found) + BYTE_COST * (end - at)
                fields += found
                size += self._size(found)
                at = end
            if size > most:
                raise OversizedHeaderListError(f"more than {most} bytes of headers")
        self._charge(cost + FIELD_COST * len(fields))
        return fields

    def _passed_over(self, block: bytes, at: int, end: int) -> list[Field] | None:
        """A literal as a header without a value, where it is alone there and can be passed over; else None."""
        if end - at < LONG_VALUE or block[at] >= RESIZE:
            return None
        number, taken = decode_integer(block[at : at + 16], 4)
        at += taken
        if number:
            name = bytes(self._decoder.header_table.get_by_index(number)[0])
        else:
            coded, (begin, at) = block[at] & HUFFMAN, string_at(block, at)
            if at - begin > LONG_NAME:
                return None
            name = decode_huffman(block[begin:at]) if coded else block[begin:at]
        begin, at = string_at(block, at)
        if at != end or end - begin < LONG_VALUE:
            return None
        return None if name in _READ else [(name, b"")]

    def _look(self) -> None:
        """Forget all blocks where the table is another one than at the last look."""
        before, after = self._state, self._table()
        if before[0] is not after[0] or before[1:] != after[1:]:
            self._state = after
            self._known.clear()

    def _table(self) -> tuple[object, int, int]:
        # an insertion is always seen: it puts another object in front
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None), len(entries), table.maxsize

    @staticmethod
    def _size(fields: list[Field]) -> int:
        return sum(len(name) + len(value) + ENTRY_OVERHEAD for name, value in fields)


def request_of(fields: Fields) -> Request:
    """What some fields say, in their order.

    Raises:
        MalformedError: where they break the rules.
    """
    pseudo: dict[bytes, bytes] = {}
    told: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            _pseudo(name, value, pseudo, late=bool(told))
        else:
            (_checked if len(name) + len(value) <= CHECKED_SIZE else _regular)(name, value)
            if name == b"content-length" and told.get(name, value) != value:
                raise MalformedError("two different content-length headers")
            told[name] = value
    _complete(pseudo)
    return Request(
        method=pseudo[b":method"],
        path=pseudo.get(b":path", b""),
        grpc=_is_grpc(pseudo[b":method"], told.get(b"content-type", b"")),
        timeout=told.get(b"grpc-timeout", b""),
        length=_length(told.get(b"content-length")),
    )


def check_trailers(fields: Fields) -> None:
    """Check fields that follow a request's body.

    Raises:
        MalformedError: where they break the rules.
    """
    for name, value in fields:
        if name[:1] == b":":
            raise MalformedError("a pseudo header in trailers")
        _regular(name, value)


def _pseudo(name: bytes, value: bytes, pseudo: dict[bytes, bytes], *, late: bool) -> None:
    if late:
        raise MalformedError("a pseudo header after others")
    if name not in _PSEUDO:
        raise MalformedError("an unknown pseudo header")
    if name in pseudo:
        raise MalformedError("a pseudo header twice")
    if _BAD_VALUE.search(value):
        raise MalformedError("a header value that is not allowed")
    pseudo[name] = value


def _regular(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise MalformedError("a header name that is not allowed")
    if _BAD_VALUE.search(value):
        raise MalformedError("a header value that is not allowed")
    if name in _OF_CONNECTIONS or (name == b"te" and value.lower() != b"trailers"):
        raise MalformedError("a header of HTTP/1 connections")


_checked = lru_cache(maxsize=512)(_regular)
"""As `_regular`, which most headers have passed before."""


def _complete(pseudo: dict[bytes, bytes]) -> None:
    method = pseudo.get(b":method")
    if not method:
        raise MalformedError("no method")
    if method == b"CONNECT":
        if b":scheme" in pseudo or b":path" in pseudo or not pseudo.get(b":authority"):
            raise MalformedError("CONNECT wants an authority alone")
    elif not pseudo.get(b":scheme") or not pseudo.get(b":path"):
        raise MalformedError("no scheme or path")


def _is_grpc(method: bytes, kind: bytes) -> bool:
    return (
        method == b"POST" and kind.startswith(b"application/grpc") and kind[16:17] in (b"", b"+", b";", b" ")
    )


def _length(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise MalformedError("a content-length that is no number")
    return int(value)
