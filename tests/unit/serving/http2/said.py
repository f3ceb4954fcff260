"""Words that the tests of a connection share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.serving.http2.conftest import Frame

STATUS = b"\x88"
TRAILERS = b"\x00\x01a\x01b"
ASKED = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/service/Method"),
    ("content-type", "application/grpc"),
]


def kinds(found: list[Frame]) -> list[int]:
    return [one.kind for one in found]
