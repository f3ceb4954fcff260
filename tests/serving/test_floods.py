"""Floods on the native transport, of each kind: cut off and counted, while others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hpack import Encoder

from picker.serving.gateway import request_body, request_headers, response_headers
from picker.serving.http2 import frames
from picker.serving.http2.frames import frame
from picker.serving.methods import PROCESS
from picker.serving.seam import End
from picker.serving.wire.extproc_pb2 import ProcessingResponse

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks

from tests.serving.front import DUPLEX, Raw, raw
from tests.serving.front import native_front as front


@pytest.fixture(scope="session", params=["native"])
def transport(request: pytest.FixtureRequest) -> Any:
    """These are promises of one transport only."""
    return request.param


FLOODS = {
    "flooded_pings": frame(frames.PING, 0, 0, b"12345678") * 1_100,
    "flooded_settings": frames.settings({}) * 200,
    "flooded_idle": frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\x05") * 2_100,
    "flooded_windows": frames.window_update(0, 1) * 10_100,
    "flooded_empty": frame(frames.DATA, 0, 1, b"") * 1_100,
    "flooded_headers": frame(frames.HEADERS, 0, 3, b"") + frame(frames.CONTINUATION, 0, 3, b"") * 20,
    "connection_errors": frame(frames.DATA, 0, 0, b""),
}


@pytest.mark.parametrize("count", FLOODS)
async def test_a_flood_is_cut_off_and_others_do_not_notice(make_picks: MakePicks, count: str) -> None:
    async with front(make_picks) as at, at.channel() as channel, raw(at) as one:
        held = channel.stream_stream(PROCESS, response_deserializer=ProcessingResponse.FromString)()
        await held.write(request_headers(mode=DUPLEX).SerializeToString())
        one.ask(1)
        one.message(1, request_headers(end=True))
        await one.until(frames.DATA, 1)
        one.send(FLOODS[count])
        await one.ends()
        assert getattr(at.server.http2, count) == 1
        assert at.picks.overs == [("booking", End.CANCELLED)]
        await held.write(request_body(b"{}").SerializeToString())
        assert (await held.read()).HasField("request_headers")


async def test_rapid_resets_are_cut_off(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        for number in range(1, 2 * 40_000, 2):
            one.ask(number)
            one.send(frames.reset(number, frames.CANCEL))
        assert await one.ends() in (frames.ENHANCE_YOUR_CALM, None)
        assert at.server.http2.flooded_resets == 1
        assert at.server.open_streams == 0
        assert await at.served()


def rapid_resets() -> bytes:
    """Streams opened and reset at once, until the bucket is empty and far beyond."""
    encoder, sent = Encoder(), []
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PROCESS),
        ("content-type", "application/grpc"),
    ]
    for number in range(3, 2 * 40_000 + 3, 2):
        sent.append(frame(frames.HEADERS, frames.END_HEADERS, number, encoder.encode(fields)))
        sent.append(frames.reset(number, frames.CANCEL))
    return b"".join(sent)


def large_headers() -> bytes:
    """Headers over the limit, stream after stream; each field is new, so that all have to be decoded."""
    encoder, sent = Encoder(), []
    for number in range(3, 2 * 40 + 3, 2):
        block = encoder.encode([(f"x-{number}-{place}", str(place)) for place in range(900)], huffman=False)
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        for place, piece in enumerate(pieces):
            kind = frames.CONTINUATION if place else frames.HEADERS
            sent.append(frame(kind, frames.END_HEADERS if place == len(pieces) - 1 else 0, number, piece))
    return b"".join(sent)


def control_frames_unread() -> bytes:
    """More frames that want an answer than may wait where answers are not read."""
    ping = frame(frames.PING, 0, 0, b"12345678")
    return ping * 960 + frames.settings({}) * 90


KINDS: dict[str, tuple[str, Callable[[], bytes]]] = {
    **{
        name: (name, partial(bytes.__mul__, sent, 3))
        for name, sent in FLOODS.items()
        if name.startswith("flooded_")
    },
    "acknowledged_pings": ("flooded_pings", lambda: frame(frames.PING, frames.ACK, 0, b"12345678") * 3_000),
    "acknowledged_settings": ("flooded_settings", lambda: frames.SETTINGS_TAKEN * 600),
    "padding_alone": ("flooded_empty", lambda: frame(frames.DATA, frames.PADDED, 1, b"\x03\0\0\0") * 3_000),
    "unknown_frames": ("flooded_idle", lambda: frame(0x42, 0, 1, b"") * 6_000),
    "stream_windows": ("flooded_windows", lambda: frames.window_update(1, 1) * 30_000),
    "rapid_resets": ("flooded_resets", rapid_resets),
    "large_headers": ("flooded_headers", large_headers),
    "unread_answers": ("flooded_unread", control_frames_unread),
}
"""Kind of flood -> the count it is counted under, and its frames; stream 1 is open."""
PIECE = 16_384
"""Bytes of a flood that are sent before others have their turn."""


async def asks_again_and_again(one: Raw, stop: asyncio.Event) -> int:
    """One whole stream after the other until told to stop: how many were answered with OK, all of them."""
    answered = 0
    while not stop.is_set() or answered < 3:
        number = 2 * answered + 1
        one.ask(number)
        one.message(number, request_headers(end=True))
        await one.until(frames.DATA, number)
        one.message(number, response_headers(end=True), end=True)
        assert await one.status(number) == "0"
        answered += 1
    return answered


@pytest.mark.parametrize("kind", KINDS)
async def test_who_asks_beside_a_flood_is_answered_every_time(make_picks: MakePicks, kind: str) -> None:
    count, flood = KINDS[kind]
    wide = frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30)
    async with front(make_picks) as at, raw(at) as good, raw(at, settings=wide) as bad:
        stop = asyncio.Event()
        asking = asyncio.create_task(asks_again_and_again(good, stop))
        bad.ask(1)
        if kind == "unread_answers":
            bad.message(1, request_headers(mode=DUPLEX), request_body(b"x" * 5_900_000))
            for number in (3, 5, 7):
                bad.ask(number)
                bad.message(number, request_headers(mode=DUPLEX), request_body(b"x" * 5_900_000))
            await at.eventually(lambda: at.server.counts.decided >= 4, 30)
        sent = flood()
        for place in range(0, len(sent), PIECE):
            bad.send(sent[place : place + PIECE])
            await asyncio.sleep(0)
        await at.eventually(lambda: getattr(at.server.http2, count) == 1, 30)
        stop.set()
        assert await asking >= 3
        assert at.server.http2.connection_errors == 0
        assert at.server.http2.handler_errors == 0
        await at.eventually(lambda: at.server.open_streams == 0)
        assert at.server.buffered_bytes == 0
