"""Our own HTTP ports against requests that are none: what is answered, and what of them reaches the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from picker.webport import MOST_CONNECTIONS, Counts, open_runner

TOKEN = "a-token-of-somebody"
GARBAGE = {
    "a control character in a header": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
    + TOKEN.encode()
    + b"\x01\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization Bearer "
    + TOKEN.encode()
    + b"\r\n\r\n",
    "a header too long": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
    + TOKEN.encode() * 1000
    + b"\r\n\r\n",
    "bytes in the query": b"GET /?token=" + TOKEN.encode() + b"\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "two hosts": b"GET /" + TOKEN.encode() + b" HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no host": b"GET /" + TOKEN.encode() + b" HTTP/1.1\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "no HTTP at all": TOKEN.encode() + b"\r\n\r\n",
}


async def _well(_: web.Request) -> web.Response:
    return web.Response(text="well")


async def _broken(_: web.Request) -> web.Response:
    raise RuntimeError("a defect of ours")


@asynccontextmanager
async def served(counts: Counts | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes([web.get("/", _well), web.get("/broken", _broken)])
    runner = open_runner(app, keepalive=5, counts=counts)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def answered(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.readline(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize("request_bytes", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_request_that_is_no_http_is_refused_and_nothing_of_it_is_logged(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as port:
        with capture_logs() as logged:
            assert b" 400 " in await answered(port, request_bytes)
    assert len(logged) == 1
    assert TOKEN not in json.dumps(logged, default=str)
    assert TOKEN not in caplog.text


async def test_a_flood_of_garbage_warns_once_for_each_kind_of_fault() -> None:
    async with served() as port:
        with capture_logs() as logged:
            for _ in range(5):
                await answered(port, GARBAGE["no host"])
                await answered(port, GARBAGE["a header too long"])
    assert [entry["log_level"] for entry in logged].count("warning") == 2
    assert len(logged) == 10


async def test_a_defect_of_ours_is_logged_with_its_trace() -> None:
    async with served() as port:
        with capture_logs() as logged:
            assert b" 500 " in await answered(port, b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n")
    (entry,) = logged
    trace: Any = entry["exc_info"]
    assert entry["log_level"] == "error"
    assert "a defect of ours" in str(trace[1])


async def test_connections_past_the_most_are_closed_and_counted_and_there_is_room_again_when_one_goes() -> (
    None
):
    counts = Counts()
    async with served(counts) as port, AsyncExitStack() as stack:
        held = []
        for _ in range(MOST_CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            held.append((reader, writer))
        for reader, _ in held:  # each is a connection of the server's once it has been answered
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 10)
        assert await _perhaps(port) == b""
        assert counts.turned_away == 1
        held[-1][1].close()
        async with asyncio.timeout(10):
            while b" 200 " not in await _perhaps(port):  # noqa: ASYNC110 - it is asked again and again
                await asyncio.sleep(0.02)


async def _perhaps(port: int) -> bytes:
    try:
        return await answered(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    except ConnectionError:
        return b""
