"""Bodies that never come whole, through a real Envoy in each body mode: the request ends in our time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.serving.conftest import OpenGate

MODES: list[Any] = ["FULL_DUPLEX_STREAMED", "BUFFERED", "BUFFERED_PARTIAL"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_body_that_never_ends_is_answered_408(open_gate: OpenGate, tmp_path: Path, mode: Any) -> None:
    pair = (mode, "NONE")
    async with open_gate(tmp_path, [pair], body_timeout_seconds=1) as gate:
        host, _, port = gate.url(pair, "").removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{")
        async with asyncio.timeout(20):
            assert b" 408 " in await reader.readline()
        writer.close()
        await gate.eventually(lambda: gate.server.open_streams == 0)
        assert gate.server.counts.body_timeouts == 1
        assert gate.server.buffered_bytes == 0
        assert gate.picks.requests == []
