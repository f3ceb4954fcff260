"""Frames that cost us and bring their sender nothing: cut off, counted, and never confused with honest traffic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hpack.hpack import encode_integer

from picker.serving.http2 import floods, frames
from picker.serving.http2.frames import frame
from picker.serving.http2.limits import Counts, Limits

if TYPE_CHECKING:
    from tests.unit.serving.http2.conftest import Peer

TRAILERS = b"\x00\x01a\x01b"
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("content-type", "application/grpc")]


def pings(peer: Peer, _: int) -> None:
    peer.send(frame(frames.PING, 0, 0, b"12345678"))


def acknowledged_pings(peer: Peer, _: int) -> None:
    peer.send(frame(frames.PING, frames.ACK, 0, b"12345678"))


def settings(peer: Peer, _: int) -> None:
    peer.send(frames.settings({}))


def acknowledged_settings(peer: Peer, _: int) -> None:
    peer.send(frames.SETTINGS_TAKEN)


def empty_data(peer: Peer, _: int) -> None:
    peer.data(1, b"")


def padding_alone(peer: Peer, _: int) -> None:
    peer.send(frame(frames.DATA, frames.PADDED, 1, b"\x03\0\0\0"))


def empty_data_late(peer: Peer, _: int) -> None:
    peer.data(3, b"")


def priorities(peer: Peer, _: int) -> None:
    peer.send(frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\x01"))


def unknown_frames(peer: Peer, _: int) -> None:
    peer.send(frame(0x42, 0, 1, b""))


def late_resets(peer: Peer, _: int) -> None:
    peer.send(frames.reset(3, frames.CANCEL))


def windows(peer: Peer, _: int) -> None:
    peer.send(frames.window_update(0, 1))


def stream_windows(peer: Peer, _: int) -> None:
    peer.send(frames.window_update(1, 1))


def rapid_resets(peer: Peer, turn: int) -> None:
    peer.open(2 * turn + 5)
    peer.send(frames.reset(2 * turn + 5, frames.CANCEL))


def resets_that_we_are_made_to_send(peer: Peer, turn: int) -> None:
    peer.open(2 * turn + 5)
    peer.send(frames.window_update(2 * turn + 5, 0))


def malformed_requests(peer: Peer, turn: int) -> None:
    peer.open(2 * turn + 5, fields=[("x", "y")])


def continuations(peer: Peer, turn: int) -> None:
    if turn == 0:
        peer.send(frame(frames.HEADERS, 0, 5, b""))
    peer.send(frame(frames.CONTINUATION, 0, 5, b""))


def large_continuations(peer: Peer, turn: int) -> None:
    if turn == 0:
        peer.send(frame(frames.HEADERS, 0, 5, b"\0" * 16_384))
    peer.send(frame(frames.CONTINUATION, 0, 5, b"\0" * 16_384))


def blocks_that_are_dear_to_decode(peer: Peer, turn: int) -> None:
    number = 2 * turn + 5
    literals = b"\0\x01a\x01b" * 900
    peer.send(frame(frames.HEADERS, frames.END_HEADERS, number, literals))


def large_headers(peer: Peer, turn: int) -> None:
    fields = [*FIELDS, *((f"x-{index}", str(turn)) for index in range(900))]
    block = peer.encoder.encode(fields)
    number = 2 * turn + 5
    peer.send(
        frame(frames.HEADERS, 0, number, block[:16_000]),
        frame(frames.CONTINUATION, frames.END_HEADERS, number, block[16_000:]),
    )
    served = peer.handlers.get(number)
    if served is not None:
        served.stream.finish(TRAILERS)


FLOODS: list[tuple[Callable[[Peer, int], None], str, int]] = [
    (pings, "flooded_pings", 1_001),
    (acknowledged_pings, "flooded_pings", 1_001),
    (settings, "flooded_settings", 101),
    (acknowledged_settings, "flooded_settings", 101),
    (empty_data, "flooded_empty", 1_001),
    (padding_alone, "flooded_empty", 1_001),
    (empty_data_late, "flooded_idle", 2_005),
    (priorities, "flooded_idle", 2_005),
    (unknown_frames, "flooded_idle", 2_005),
    (late_resets, "flooded_idle", 2_005),
    (windows, "flooded_windows", 10_003),
    (stream_windows, "flooded_windows", 10_003),
    (rapid_resets, "flooded_resets", 12_001),
    (resets_that_we_are_made_to_send, "flooded_resets", 12_001),
    (malformed_requests, "flooded_resets", 12_001),
    (continuations, "flooded_headers", 17),
    (large_continuations, "flooded_headers", 4),
    (large_headers, "flooded_headers", 21),
    (blocks_that_are_dear_to_decode, "flooded_headers", 186),
]


@pytest.mark.parametrize(
    ("frames_of", "count", "most"), FLOODS, ids=lambda value: getattr(value, "__name__", None)
)
def test_each_flood_is_cut_off_and_counted_under_its_name(
    peer: Peer, frames_of: Callable[[Peer, int], None], count: str, most: int
) -> None:
    held = peer.opened(1)
    gone = peer.opened(3)
    gone.stream.finish(TRAILERS)
    for turn in range(most + 2):
        frames_of(peer, turn)
        if peer.connection.closing:
            break
    assert turn <= most
    assert turn >= most - 3
    assert {
        name: getattr(peer.counts, name) for name in peer.counts.__slots__ if name.startswith("flooded_")
    } == {name: int(name == count) for name in peer.counts.__slots__ if name.startswith("flooded_")}
    assert held.told[-1] == "lost"
    assert int.from_bytes(peer.got()[-1].payload[4:8], "big") == frames.ENHANCE_YOUR_CALM


def test_a_second_is_enough_to_ask_again(peer: Peer) -> None:
    for _ in range(20):
        for turn in range(int(floods.PINGS.each_second)):
            pings(peer, turn)
        peer.now += 1
    assert not peer.connection.closing


def test_pings_and_windows_are_earned_by_what_we_send(peer: Peer) -> None:
    peer.send(frames.window_update(0, 1 << 30))
    served = peer.opened(1)
    for turn in range(6_000):
        served.stream.send(b"x")
        pings(peer, turn)
        windows(peer, turn)
        peer.send(frames.window_update(1, 1))
        peer.got()
    assert not peer.connection.closing


def test_clients_that_leave_as_often_as_others_are_answered_are_no_flood(peer: Peer) -> None:
    for number in range(1, 20_000, 4):
        rapid_resets(peer, (number - 1) // 2)
        peer.opened(number + 6, end=True).stream.finish(TRAILERS)
        peer.got()
    assert not peer.connection.closing
    assert peer.counts.resets_premature == 5_000


def test_what_a_gateway_still_says_of_streams_that_we_have_ended_is_no_flood(peer: Peer) -> None:
    for number in range(1, 20_000, 2):
        served = peer.opened(number)
        served.stream.send(b"x")
        served.stream.finish(TRAILERS)
        peer.send(frames.window_update(number, 100), frames.window_update(number, 100))
        peer.data(number, b"", end=True)
        peer.send(frames.reset(number, frames.CANCEL))
        peer.got()
    assert not peer.connection.closing
    assert peer.counts.flooded_idle == 0


def test_streams_that_are_answered_pay_for_headers_that_never_repeat(peer: Peer) -> None:
    for number in range(1, 12_000, 2):
        served = peer.open(number, fields=[*FIELDS, ("x", str(number) * 50)])
        assert served is not None
        served.stream.send(b"x")
        served.stream.finish(TRAILERS)
        peer.got()
        peer.connection.window = 1 << 20
    assert peer.counts.flooded_headers == 0


def test_resets_after_response_headers_are_never_a_flood(peer: Peer) -> None:
    for number in range(1, 10_000, 2):
        peer.opened(number).stream.respond(b"\x88")
        peer.send(frames.reset(number, frames.CANCEL))
        peer.got()
    assert not peer.connection.closing
    assert peer.counts.resets_premature == 0


def test_a_peer_that_asks_and_does_not_read_is_cut_off(peer: Peer) -> None:
    peer.connection.paused = True
    for turn in range(1_100):
        pings(peer, turn)
        peer.now += 1
    assert peer.connection.closing
    assert peer.counts.flooded_unread == 1


def test_streams_that_are_answered_and_never_read_are_bounded(make_peer: type[Peer]) -> None:
    peer = make_peer(limits=Limits(streams=10))
    peer.connection.paused = True
    for number in range(1, 100_000, 2):
        served = peer.open(number, end=True)
        if served is None:
            break
        served.stream.finish(TRAILERS)
    assert peer.connection.closing
    assert peer.counts.flooded_unread == 1
    assert len(peer.connection.out) < 100


def test_many_settings_in_one_frame_cost_as_much_as_one(peer: Peer) -> None:
    streams = [peer.opened(number) for number in range(1, 2001, 2)]
    many = b"".join((4).to_bytes(2, "big") + size.to_bytes(4, "big") for size in range(2_700))
    peer.send(frame(frames.SETTINGS, 0, 0, many))
    assert all(one.stream.window == 2_699 for one in streams)


def test_what_a_gateway_says_late_of_all_streams_that_ended_at_one_time_is_no_flood(peer: Peer) -> None:
    numbers = range(1, 20_000, 2)
    for served in [peer.opened(number) for number in numbers]:
        served.stream.send(b"x")
        served.stream.finish(TRAILERS)
    peer.got()
    for number in numbers:
        peer.send(frames.window_update(number, 100), frames.window_update(number, 100))
        peer.data(number, b"", end=True)
        peer.send(frames.reset(number, frames.CANCEL))
    assert not peer.connection.closing


def test_bodies_still_on_their_way_on_streams_that_we_ended_long_ago_are_no_fault(peer: Peer) -> None:
    for number in range(1, 12_000, 2):
        peer.opened(number).stream.finish(TRAILERS)
    peer.got()
    for _ in range(5):
        for number in range(1, 12_000, 2):
            peer.data(number, b"rest")
    assert not peer.connection.closing
    assert peer.counts.stream_errors == 0
    assert peer.got() == []


def test_all_clients_of_a_gateway_may_leave_at_one_time(peer: Peer) -> None:
    for number in range(1, 20_000, 2):
        peer.opened(number)
    for number in range(1, 20_000, 2):
        peer.send(frames.reset(number, frames.CANCEL))
    assert not peer.connection.closing
    assert peer.counts.resets_premature == 10_000


@pytest.mark.parametrize(("size", "streams"), [(55, 10_000), (1_500, 2_000)])
def test_streams_that_wait_for_their_clients_with_a_trace_each_are_no_flood(
    peer: Peer, size: int, streams: int
) -> None:
    for number in range(1, 2 * streams, 2):
        peer.open(number, fields=[*FIELDS, ("tracestate", str(number).zfill(size))])
    assert not peer.connection.closing


def test_clients_with_long_trace_states_that_leave_again_and_again_are_no_flood(peer: Peer) -> None:
    state = b"\0\x0atracestate" + bytes(encode_integer(40_000, 7)) + b"v" * 40_000
    for number in range(1, 4_000, 2):
        block = peer.encoder.encode(FIELDS) + state
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        peer.send(frame(frames.HEADERS, 0, number, pieces[0]))
        for piece in pieces[1:-1]:
            peer.send(frame(frames.CONTINUATION, 0, number, piece))
        peer.send(frame(frames.CONTINUATION, frames.END_HEADERS, number, pieces[-1]))
        assert peer.handlers[number].request.grpc
        peer.send(frames.reset(number, frames.CANCEL))
    assert not peer.connection.closing


def test_the_page_of_limits_names_every_flood() -> None:
    page = (Path(__file__).parents[4] / "docs" / "limits.md").read_text()
    names = [name for name in Counts.__slots__ if name.startswith("flooded_")]
    assert names
    assert [name for name in names if f"`{name}`" not in page] == []
