from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp


@asynccontextmanager
async def engine(*told: str) -> AsyncIterator[Process]:
    argv = ("-m", "picker", "sim", "engine", "--prefill-us-per-token", "10", "--decode-ms", "1", *told)
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_it_says_where_it_listens_answers_and_ends_on_sigterm(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60), engine("--name", "w3", "--kv-events", "tcp://127.0.0.1:0") as process:
        assert process.stdout
        ready = json.loads(await process.stdout.readline())
        assert (ready["ready"], ready["name"], ready["pid"]) == (True, "w3", process.pid)
        assert ready["kv_events"].startswith("tcp://127.0.0.1:")
        body = {
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "ignore_eos": True,
            "max_tokens": 9000,
        }
        async with session.post(ready["url"] + "/v1/chat/completions", json=body) as response:
            assert response.status == 200
            await response.content.readline()
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
        assert process.returncode == 0
        assert errors == b""


async def test_a_port_that_is_taken_stops_it_with_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for where in (("--port", port), ("--kv-events", f"tcp://127.0.0.1:{port}")):
            async with asyncio.timeout(60), engine(*where) as process:
                _, errors = await process.communicate()
                assert process.returncode == 1
                assert port in errors.decode()
                assert b"Traceback" not in errors
