"""Our answers as bytes, the way the protobuf runtime encodes what `picker.serving.replies` builds.

What is the same in many answers is encoded once; an answer that is like no other is left to the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from picker.serving import replies
from picker.serving.modes import BodyMode
from picker.serving.seam import Picked, Refused
from picker.serving.wire.extproc_pb2 import ProcessingResponse

PIECE = 62_000
"""Most body bytes in one answer: some gateways cap messages at 64 KB."""
REMEMBERED = 4_096
"""Most decisions, but for their booking's id, that are remembered as bytes: one for each worker, or list of workers."""
KNOWN_SIZES = 4_096
"""Sizes of bodies for which the bytes around them are remembered."""

HEADERS_PASSED = replies.headers_passed().SerializeToString()
BODY_PASSED = replies.body_passed().SerializeToString()
TRAILERS_PASSED = replies.trailers_passed().SerializeToString()
RESPONSE_HEADERS_PASSED = replies.response_headers_passed().SerializeToString()
RESPONSE_BODY_PASSED = replies.response_body_passed().SerializeToString()
RESPONSE_TRAILERS_PASSED = replies.response_trailers_passed().SerializeToString()

_MARK = "\x7f"
_REQUEST_BODY, _RESPONSE_BODY = b"\x1a", b"\x22"
_RESPONSE, _MUTATION, _STREAMED, _BYTES, _END = b"\x0a", b"\x1a", b"\x1a", b"\x0a", b"\x10\x01"
"""First bytes of the fields on the way from an answer to the bytes of its body, and the flag that ends it."""

Override = tuple[BodyMode, BodyMode] | None
_Key = tuple[bool, str, int, tuple[tuple[str, str], ...], Override]
_decided: dict[_Key, tuple[bytes, bytes]] = {}


def headers_passed(remove: tuple[str, ...] = ()) -> bytes:
    """As `replies.headers_passed`."""
    return replies.headers_passed(remove).SerializeToString() if remove else HEADERS_PASSED


def headers_decided(picked: Picked, remove: tuple[str, ...], override: Override = None) -> bytes:
    """As `replies.headers_decided`."""
    if remove:
        return replies.headers_decided(picked, remove, override).SerializeToString()
    return _remembered(picked, override, at_body=False)


def body_decided(
    picked: Picked, remove: Iterable[str], *, body: bytes | None = None, length: bool = False
) -> bytes:
    """As `replies.body_decided`."""
    if remove or body is not None:
        return replies.body_decided(picked, remove, body=body, length=length).SerializeToString()
    return _remembered(picked, None, at_body=True)


def streamed(body: bytes, *, end: bool, response: bool) -> Iterator[bytes]:
    """A full duplex body in messages of at most `PIECE` bytes, the last one ending it where ``end`` says so."""
    if len(body) <= PIECE:
        if body or end:
            yield piece(body, end=end, response=response)
        return
    last = (len(body) - 1) // PIECE * PIECE
    for at in range(0, len(body), PIECE):
        yield piece(body[at : at + PIECE], end=end and at == last, response=response)


def piece(body: bytes, *, end: bool, response: bool) -> bytes:
    """One message of a full duplex body."""
    head, tail = around(len(body), end, response)
    return b"".join((head, body, tail))


@lru_cache(maxsize=KNOWN_SIZES)
def around(size: int, end: bool, response: bool) -> tuple[bytes, bytes]:
    """What stands before and behind the bytes of a body in one message of it."""
    head = _BYTES + _varint(size) if size else b""
    tail = _END if end else b""
    size += len(head) + len(tail)
    for field in (_STREAMED, _MUTATION, _RESPONSE, _RESPONSE_BODY if response else _REQUEST_BODY):
        part = field + _varint(size)
        head = part + head
        size += len(part)
    return head, tail


def response_body_changed(body: bytes, *, length: bool) -> bytes:
    """As `replies.response_body_changed`."""
    return replies.response_body_changed(body, length=length).SerializeToString()


def refused(refusal: Refused) -> bytes:
    """As `replies.refused`."""
    return replies.refused(refusal).SerializeToString()


def _remembered(picked: Picked, override: Override, *, at_body: bool) -> bytes:
    booking = picked.booking_id
    key = (at_body, picked.destination, len(booking), picked.set_headers, override)
    frame = _decided.get(key) if booking.isascii() else None
    if frame is None:
        frame = _frame(picked, override, at_body=at_body) if booking and booking.isascii() else None
        if frame is None:
            return _built(picked, override, at_body=at_body).SerializeToString()
        if len(_decided) >= REMEMBERED:
            _decided.clear()
        _decided[key] = frame
    return b"".join((frame[0], booking.encode(), frame[1]))


def _frame(picked: Picked, override: Override, *, at_body: bool) -> tuple[bytes, bytes] | None:
    """What stands before and behind the booking's id in an answer; None where that cannot be told."""
    mark = _MARK * len(picked.booking_id)
    data = _built(replace(picked, booking_id=mark), override, at_body=at_body).SerializeToString()
    before, found, behind = data.partition(mark.encode())
    return (before, behind) if found and _MARK.encode() not in before + behind else None


def _built(picked: Picked, override: Override, *, at_body: bool) -> ProcessingResponse:
    return replies.body_decided(picked, ()) if at_body else replies.headers_decided(picked, (), override)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
