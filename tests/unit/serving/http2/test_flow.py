"""Flow control of one connection: what goes out, when, in which turn, and what the peer may send on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hpack import Encoder

from picker.serving.http2 import frames
from picker.serving.http2.frames import frame
from picker.serving.http2.limits import WRITE_QUANTUM, Limits
from picker.serving.http2.stream import AT_ONCE, AT_ONCE_TOGETHER

if TYPE_CHECKING:
    from tests.unit.serving.http2.conftest import Frame, Peer

from tests.unit.serving.http2.said import ASKED, STATUS, TRAILERS, kinds


def test_a_large_body_goes_out_as_the_windows_allow(peer: Peer) -> None:
    served = peer.opened(1)
    served.stream.respond(STATUS)
    body = bytes(range(256)) * 1000
    served.stream.send(body)
    served.stream.finish(TRAILERS)
    got = b"".join(one.payload for one in peer.all() if one.kind == frames.DATA)
    assert len(got) == frames.DEFAULT_WINDOW
    peer.send(frames.window_update(0, 1 << 20))
    assert peer.all() == [], "the stream's own window is closed"
    peer.send(frames.window_update(1, 100_000))
    got += b"".join(one.payload for one in peer.all() if one.kind == frames.DATA)
    assert len(got) == frames.DEFAULT_WINDOW + 100_000
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 20}))
    rest = peer.all()
    got += b"".join(one.payload for one in rest if one.kind == frames.DATA)
    assert got == body
    assert rest[-2].flags == frames.END_STREAM | frames.END_HEADERS
    assert served.told[-1] == "sent"
    assert peer.connection.queued == 0


def wide(peer: Peer) -> None:
    """Take as much as there may be, on each stream and on all together."""
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 24}), frames.window_update(0, 1 << 24))
    peer.got()


def test_a_body_of_several_frames_goes_out_at_once_where_nothing_is_in_its_way(peer: Peer) -> None:
    wide(peer)
    one, other = peer.opened(1), peer.opened(3)
    body = random.Random(1).randbytes(AT_ONCE)
    one.stream.send(body)
    other.stream.send(b"next")
    assert not one.stream.waits
    assert peer.connection.sent == 5
    got = peer.got()
    assert [(each.stream, len(each.payload)) for each in got] == [(1, 16_384)] * 4 + [(3, 4)]
    assert b"".join(each.payload for each in got[:4]) == body
    one.stream.send(body + b"more")
    assert one.stream.waits, "a larger one takes turns with others"


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 16_000])
def test_headers_and_trailers_of_any_size_go_out_whole(size: int, peer: Peer) -> None:
    served = peer.opened(1)
    served.stream.respond(bytes(size))
    served.stream.finish(bytes(size + 1))
    assert [len(one.payload) for one in peer.got() if one.kind == frames.HEADERS] == [size, size + 1]


def test_what_goes_out_at_once_is_bounded_until_it_is_taken(peer: Peer) -> None:
    wide(peer)
    served = [peer.opened(number) for number in range(1, 41, 2)]
    for each in served:
        each.stream.send(bytes(AT_ONCE - 1_000))
    assert [each.stream.waits for each in served].index(True) == AT_ONCE_TOGETHER // (AT_ONCE - 1_000)
    assert sum(map(len, peer.connection.out)) < AT_ONCE_TOGETHER + 1_000
    sizes: dict[int, int] = {}
    for sent in peer.all():
        sizes[sent.stream] = sizes.get(sent.stream, 0) + len(sent.payload)
    assert set(sizes.values()) == {AT_ONCE - 1_000}
    assert len(sizes) == 20


@pytest.mark.parametrize("most", [1, 7, 12, 900, 6_000, 20_000])
def test_frames_are_read_alike_however_their_bytes_are_cut(most: int, make_peer: type[Peer]) -> None:
    rng = random.Random(most)
    wire = frames.PREFACE + frames.settings({}) + frames.window_update(0, 5)
    for number in (1, 3, 5):
        wire += frame(frames.HEADERS, frames.END_HEADERS, number, Encoder().encode(ASKED))
        wire += frame(frames.DATA, 0, number, rng.randbytes(5_000)) + frame(frames.PING, 0, 0, bytes(8))
        wire += frame(frames.DATA, frames.END_STREAM, number, b"end")

    def told(most: int) -> tuple[list[Any], list[Frame]]:
        peer, at = make_peer(introduce=False), 0
        while at < len(wire):
            cut = rng.randint(1, most)
            peer.send(wire[at : at + cut])
            at += cut
        return [served.told for served in peer.handlers.values()], peer.got()

    whole = told(len(wire) * 1_000)
    assert len(whole[0]) == 3
    for _ in range(1 if most == 1 else 10):
        assert told(most) == whole


def test_a_window_made_smaller_may_be_negative(peer: Peer) -> None:
    served = peer.opened(1)
    served.stream.send(b"x" * 1000)
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    assert served.stream.window == -1000
    served.stream.send(b"y")
    assert kinds(peer.all()) == [frames.DATA, frames.SETTINGS]
    peer.send(frames.window_update(1, 1000))
    assert peer.all() == []
    peer.send(frames.window_update(1, 1))
    assert [one.payload for one in peer.all()] == [b"y"]


def test_a_huge_body_does_not_starve_others(peer: Peer) -> None:
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}), frames.window_update(0, 1 << 30))
    huge, small = peer.opened(1), peer.opened(3)
    peer.got()
    huge.stream.send(b"h" * (64 << 20))
    small.stream.send(b"s" * 100_000)
    first = peer.got()
    taken = sum(len(one.payload) for one in first if one.stream == 1)
    assert sum(len(one.payload) for one in first if one.stream == 3) >= min(100_000, taken - WRITE_QUANTUM)


def test_what_is_made_only_when_it_is_sent_is_not_made_before(peer: Peer) -> None:
    made = 0

    def pieces() -> object:
        nonlocal made
        for _ in range(100):
            made += 1
            yield b"x" * 10_000

    served = peer.opened(1)
    served.stream.send_from(pieces())  # type: ignore[arg-type]
    served.stream.finish(TRAILERS)
    peer.all()
    assert made == 7
    peer.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20))
    peer.all()
    assert made == 100


def test_the_peer_may_send_on_as_what_it_sent_is_consumed(peer: Peer) -> None:
    served = peer.opened(1)
    for _ in range(100):
        peer.data(1, b"x" * 16_000)
    assert len(served.body) == 1_600_000
    assert [one.stream for one in peer.got() if one.kind == frames.WINDOW_UPDATE].count(1) >= 5
    assert served.stream.room > 0


def test_a_peer_that_does_not_take_its_answers_may_not_send_on(peer: Peer) -> None:
    served = peer.opened(1)
    served.stream.send(b"y" * 100_000)
    peer.all()
    for _ in range(100):
        if not served.stream.over:
            peer.data(1, b"x" * 16_000)
    assert served.stream.over
    assert len(served.body) <= peer.limits.stream_window
    assert served.told[-1] == ("reset", frames.FLOW_CONTROL_ERROR)
    assert not peer.connection.closing


def test_nothing_is_sent_while_nothing_can_be_written(peer: Peer) -> None:
    served = peer.opened(1)
    peer.connection.paused = True
    served.stream.send(b"x" * 1000)
    assert served.stream.waits
    peer.connection.paused = False
    assert [one.payload for one in peer.all()] == [b"x" * 1000]
    assert served.told == ["sent"]


def test_late_data_is_not_lost_for_the_connection_s_window(make_peer: type[Peer]) -> None:
    peer = make_peer(limits=Limits(connection_window=100_000))
    peer.opened(1).stream.finish(TRAILERS)
    peer.got()
    for _ in range(100):
        peer.data(1, b"x" * 16_000)
    assert not peer.connection.closing
    assert peer.connection.room > 0


def test_what_is_written_outside_of_a_turn_wakes_the_writer(peer: Peer) -> None:
    served = peer.opened(1)
    assert peer.woken == 0
    served.stream.send(b"x")
    assert peer.woken == 1
