"""The simulated engine's further APIs: what they say is what a chat says, and usage is told as theirs tell it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from picker.responses.shape import Shape
from picker.responses.usage import Usage, UsageReading
from picker.sim.engine.server import Server

WORDS = "The river runs past the old mill and under the bridge to the harbor where the ships wait. "
MESSAGES = ("/v1/messages", {"model": "demo-8b", "max_tokens": 6, "system": "Be brief.",
                             "messages": [{"role": "user", "content": [{"type": "text", "text": WORDS}]}]})  # fmt: skip
RESPONSES = (
    "/v1/responses",
    {"model": "demo-8b", "max_output_tokens": 6, "instructions": "Be brief.", "input": WORDS},
)
CHAT = {"model": "demo-8b", "max_tokens": 6,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": WORDS}]}  # fmt: skip


async def post(session: aiohttp.ClientSession, server: Server, path: str, body: object) -> bytes:
    async with session.post(server.url + path, json=body) as response:
        assert response.status == 200
        return await response.read()


def told(shape: Shape, answer: bytes) -> Usage | None:
    reading = UsageReading(shape)
    reading.piece(answer, end=True)
    return reading.usage


def text_of(answer: Any) -> str:
    part = answer["content"] if "content" in answer else answer["output"][0]["content"]
    return str(part[0]["text"])


@pytest.mark.parametrize(("path", "body"), [MESSAGES, RESPONSES])
async def test_an_answer_is_that_of_a_chat_in_another_shape(
    start_engine: Any, session: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    server = await start_engine(block_size=8)
    chat = json.loads(await post(session, server, "/v1/chat/completions", CHAT))
    plain = await post(session, server, path, body)
    stream = await post(session, server, path, {**body, "stream": True})
    assert text_of(json.loads(plain)) == chat["choices"][0]["message"]["content"]
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
    named = [line[7:].decode() for line in stream.splitlines() if line.startswith(b"event: ")]
    assert [event["type"] for event in events] == named
    deltas = [event["delta"] for event in events if event["type"].endswith("delta")]
    pieces = [each if isinstance(each, str) else each.get("text", "") for each in deltas]
    assert "".join(pieces) == text_of(json.loads(plain))
    size = chat["usage"]["prompt_tokens"]
    cached = (size - 1) // 8 * 8
    assert told(Shape.JSON, plain) == told(Shape.LINES, stream) == Usage(size, 6, cached)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("body", [b"[]", b"{", b"{}"])
async def test_what_is_no_request_is_refused(
    start_engine: Any, session: aiohttp.ClientSession, path: str, body: bytes
) -> None:
    server = await start_engine()
    async with session.post(server.url + path, data=body) as response:
        assert response.status == 400
        assert "error" in await response.json()
