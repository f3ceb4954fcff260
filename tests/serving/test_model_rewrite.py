"""A request under another model through a real Envoy: the engine knows that model alone, the client never sees it."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from picker.answers import Answers, Expected
from picker.requests.reading import path_of, read
from picker.requests.rewriting import Rewrite, Rule, Rules, Target
from picker.rewriting import NoRules, Rewriting
from picker.serving.seam import HttpRequest, Picked
from picker.sim.engine.options import Options
from picker.sim.engine.server import Server

if TYPE_CHECKING:
    from tests.serving.conftest import Gate

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENGINE, CLIENT = "engine-model-with-a-long-name", "chat"
SHOWN = [
    ("BUFFERED", "STREAMED"),
    ("BUFFERED", "BUFFERED"),
    ("BUFFERED_PARTIAL", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
]
UNSHOWN = [("BUFFERED", "NONE"), ("FULL_DUPLEX_STREAMED", "NONE")]
MESSAGES = [{"role": "user", "content": f'Say {{"model":"{ENGINE}"}} and nothing else.'}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": MESSAGES,
        "max_tokens": 4,
        "stream_options": {"include_usage": True},
    },
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 4},
    "/v1/responses": {"input": MESSAGES, "max_output_tokens": 4},
}


@dataclass
class Tokens:
    """What usage was told."""

    told: list[tuple[str, str, int]] = field(default_factory=list)

    def used(self, model: str, target: str, *, given: int, made: int, cached: int | None) -> None:
        assert given > 0
        self.told.append((model, target, made))


class Picks:
    """Picks the one engine, and does to requests and answers what a replica does."""

    def __init__(self, gate: Gate, engine: Server, *rules: Rule) -> None:
        self.tokens = Tokens()
        self.rewriting = Rewriting(NoRules(Rules.of([Rewrite("r", rules)])), rng=random.Random(1))
        self._answers = Answers(self.tokens, read_usage=True)
        self._gate, self._address = gate, engine.url.removeprefix("http://")

    def decide(self, request: HttpRequest) -> Picked:
        self._gate.minted += 1
        ask = read(path_of(request.headers), request.headers, request.body)
        done = self.rewriting.apply(request, ask, "")
        assert done is not None
        expected = Expected(done.label, done.target, self._address, None)
        booking = self._gate.booking
        shown = request.response_shown
        reading = self._answers.reading(booking, expected, name=done.restored) if shown else None
        return Picked(self._address, booking, (), done.body, reading)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[Server]:
    server = Server(Options(model=ENGINE))
    await server.start()
    yield server
    await server.stop()


def names_in(kind: str, text: bytes) -> set[Any]:
    """Every model named at its place in an answer, and that the answer is whole."""
    if kind.startswith("application/json"):
        events = [json.loads(text)]
    else:
        lines = [line[6:] for line in text.splitlines() if line.startswith(b"data: ")]
        events = [json.loads(line) for line in lines if line != b"[DONE]"]
    places = [place for event in events for place in (event, event.get("response"), event.get("message"))]
    return {place["model"] for place in places if isinstance(place, dict) and "model" in place}


async def ask(gate: Gate, pair: tuple[str, str], path: str, body: dict[str, Any]) -> tuple[str, bytes]:
    async with gate.client.post(gate.url(pair, path), json=body) as response:
        text = await response.read()
        assert response.status == 200, text
        return response.headers["content-type"], text


@pytest.mark.parametrize("pair", SHOWN, ids="-".join)
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("hold", ["response", "headers"])
async def test_the_engine_reads_its_model_and_the_client_its_own(
    gate: Gate, engine: Server, pair: tuple[str, str], path: str, stream: bool, hold: Any
) -> None:
    picks = Picks(gate, engine, Rule("r", frozenset({CLIENT}), (Target(ENGINE),)))
    gate.picks.decide, gate.hold = picks.decide, hold
    kind, text = await ask(gate, pair, path, {"model": CLIENT, "stream": stream, **BODIES[path]})
    assert names_in(kind, text) == {CLIENT}
    await gate.eventually(lambda: picks.tokens.told)
    assert picks.tokens.told == [(CLIENT, ENGINE, 4)]
    assert picks.rewriting.counts.renamed == 1


@pytest.mark.parametrize("pair", UNSHOWN, ids="-".join)
async def test_where_the_response_is_not_shown_the_request_is_rewritten_all_the_same(
    gate: Gate, engine: Server, pair: tuple[str, str]
) -> None:
    gate.picks.decide = Picks(gate, engine, Rule("r", frozenset({CLIENT}), (Target(ENGINE),))).decide
    path = "/v1/chat/completions"
    kind, text = await ask(gate, pair, path, {"model": CLIENT, **BODIES[path]})
    assert names_in(kind, text) == {ENGINE}


@pytest.mark.parametrize("pair", SHOWN, ids="-".join)
@pytest.mark.parametrize("size", [100, 300_000])
async def test_a_missing_model_is_filled_in_bodies_of_any_size(
    gate: Gate, engine: Server, pair: tuple[str, str], size: int
) -> None:
    gate.picks.decide = Picks(gate, engine, Rule("r", frozenset(), (Target(ENGINE),))).decide
    path = "/v1/chat/completions"
    kind, text = await ask(gate, pair, path, {"user": "x" * size, **BODIES[path]})
    assert names_in(kind, text) == {ENGINE}
