"""One connection without input or output: what RFC 9113 asks for, and that streams do not touch each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from picker.serving.http2 import frames
from picker.serving.http2.frames import frame
from picker.serving.http2.limits import Limits

if TYPE_CHECKING:
    from tests.unit.serving.http2.conftest import Peer

from tests.unit.serving.http2.said import STATUS, TRAILERS


def error_of(peer: Peer) -> int:
    """The code of the GOAWAY that ended a connection."""
    found = [one for one in peer.got() if one.kind == frames.GOAWAY]
    assert len(found) == 1
    assert peer.connection.closing
    return int.from_bytes(found[0].payload[4:8], "big")


def reset_of(peer: Peer, number: int) -> int:
    """The code of the RST_STREAM of one stream, on a connection that lives on."""
    found = [one for one in peer.got() if one.kind == frames.RST_STREAM and one.stream == number]
    assert len(found) == 1
    assert not peer.connection.closing
    return int.from_bytes(found[0].payload, "big")


# -- requests -----------------------------------------------------------------------------------------------------


def test_a_request_reaches_its_handler_and_its_answer_the_peer(peer: Peer) -> None:
    served = peer.opened(1)
    assert served.request.path == b"/service/Method"
    peer.data(1, b"hello")
    served.stream.respond(STATUS)
    served.stream.send(b"world")
    peer.data(1, b"!", end=True)
    assert served.told == [b"hello", b"!", "ended"]
    served.stream.finish(TRAILERS)
    headers, data, trailers = peer.got()
    assert (headers.kind, headers.flags, headers.payload) == (frames.HEADERS, frames.END_HEADERS, STATUS)
    assert (data.kind, data.payload) == (frames.DATA, b"world")
    assert trailers.flags == frames.END_HEADERS | frames.END_STREAM
    assert not peer.connection.streams


def test_bytes_may_come_in_any_pieces(make_peer: type[Peer]) -> None:
    whole = make_peer()
    block = whole.encoder.encode(list(_ask()))
    wire = (
        frames.PREFACE
        + frames.settings({})
        + frame(frames.HEADERS, frames.END_HEADERS, 1, block)
        + frame(frames.DATA, frames.END_STREAM, 1, b"x" * 1000)
    )
    peer = make_peer(introduce=False)
    for at in range(len(wire)):
        peer.send(wire[at : at + 1])
    assert peer.handlers[1].body == b"x" * 1000
    assert peer.handlers[1].told[-1] == "ended"


def _ask() -> tuple[tuple[str, str], ...]:
    return (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/service/Method"),
        ("content-type", "application/grpc"),
    )


def test_headers_in_several_frames_are_one(peer: Peer) -> None:
    block = peer.encoder.encode(list(_ask()))
    peer.send(
        frame(frames.HEADERS, frames.END_STREAM, 1, block[:3]),
        frame(frames.CONTINUATION, 0, 1, block[3:4]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[4:]),
    )
    assert peer.handlers[1].told == ["ended"]


def test_padding_is_taken_off_and_counts_for_flow_control(peer: Peer) -> None:
    served = peer.opened(1)
    room = served.stream.room
    peer.send(frame(frames.DATA, frames.PADDED, 1, b"\x03abc\0\0\0"))
    assert served.told == [b"abc"]
    assert room - served.stream.room == 7


def test_trailers_end_a_request(peer: Peer) -> None:
    served = peer.opened(1)
    peer.open(1, end=True, fields=[("x-end", "1")])
    assert served.told == ["ended"]


def test_equal_headers_are_decoded_once(peer: Peer) -> None:
    for number in range(1, 41, 2):
        peer.open(number)
    assert len(peer.handlers) == 20
    assert peer.counts.headers_decoded == 2, (
        "the first block fills the decoder's table, the second only uses it"
    )


def test_headers_that_change_the_table_are_not_taken_for_others(peer: Peer) -> None:
    for number, value in ((1, "a"), (3, "b"), (5, "a"), (7, "b")):
        path = [(":method", "POST"), (":scheme", "http"), (":path", f"/{value}")]
        peer.open(number, fields=path)
        assert peer.handlers[number].request.path == f"/{value}".encode()


# -- what is wrong on one stream ------------------------------------------------------------------------------------

MALFORMED: list[list[tuple[str, str]]] = [
    [(":method", "POST"), (":scheme", "http")],
    [(":method", "POST"), (":path", "/")],
    [(":scheme", "http"), (":path", "/")],
    [*_ask(), (":path", "/late")],
    [(":method", "POST"), *_ask()],
    [*_ask()[:3], (":status", "200")],
    [*_ask(), ("Upper", "a")],
    [*_ask(), ("connection", "keep-alive")],
    [*_ask(), ("transfer-encoding", "chunked")],
    [*_ask(), ("te", "gzip")],
    [*_ask(), ("x a", "b")],
    [*_ask(), ("", "b")],
    [*_ask(), ("x", "a\r\nb: c")],
    [*_ask(), ("x", " a")],
    [*_ask(), ("content-length", "1"), ("content-length", "2")],
    [*_ask(), ("content-length", "-1")],
]


@pytest.mark.parametrize("fields", MALFORMED, ids=str)
def test_a_malformed_request_is_reset_and_its_neighbours_are_served(
    peer: Peer, fields: list[tuple[str, str]]
) -> None:
    other = peer.opened(1)
    assert peer.open(3, fields=fields) is None
    assert reset_of(peer, 3) == frames.PROTOCOL_ERROR
    peer.data(1, b"goes on")
    assert other.body == b"goes on"
    assert peer.counts.stream_errors == 1


@pytest.mark.parametrize("data", [b"abc", b"abcde"])
def test_a_body_that_is_not_as_long_as_declared_is_reset(peer: Peer, data: bytes) -> None:
    served = peer.open(1, fields=[*_ask(), ("content-length", "4")])
    assert served is not None
    peer.data(1, data, end=True)
    assert reset_of(peer, 1) == frames.PROTOCOL_ERROR
    assert served.told[-1] == ("reset", frames.PROTOCOL_ERROR)


def test_a_handler_that_raises_ends_its_stream_alone(peer: Peer) -> None:
    other, broken = peer.opened(1), peer.opened(3)
    broken.raises = True
    peer.data(3, b"x")
    assert reset_of(peer, 3) == frames.INTERNAL_ERROR
    assert broken.told == [b"x", ("reset", frames.INTERNAL_ERROR)]
    peer.data(1, b"y", end=True)
    assert other.told == [b"y", "ended"]
    assert [str(defect) for defect in peer.defects] == ["a defect", "a defect"]


def test_streams_beyond_the_limit_are_refused_and_can_come_again(make_peer: type[Peer]) -> None:
    peer = make_peer(limits=Limits(streams=2))
    first = peer.opened(1)
    peer.opened(3)
    assert peer.open(5) is None
    assert reset_of(peer, 5) == frames.REFUSED_STREAM
    first.stream.finish(TRAILERS)
    assert peer.open(7) is not None
    assert peer.counts.streams_refused == 1


def test_too_large_headers_are_told_of_as_such_and_are_no_end_of_the_connection(peer: Peer) -> None:
    block = peer.encoder.encode([*_ask(), ("x", "a" * 40_000)])
    peer.send(
        frame(frames.HEADERS, 0, 3, block[:16_000]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 3, block[16_000:]),
    )
    served = peer.handlers[3]
    assert served.request.too_large
    assert not peer.connection.closing


# -- what is wrong with the connection ------------------------------------------------------------------------------

P, S, F, C, Z = (
    frames.PROTOCOL_ERROR,
    frames.STREAM_CLOSED,
    frames.FLOW_CONTROL_ERROR,
    frames.COMPRESSION_ERROR,
    frames.FRAME_SIZE_ERROR,
)
FAULTS: list[tuple[bytes, int]] = [
    (frame(frames.DATA, 0, 0, b"x"), P),
    (frame(frames.DATA, 0, 5, b"x"), P),
    (frame(frames.DATA, 0, 2, b"x"), P),
    (frame(frames.DATA, frames.PADDED, 1, b"\x05ab"), P),
    (frame(frames.DATA, frames.PADDED, 1, b""), Z),
    (frame(frames.HEADERS, frames.END_HEADERS, 0, b"\x82"), P),
    (frame(frames.HEADERS, frames.END_HEADERS, 2, b"\x82"), P),
    (frame(frames.HEADERS, frames.END_HEADERS, 3, b"\xff\xff\xff\xff\xff"), C),
    (frame(frames.HEADERS, frames.END_HEADERS, 3, b"\x20\x3f\xe1\x1f\x20\x82"), C),
    (frame(frames.HEADERS, 0, 3, b"\x82") + frame(frames.PING, 0, 0, b"12345678"), P),
    (frame(frames.HEADERS, 0, 3, b"\x82") + frame(frames.CONTINUATION, 4, 1, b""), P),
    (frame(frames.HEADERS, 0, 3, b"\x82") + frame(0x20, 0, 3, b""), P),
    (frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""), P),
    (frame(frames.PRIORITY, 0, 0, b"12345"), P),
    (frame(frames.RST_STREAM, 0, 1, b"123"), Z),
    (frame(frames.RST_STREAM, 0, 9, b"1234"), P),
    (frame(frames.RST_STREAM, 0, 0, b"1234"), P),
    (frame(frames.SETTINGS, 0, 1, b""), P),
    (frame(frames.SETTINGS, 0, 0, b"12345"), Z),
    (frame(frames.SETTINGS, frames.ACK, 0, b"123456"), Z),
    (frames.settings({frames.ENABLE_PUSH: 2}), P),
    (frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), F),
    (frames.settings({frames.MAX_FRAME_SIZE: 16_383}), P),
    (frames.settings({frames.MAX_FRAME_SIZE: 1 << 24}), P),
    (frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\0\0\0\x02"), P),
    (frame(frames.PING, 0, 1, b"12345678"), P),
    (frame(frames.PING, 0, 0, b"1234567"), Z),
    (frame(frames.GOAWAY, 0, 1, b"12345678"), P),
    (frame(frames.GOAWAY, 0, 0, b"1234567"), Z),
    (frame(frames.WINDOW_UPDATE, 0, 0, b"123"), Z),
    (frames.window_update(0, 0), P),
    (frames.window_update(0, frames.MAX_WINDOW), F),
    (frames.window_update(9, 1), P),
    (frames.head(16_385, frames.DATA, 0, 1), Z),
]


@pytest.mark.parametrize(
    ("wire", "code"), FAULTS, ids=lambda value: value.hex() if isinstance(value, bytes) else ""
)
def test_what_no_stream_survives_ends_the_connection_with_its_reason(
    peer: Peer, wire: bytes, code: int
) -> None:
    served = peer.opened(1)
    peer.send(wire)
    assert error_of(peer) == code
    assert served.told == ["lost"]
    assert peer.counts.connection_errors == 1
    peer.send(frame(frames.PING, 0, 0, b"12345678"))
    assert peer.got() == []


@pytest.mark.parametrize(
    "wire",
    [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"X", frames.PREFACE[:-1] + b"X"],
    ids=["http1", "one byte", "last byte"],
)
def test_what_is_not_http2_is_refused_as_soon_as_that_is_seen(make_peer: type[Peer], wire: bytes) -> None:
    peer = make_peer(introduce=False)
    peer.send(wire)
    assert peer.connection.closing
    assert not peer.connection.began


def test_the_first_frame_must_be_settings(make_peer: type[Peer]) -> None:
    peer = make_peer(introduce=False)
    peer.send(frames.PREFACE + frame(frames.PING, 0, 0, b"12345678"))
    assert peer.connection.closing


def test_streams_of_lower_numbers_cannot_be_opened_later(peer: Peer) -> None:
    peer.opened(5)
    peer.open(3)
    assert error_of(peer) == frames.PROTOCOL_ERROR


def test_frames_after_both_ends_are_faults_and_after_our_own_end_are_not(peer: Peer) -> None:
    left, ended = peer.opened(1), peer.opened(3, end=True)
    left.stream.finish(TRAILERS)
    ended.stream.finish(TRAILERS)
    peer.got()
    peer.data(1, b"late")
    peer.open(1, end=True, fields=[("x", "y")])
    assert peer.got() == []
    peer.data(3, b"late")
    assert error_of(peer) == frames.STREAM_CLOSED


def test_what_comes_after_a_reset_of_the_peer_is_its_fault(peer: Peer) -> None:
    peer.opened(1)
    peer.send(frames.reset(1, frames.CANCEL), frame(frames.DATA, 0, 1, b"x"))
    assert reset_of(peer, 1) == frames.STREAM_CLOSED


# -- going away -----------------------------------------------------------------------------------------------------


def test_a_drain_serves_what_is_open_and_what_raced_it_and_then_closes(peer: Peer) -> None:
    served = peer.opened(1)
    peer.connection.drain()
    goaway, ping = peer.got()
    assert int.from_bytes(goaway.payload[:4], "big") == frames.MAX_STREAM
    raced = peer.opened(3, end=True)
    peer.send(frame(frames.PING, frames.ACK, 0, ping.payload))
    (goaway,) = peer.got()
    assert int.from_bytes(goaway.payload[:4], "big") == 3
    assert peer.open(5) is None
    peer.data(5, b"ignored")
    raced.stream.finish(TRAILERS)
    assert not peer.connection.closing
    served.stream.finish(TRAILERS)
    assert peer.connection.closing


def test_the_answer_to_an_older_ping_does_not_tell_that_the_peer_knows_of_a_drain(peer: Peer) -> None:
    peer.connection.ping()
    (older,) = peer.got()
    peer.connection.drain()
    _, ping = peer.got()
    peer.send(frame(frames.PING, frames.ACK, 0, older.payload))
    assert peer.got() == []
    assert peer.open(1) is not None
    peer.send(frame(frames.PING, frames.ACK, 0, ping.payload))
    assert int.from_bytes(peer.got()[-1].payload[:4], "big") == 1


def test_a_lost_connection_tells_each_stream_once(peer: Peer) -> None:
    handlers = [peer.opened(number) for number in (1, 3, 5)]
    peer.connection.lost()
    peer.connection.lost()
    assert [handler.told for handler in handlers] == [["lost"]] * 3
    handlers[0].stream.send(b"nobody hears it")
    handlers[0].stream.finish(TRAILERS)
    assert peer.got() == []


def test_streams_that_are_over_are_remembered_within_bounds(make_peer: type[Peer]) -> None:
    peer = make_peer(limits=Limits(remembered=10))
    for number in range(1, 2001, 2):
        peer.opened(number, end=True).stream.finish(TRAILERS)
        peer.got()
    assert len(peer.connection.past) <= 20
