"""No bytes make a connection raise, grow without bounds, or let one stream touch another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from picker.serving.http2 import frames
from tests.fuzz.http2 import OPENING, Watched, attack, attacks


@settings(deadline=None, max_examples=300)
@given(attacks())
def test_no_sequence_of_frames_breaks_anything(one: tuple[list[int], list[tuple[bytes, float]]]) -> None:
    attack(*one)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=200), max_size=10), st.booleans())
def test_no_bytes_break_anything(pieces: list[bytes], opened: bool) -> None:
    watched = Watched([])
    if opened:
        watched.receive(OPENING, 0.0)
    for piece in pieces:
        watched.receive(piece, 0.0)


@settings(deadline=None, max_examples=100)
@given(attacks())
def test_a_stream_beside_the_faults_of_others_gets_every_byte(
    one: tuple[list[int], list[tuple[bytes, float]]],
) -> None:
    """Whatever happens on other streams, as long as the connection stands this one loses nothing."""
    watched = Watched([])
    watched.receive(OPENING, 0.0)
    block = b"\x83\x86\x04\x02/a\x5f\x10application/grpc"
    watched.receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block), 0.0)
    (mine,) = watched.handlers
    watched._script[:] = one[0]
    mine.script = []
    got: list[bytes] = []
    mine.data = got.append  # type: ignore[method-assign, assignment]
    for number, (data, _) in enumerate(one[1]):
        if _touches(data):
            continue
        watched.receive(data, 0.0)
        if watched.connection.closing or watched.connection._rest or not watched.connection._requests.free:
            return
        watched.receive(frames.frame(frames.DATA, 0, 1, b"%d" % number), 0.0)
        if watched.connection.closing:
            return
    assert not mine.stream.over


def _touches(data: bytes) -> bool:
    """Whether some frame of it is for stream 1."""
    at = 0
    while at + frames.HEAD_SIZE <= len(data):
        high, low, _, _, number = frames.HEAD.unpack_from(data, at)
        if number & frames.MAX_STREAM == 1:
            return True
        at += frames.HEAD_SIZE + (high << 8 | low)
    return at != len(data)
