"""Compressed headers: read part by part, they come to what the library makes of the whole block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from hpack import Decoder, Encoder, HPACKError
from hpack.hpack import encode_integer
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from picker.serving.http2.frames import ConnectionFault
from picker.serving.http2.headers import (
    CHECKED_SIZE,
    MalformedError,
    Reader,
    check_trailers,
    request_of,
)
from picker.serving.http2.limits import Counts, Limits
from picker.serving.http2.literals import LONG_VALUE

NAMES = [":path", ":method", "te", "grpc-timeout", "traceparent", "x-a", "content-type"]
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("content-type", "application/grpc")]


HOSTILE = [
    *(b"\x82\x86", b"\xbe", b"\x80", b"\x44\x01a", b"\x04\x81\x07", b"\x3f\x01", b"\x20", b"\x10\x01a\x01b"),
    *(b"\x01" * 1_100, b"\x00\x01a\x7f\xf1\x07" + b"v" * 1_136, b"\x0f\x31\x7f\x81\x07" + b"v" * 1_024),
]


def both(reader: Reader, library: Decoder, block: bytes) -> bool:
    """Whether both can read a block, which then say the same."""
    try:
        expected = [(bytes(name), bytes(value)) for name, value in library.decode(block, raw=True)]
    except HPACKError:
        with pytest.raises(ConnectionFault):
            reader.fields(block)
        return False
    got = reader.fields(block)
    assert [name for name, _ in got] == [name for name, _ in expected]
    for (_, ours), (_, theirs) in zip(got, expected, strict=True):
        assert ours == theirs or (not ours and len(theirs) >= LONG_VALUE)
    mine, its = reader._decoder.header_table, library.header_table
    assert list(mine.dynamic_entries) == list(its.dynamic_entries)
    assert mine.maxsize == its.maxsize
    return True


def pair() -> tuple[Reader, Decoder]:
    limits = Limits(header_list_hard=20_000)
    return Reader(limits, Counts()), Decoder(max_header_list_size=limits.header_list_hard)


field = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(["POST", "/a", "1S", ""]) | st.text("ab0-", max_size=140)
)


@given(st.lists(st.lists(field, max_size=10), max_size=8), st.booleans())
def test_blocks_of_a_peer_are_read_as_the_library_reads_them(
    blocks: list[list[tuple[str, str]]], huffman: bool
) -> None:
    reader, library = pair()
    encoder = Encoder()
    for fields in blocks:
        if not both(reader, library, encoder.encode(fields, huffman=huffman)):
            return


@given(
    st.lists(
        st.lists(
            st.binary(max_size=6) | st.sampled_from(HOSTILE),
            max_size=12,
        ).map(b"".join),
        max_size=6,
    )
)
def test_hostile_blocks_are_read_as_the_library_reads_them(blocks: list[bytes]) -> None:
    reader, library = pair()
    for block in blocks:
        resizes = sum(0x20 <= byte < 0x40 for byte in block[:9]) > 2
        if resizes or not both(reader, library, block):
            return


def test_a_small_block_that_stands_for_very_many_headers_is_refused() -> None:
    reader, library = pair()
    assert both(reader, library, Encoder().encode([("x-large", "v" * 900)]))
    assert not both(reader, library, b"\xbe" * 30)


def test_only_what_differs_is_decoded_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, encoder = Reader(Limits(), Counts()), Encoder()
    sizes: list[int] = []
    decode = reader._decoder.decode

    def seen(data: bytes, raw: bool = False) -> Any:
        sizes.append(len(data))
        return decode(data, raw)

    monkeypatch.setattr(reader._decoder, "decode", seen)
    for number in range(3):
        block = encoder.encode([*FIELDS, ("traceparent", f"00-{number:032x}-01"), ("te", "trailers")])
        assert reader.request(block).grpc
    assert len(sizes) == 3
    assert max(sizes[1:]) < 30


@lru_cache
def string(text: bytes, huffman: bool) -> bytes:
    coded = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text) if huffman else text
    size = encode_integer(len(coded), 7)
    size[0] |= 0x80 * huffman
    return bytes(size) + coded


def literal(kind: int, name: bytes, value: bytes, huffman: bool) -> bytes:
    return bytes((kind,)) + string(name, huffman) + string(value, huffman)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0x00, 0x10, 0x40]),
            st.sampled_from([b":path", b"te", b"grpc-timeout", b"tracestate", b"x" * 1_100])
            | st.just(b"x-a"),
            st.sampled_from([0, 1, 126, 127, 300, LONG_VALUE, 2_000, 5_000]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_only_long_values_that_nothing_asks_for_and_no_table_keeps_are_passed_over(
    fields: list[tuple[int, bytes, int, bool]],
) -> None:
    limits = Limits(header_list_hard=1 << 20)
    reader, library = Reader(limits, Counts()), Decoder(max_header_list_size=1 << 20)
    literals = [literal(kind, name, b"v" * size, huffman) for kind, name, size, huffman in fields]
    for whole in (b"\x82".join(literals), b"".join(literals)):
        expected = [(bytes(name), bytes(value)) for name, value in library.decode(whole, raw=True)]
        got = reader.fields(whole)
        assert [name for name, _ in got] == [name for name, _ in expected]
        for (name, ours), (_, theirs) in zip(got, expected, strict=True):
            assert ours == theirs or (
                not ours and len(theirs) >= LONG_VALUE and name not in (b":path", b"te")
            )
        assert list(reader._decoder.header_table.dynamic_entries) == list(
            library.header_table.dynamic_entries
        )


def test_a_trace_state_of_any_size_costs_next_to_nothing() -> None:
    costs: list[float] = []
    reader, encoder = Reader(Limits(), Counts(), costs.append), Encoder()
    for _ in range(3):
        state = literal(0x00, b"tracestate", b"v" * 40_000, True)
        request = reader.request(encoder.encode(FIELDS) + state)
        assert request.grpc
        assert not request.too_large
    assert max(costs[1:]) <= 10


@pytest.mark.parametrize("size", [0, 1, CHECKED_SIZE - 3, CHECKED_SIZE - 2, 300])
def test_a_value_that_is_not_allowed_never_is(size: int) -> None:
    good = [(name.encode(), value.encode()) for name, value in FIELDS]
    for _ in range(2):
        assert request_of([*good, (b"x-a", b"v" * size)]).grpc
        for bad in ((b"x-a", b"v" * size + b"\n"), (b"X-a", b"v" * size), (b"te", b"x" + b"v" * size)):
            with pytest.raises(MalformedError):
                request_of([*good, bad])
            with pytest.raises(MalformedError):
                check_trailers([bad])
