"""A wire passes bytes as they are, and does to them exactly what it is told, while it is told."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.injectors.lane import HELD_BYTES, PIECE_BYTES
from chaos.injectors.wire import TcpWire
from tests.unit.chaos.injectors.conftest import Echo

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def dialled(wire: TcpWire) -> AsyncIterator[Line]:
    host, _, port = wire.listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0.01)


async def said(line: Line, text: bytes, *, within: float = 5.0) -> bytes:
    line[1].write(text)
    async with asyncio.timeout(within):
        return await line[0].readexactly(len(text))


async def silent(line: Line, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await line[0].readexactly(1)
    except TimeoutError:
        return True
    return False


async def eventually(look: object, *, within: float = 5.0) -> None:
    until = time.monotonic() + within
    while not look():  # type: ignore[operator]
        assert time.monotonic() < until
        await asyncio.sleep(0.005)


async def test_bytes_pass_unchanged_both_ways_and_an_end_reaches_the_other_side(
    wire: TcpWire, echo: Echo
) -> None:
    data = random.Random(1).randbytes(3_000_000)
    async with dialled(wire) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(20):
            assert await reader.read(-1) == data
    assert bytes(echo.got) == data
    assert echo.ends == ["end"]
    assert wire.there.counts.bytes == wire.back.counts.bytes == len(data)
    assert (wire.counts.connections, wire.counts.resets) == (1, 0)


async def test_latency_is_added_to_one_way_and_ends_when_it_is_taken_away(wire: TcpWire) -> None:
    async with dialled(wire) as line:
        await said(line, b"warm")
        wire.set("there", latency=0.3)
        begun = time.monotonic()
        await said(line, b"late")
        assert time.monotonic() - begun >= 0.29
        assert wire.there.counts.delayed == 1
        assert wire.back.counts.delayed == 0
        wire.set("there", latency=60.0)
        line[1].write(b"freed")
        await asyncio.sleep(0.05)
        wire.mend()
        async with asyncio.timeout(5):
            assert await line[0].readexactly(5) == b"freed"


async def test_jitter_never_changes_the_order(wire: TcpWire) -> None:
    wire.set("there", latency=0.001, jitter=0.05)
    async with dialled(wire) as (reader, writer):
        for number in range(40):
            writer.write(b"%03d" % number)
            await asyncio.sleep(0.002)
        async with asyncio.timeout(10):
            assert await reader.readexactly(120) == b"".join(b"%03d" % number for number in range(40))


async def test_a_narrow_wire_lets_so_many_bytes_through_a_second(wire: TcpWire) -> None:
    wire.set("there", bandwidth=200_000)
    async with dialled(wire) as line:
        begun = time.monotonic()
        await said(line, bytes(100_000))
        assert time.monotonic() - begun >= 0.4
    assert wire.there.counts.narrowed > 0


async def test_what_is_sent_into_a_pause_arrives_in_order_after_it(wire: TcpWire, echo: Echo) -> None:
    async with dialled(wire) as line:
        await said(line, b"warm")
        for way in ("there", "back"):
            wire.set(way, pause=True)
        line[1].write(b"one")
        await asyncio.sleep(0.05)
        line[1].write(b"two")
        assert await silent(line, 0.1)
        async with dialled(wire) as other:
            other[1].write(b"new")
            assert await silent(other, 0.1)
            assert echo.connections == 1
            assert bytes(echo.got) == b"warm"
            assert wire.there.counts.paused > 0
            wire.mend()
            async with asyncio.timeout(5):
                assert await line[0].readexactly(6) == b"onetwo"
                assert await other[0].readexactly(3) == b"new"
    assert wire.counts.resets == 0


async def test_a_half_open_connection_swallows_bytes_and_ends_and_is_reset_by_the_heal(
    wire: TcpWire, echo: Echo
) -> None:
    async with dialled(wire) as line, dialled(wire) as leaver, dialled(wire) as bystander:
        for each in (line, leaver, bystander):
            await said(each, b"x")
        wire.set("there", swallow=True)
        line[1].write(b"lost")
        leaver[1].close()
        await eventually(lambda: wire.there.counts.swallowed == 4)
        assert await silent(line, 0.1)
        assert bytes(echo.got) == b"xxx"
        assert echo.ends == []
        wire.mend()
        with pytest.raises(ConnectionResetError):
            await line[0].readexactly(1)
        await eventually(lambda: len(echo.ends) == 2)
        assert "end" not in echo.ends
        assert await said(bystander, b"still here") == b"still here"


async def test_one_way_can_be_mute_while_the_other_speaks(wire: TcpWire, echo: Echo) -> None:
    async with dialled(wire) as line:
        await said(line, b"x")
        wire.set("back", swallow=True)
        line[1].write(b"heard")
        await eventually(lambda: bytes(echo.got) == b"xheard")
        assert await silent(line, 0.1)
        assert wire.back.counts.swallowed == 5
        assert wire.there.counts.swallowed == 0


async def test_a_dial_into_a_half_open_wire_is_taken_and_never_answered(wire: TcpWire, echo: Echo) -> None:
    wire.set("there", swallow=True)
    async with dialled(wire) as line:
        line[1].write(b"anyone?")
        assert await silent(line, 0.1)
        assert echo.connections == 0
        assert wire.counts.unheard == 1
        assert wire.mend() == 1
        with pytest.raises(ConnectionResetError):
            await line[0].readexactly(1)


async def test_refused_dials_leave_running_connections_alone_and_the_port_taken(wire: TcpWire) -> None:
    async with dialled(wire) as line:
        await said(line, b"x")
        await wire.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            async with dialled(wire):
                pass
        assert await said(line, b"y") == b"y"
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", int(wire.listen.rpartition(":")[2])))
        await wire.refuse(False)
        async with dialled(wire) as again:
            assert await said(again, b"z") == b"z"


async def test_a_reset_is_seen_as_one_on_both_sides(wire: TcpWire, echo: Echo) -> None:
    async with dialled(wire) as line:
        await said(line, b"x")
        assert wire.reset() == 1
        with pytest.raises(ConnectionResetError):
            await line[0].readexactly(1)
        await eventually(lambda: echo.ends == ["ConnectionResetError"])
        async with dialled(wire) as again:
            assert await said(again, b"y") == b"y"


async def test_new_connections_are_reset_after_their_time(wire: TcpWire) -> None:
    wire.reset_after = 0.1
    async with dialled(wire) as line:
        assert await said(line, b"x") == b"x"
        with pytest.raises(ConnectionResetError):
            await line[0].readexactly(1)
    assert wire.counts.resets == 1


async def test_a_slow_close_keeps_the_end_back_and_not_the_bytes(wire: TcpWire, echo: Echo) -> None:
    wire.set("there", slow_close=0.3)
    async with dialled(wire) as (reader, writer):
        begun = time.monotonic()
        writer.write(b"last words")
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.readexactly(10) == b"last words"
            assert time.monotonic() - begun < 0.25
            assert await reader.read(-1) == b""
        assert time.monotonic() - begun >= 0.29
    assert wire.there.counts.slow_closes == 1


async def test_a_sender_that_nobody_reads_is_held_back(wire: TcpWire, echo: Echo) -> None:
    async with dialled(wire) as (reader, writer):
        echo.reads.clear()
        data = bytes(64 * HELD_BYTES)
        writer.write(data)
        await asyncio.sleep(0.3)
        held = sum(flow._held for flow in next(iter(wire._connections.values()))._flows.values())
        assert held <= HELD_BYTES + PIECE_BYTES
        assert writer.transport.get_write_buffer_size() > 0
        del reader


async def test_a_dial_that_the_upstream_does_not_take_is_reset(echo: Echo) -> None:
    wire = await TcpWire.open(listen="127.0.0.1:0", upstream="127.0.0.1:1", name="a>nobody")
    async with dialled(wire) as line:
        with pytest.raises(ConnectionResetError):
            await line[0].readexactly(1)
    assert wire.counts.undialled == 1
    await wire.close()


async def test_an_upstream_that_dies_is_not_told_while_nothing_passes(wire: TcpWire, echo: Echo) -> None:
    async with dialled(wire) as line:
        await said(line, b"x")
        wire.set("back", pause=True)
        await echo.stop()
        assert await silent(line, 0.1)
        wire.mend()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(5):
                await line[0].readexactly(1)


async def test_closing_a_wire_in_the_midst_of_everything_leaves_nothing(wire: TcpWire) -> None:
    async with dialled(wire) as one, dialled(wire) as two:
        await said(one, b"x")
        wire.set("there", latency=60.0)
        wire.set("back", pause=True)
        one[1].write(b"waiting")
        two[1].write(b"waiting")
        await asyncio.sleep(0.05)
        assert wire.open_connections == 2
        await wire.close()
        with pytest.raises(ConnectionRefusedError):
            async with dialled(wire):
                pass


@pytest.mark.parametrize("wrong", [{"latency": -1}, {"bandwidth": -1}, {"slow_close": -0.1}])
def test_negative_conditions_are_refused(wrong: dict[str, float]) -> None:
    from chaos.injectors.links import Impairment

    with pytest.raises(ValueError, match="not negative"):
        Impairment("latency", "a>b", tuple(wrong.items()), ("there",), "delayed", "")
