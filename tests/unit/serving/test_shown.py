"""Messages read from their bytes: whatever the bytes are, it comes to what the protobuf runtime reads in them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from picker.serving import known
from picker.serving import shown as module
from picker.serving.gateway import (
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)
from picker.serving.known import UnusualError
from picker.serving.messages import message_of
from picker.serving.modes import BodyMode
from picker.serving.reading import MAX_HEADER_BYTES, MAX_HEADERS, SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.shown import Shown, read, shown_of
from picker.serving.wire.extproc_pb2 import HeaderMap, HeaderValue, HttpBody, ProcessingRequest

NAMES = ("x-request-id", "X-Picker-Booking", ":path", "authorization", "", "content-type", "\u00e4")


def alike(one: Shown, other: Shown) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in Shown.__slots__)


def same_as_the_runtime(data: bytes) -> Shown:
    found = read(data)
    assert alike(found, shown_of(message_of(data))), data
    return found


def plainly(data: bytes) -> bool:
    """Whether the bytes are read without the runtime."""
    try:
        module._plain(data)
    except (UnusualError, IndexError, ValueError, DecodeError):
        return False
    return True


headers = st.lists(
    st.builds(
        HeaderValue,
        key=st.sampled_from(NAMES),
        value=st.sampled_from(["", "v"]),
        raw_value=st.binary(max_size=200),
    ),
    max_size=12,
)


@st.composite
def messages(draw: st.DrawFn) -> ProcessingRequest:
    message = ProcessingRequest(observability_mode=draw(st.booleans()))
    kind = draw(
        st.sampled_from(["request_headers", "response_headers", "request_body", "response_body", "none"])
    )
    if kind.endswith("headers"):
        http = getattr(message, kind)
        http.headers.headers.extend(draw(headers))
        http.end_of_stream = draw(st.booleans())
    elif kind.endswith("body"):
        body = getattr(message, kind)
        body.body, body.end_of_stream = draw(st.binary(max_size=300)), draw(st.booleans())
        body.end_of_stream_without_message = draw(st.booleans())
        body.grpc_message_compressed = draw(st.booleans())
    else:
        draw(st.sampled_from([message.request_trailers, message.response_trailers])).SetInParent()
    if draw(st.booleans()):
        message.protocol_config.request_body_mode = draw(st.integers(0, 6))  # type: ignore[assignment] # any number
        message.protocol_config.send_body_without_waiting_for_header_response = draw(st.booleans())
    if draw(st.booleans()):
        hint = message.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields[SUBSET_KEY]
        hint.string_value = draw(st.sampled_from(["", "10.0.0.1:80, 10.0.0.2", "x" * 2_000]))
    if draw(st.booleans()):
        attributes = message.attributes["envoy.filters.http.ext_proc"].fields
        attributes["upstream.address"].string_value = draw(st.text(max_size=30))
        attributes["response.flags"].number_value = draw(st.floats(0, 1e6))
    return message


@given(messages())
def test_a_message_as_gateways_write_it_is_read_as_the_runtime_reads_it(message: ProcessingRequest) -> None:
    data = message.SerializeToString()
    assert plainly(data)
    same_as_the_runtime(data)


@given(messages(), messages(), st.binary(max_size=20), st.integers(0, 2**32))
def test_hostile_bytes_are_read_as_the_runtime_reads_them(
    first: ProcessingRequest, second: ProcessingRequest, junk: bytes, seed: int
) -> None:
    """Merged messages, unknown fields, cut and flipped bytes."""
    one, other = first.SerializeToString(), second.SerializeToString()
    rng, flipped = random.Random(seed), bytearray(one + other)
    for data in (one + other, one + junk, junk + one, one[: rng.randrange(len(one) + 1)], junk):
        same_as_the_runtime(data)
    for _ in range(rng.randrange(1, 4)):
        if flipped:
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
    same_as_the_runtime(bytes(flipped))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_the_runtime_reads_them(data: bytes) -> None:
    same_as_the_runtime(data)
    for tag in (0x12, 0x1A, 0x22, 0x2A, 0x32, 0x42, 0x4A, 0x5A):
        inside = bytes((tag, len(data))) + data
        same_as_the_runtime(inside)
        same_as_the_runtime(bytes((0x12, len(data) + 2, 0x0A, len(data))) + data)


@pytest.mark.parametrize(
    "message",
    [
        request_headers(
            {":path": "/v1/completions", "x-gateway-model-name-rewrite": "m"}, mode=BodyMode.BUFFERED
        ),
        request_headers({}, end=True),
        request_body(b"x" * 70_000),
        request_body(b"", end=True),
        response_headers(503, attributes={"response.flags": 2, "upstream.address": "10.0.0.1:80"}),
        response_body(b"data", end=True),
        request_trailers(),
        response_trailers(),
    ],
    ids=lambda message: message.WhichOneof("request"),
)
def test_what_gateways_send_needs_no_runtime(message: ProcessingRequest) -> None:
    data = message.SerializeToString()
    assert plainly(data)
    assert same_as_the_runtime(data).kind == message.WhichOneof("request")


@pytest.mark.parametrize("size", [0, 1, 120, 122, 123, 124, 126, 127, 128, 129, 300, 16_400])
@pytest.mark.parametrize(
    "name", ["x-a", "x-picker-booking", "cookie", "n" * 126, "n" * 127, "N" * 128, "n" * 200]
)
def test_headers_of_any_length_are_read_the_same_the_first_time_and_later(name: str, size: int) -> None:
    data = request_headers({":path": "/v1/completions", name: "v" * size, "last": "one"}).SerializeToString()
    assert plainly(data)
    for _ in range(3):
        found = same_as_the_runtime(data)
        assert found.headers is not None
        assert found.headers[name.lower()] == "v" * size
        assert found.control == (("x-picker-booking",) if name == "x-picker-booking" else ())


@pytest.mark.parametrize("kind", [0x22, 0x2A])
@pytest.mark.parametrize("size", [0, 1, 120, 126, 127, 128, 129, 16_383, 16_384, 70_000])
@pytest.mark.parametrize(
    "tail", [b"", b"\x10\x00", b"\x10\x01", b"\x18\x01", b"\x20\x01", b"\x10\x02", b"\x10"]
)
def test_pieces_of_bodies_of_any_length_are_read_the_same(kind: int, size: int, tail: bytes) -> None:
    piece = HttpBody(body=bytes(size)).SerializeToString() + tail
    # as the body of another one, its length stands in front of it
    length = HttpBody(body=piece).SerializeToString()[1 : -len(piece)] if piece else b"\0"
    same_as_the_runtime(bytes((kind,)) + length + piece)
    same_as_the_runtime(bytes((kind,)) + length + piece + b"\x50\x01")


def test_of_a_repeated_part_the_last_one_or_all_together_count() -> None:
    body = request_body(b"one", end=False).SerializeToString() + request_body(b"two").SerializeToString()
    assert not plainly(body)
    assert same_as_the_runtime(body).body == b"two"
    mixed = request_body(b"one").SerializeToString() + response_body(b"two").SerializeToString()
    assert same_as_the_runtime(mixed).kind == "response_body"


def test_text_that_is_no_utf8_is_replaced() -> None:
    data = request_headers({"x-mark": "mark"}).SerializeToString().replace(b"x-mark", b"x-\xff\xfe\xfdk")
    found = same_as_the_runtime(data)
    assert found.headers is not None
    assert "x-\ufffd\ufffd\ufffdk" in found.headers


@pytest.mark.parametrize(("count", "size"), [(MAX_HEADERS + 1, 1), (2, MAX_HEADER_BYTES)])
def test_more_headers_than_are_read_are_none(count: int, size: int) -> None:
    told: Any = HeaderMap(headers=[HeaderValue(key=f"h{n}", raw_value=b"v" * size) for n in range(count)])
    message = ProcessingRequest()
    message.request_headers.headers.CopyFrom(told)
    assert same_as_the_runtime(message.SerializeToString()).headers is None


def test_as_many_headers_as_may_be_are_read() -> None:
    message = request_headers({f"h{n}": "v" for n in range(MAX_HEADERS)})
    found = same_as_the_runtime(message.SerializeToString())
    assert found.headers is not None
    assert len(found.headers) == MAX_HEADERS


def test_remembered_headers_are_bounded_and_hold_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[bytes, known.Entry] = {}
    monkeypatch.setattr(known, "_entries", entries)
    monkeypatch.setattr(known, "KNOWN_ENTRIES", 8)
    for n in range(50):
        message = request_headers(
            {"authorization": "Bearer secret", "Cookie": "secret", "x-n": str(n), "long": "l" * 200}
        )
        read(message.SerializeToString())
        assert len(entries) <= 8
    assert entries
    assert not any(b"secret" in entry or b"long" in entry for entry in entries)
