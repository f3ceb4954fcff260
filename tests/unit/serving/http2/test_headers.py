"""Compressed headers: read part by part, they come to what the library makes of the whole block."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from picker.serving.http2.frames import ConnectionFault
from picker.serving.http2.headers import CHECKED_SIZE, MalformedError, Reader, check_trailers, request_of
from picker.serving.http2.limits import Counts, Limits

NAMES = [":path", ":method", "te", "grpc-timeout", "traceparent", "x-a", "content-type"]
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("content-type", "application/grpc")]


def both(reader: Reader, library: Decoder, block: bytes) -> bool:
    """Whether both can read a block, which then say the same."""
    try:
        expected = [(bytes(name), bytes(value)) for name, value in library.decode(block, raw=True)]
    except HPACKError:
        with pytest.raises(ConnectionFault):
            reader.fields(block)
        return False
    assert reader.fields(block) == expected
    ours, theirs = reader._decoder.header_table, library.header_table
    assert list(ours.dynamic_entries) == list(theirs.dynamic_entries)
    assert ours.maxsize == theirs.maxsize
    return True


def pair() -> tuple[Reader, Decoder]:
    limits = Limits(header_list_hard=2_000)
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
            st.binary(max_size=6)
            | st.sampled_from(
                [b"\x82\x86", b"\xbe", b"\x44\x01a", b"\x04\x81\x07", b"\x3f\x01", b"\x20", b"\x10\x01a\x01b"]
            ),
            max_size=12,
        ).map(b"".join),
        max_size=6,
    )
)
def test_hostile_blocks_are_read_as_the_library_reads_them(blocks: list[bytes]) -> None:
    reader, library = pair()
    for block in blocks:
        resizes = sum(0x20 <= byte < 0x40 for byte in block[:3]) > 2
        if resizes or not both(reader, library, block):
            return


def test_a_small_block_that_stands_for_very_many_headers_is_refused() -> None:
    reader, library = pair()
    assert both(reader, library, Encoder().encode([("x-large", "v" * 900)]))
    assert not both(reader, library, b"\xbe" * 3)


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
