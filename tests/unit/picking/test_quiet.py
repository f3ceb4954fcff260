"""Whatever a request says, and whatever becomes of it, no log line repeats it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs

from picker.requests.paths import FAMILIES
from picker.requests.rewriting import Rewrite, Rule, Rules, Target
from picker.serving.seam import End, HttpRequest, Picked, Responded
from picker.sim.model import DIRECTORY
from tests.unit.picking.world import A, World

SECRET = "xyzzy"

SAID = [
    SECRET, f"{SECRET}\x00\ud7ff", [SECRET], [[SECRET]], {SECRET: SECRET}, [{SECRET: [SECRET]}],
    [{"role": SECRET, "content": SECRET}], [{"role": "user", "content": SECRET}],
    [{"role": "user", "content": [{"type": SECRET, SECRET: SECRET}]}], [{"role": "user", "content": [SECRET]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SECRET}}]}],
    [{"role": "assistant", "content": SECRET, "tool_calls": [{"function": {"arguments": SECRET}}]}],
    [{"role": "assistant", "content": SECRET, "tool_calls": SECRET}],
    [{"role": "user", "content": [{"type": "tool_use", "name": SECRET, "input": SECRET}]}],
    [{"type": "function_call", "name": SECRET, "arguments": [SECRET]}], [{"type": SECRET}],
    [{"type": "function", "function": {"name": SECRET}}], [{"name": SECRET, "input_schema": SECRET}],
]  # fmt: skip
FIELDS = ("messages", "prompt", "input", "text", "instructions", "system", "tools", "cache_salt", "query")
PLAIN = {
    "prompt": "a",
    "input": "a",
    "text": "a",
    "messages": [{"role": "user", "content": "a"}],
    "token_ids": [1],
}


def bodies() -> list[bytes]:
    whole = [orjson.dumps({**PLAIN, "model": model, field: said}) for model in ("m", "engine", "broken", "untold")
             for field in FIELDS for said in SAID]  # fmt: skip
    return [*whole, f'{{"prompt": "{SECRET}'.encode(), f"{SECRET}".encode(), f'["{SECRET}"]'.encode()]


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[str]:
    """An engine that tokenises, and repeats what it was asked wherever it can."""
    answers = iter(range(10**9))

    async def tokenize(request: web.Request) -> web.Response:
        asked = await request.text()
        if "add_special_tokens" not in asked:  # the picker's own question whether we are there
            return web.json_response({"count": 1, "tokens": [1]})
        number = next(answers) % 4
        text = (f'{{"tokens": "{SECRET}"}}', f'{{"tokens": [{SECRET}', asked, asked)[number]
        return web.Response(text=text, status=(200, 200, 400, 503)[number], reason=SECRET)

    app = web.Application()
    app.router.add_post("/tokenize", tokenize)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A model whose template refuses every conversation, in its words."""
    config = json.loads((DIRECTORY / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ raise_exception(messages[0].content) }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_bytes((DIRECTORY / "tokenizer.json").read_bytes())
    return tmp_path


@pytest.mark.timeout(120)
async def test_no_log_line_repeats_what_a_request_or_an_answer_says(
    engine: str, broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(tokenizers=f"m={DIRECTORY},broken={broken},engine={engine}", tokenize_budget_seconds=5)
    world.rules.rules = Rules.of([Rewrite("r", (Rule("r", frozenset({"m"}), (Target("m"),)),))])
    rng, picked = random.Random(3), 0
    with capture_logs() as said:
        running = asyncio.create_task(world.tokens.run())
        await world.tokens.loaded()
        try:
            for body in bodies():
                path = "/v1" + rng.choice(list(FAMILIES))
                headers = {
                    ":path": path,
                    ":method": "POST",
                    "x-request-id": SECRET,
                    "x-llm-d-slo-ttft-ms": SECRET,
                }
                request = HttpRequest(headers, body, response_shown=True, rewritable=True)
                answer: Any = await world.picking.decide(request)
                if isinstance(answer, Picked):
                    picked += 1
                    if answer.reading is not None:
                        answer.reading.begin(Responded(200, A, content_type="application/json"))
                        answer.reading.piece(
                            f'{{"usage": {{"{SECRET}": "{SECRET}"}}, "x": {SECRET}'.encode(), end=True
                        )
                    world.picking.over(answer.booking_id, End.PROVEN)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            world.close()
    assert picked > 100
    events = {entry["event"] for entry in said}
    assert {"tokenizer loaded", "engine does not tokenise, prompts are not known"} <= events
    assert SECRET not in repr(said)
    assert SECRET not in caplog.text
