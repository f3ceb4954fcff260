"""Token ids told by an engine: the right ones, in time, and at no cost while it is away."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from picker.requests import engine as module
from picker.requests.ask import Ask, Chat, TokenIds, Untold, Why
from picker.requests.reading import read
from picker.requests.sources import parse_tokenizers
from picker.requests.tokens import Tokens
from picker.settings import RequestSettings
from picker.sim.engine.options import Options
from picker.sim.engine.server import Server

PATIENT = 30.0
MODEL = Path(module.__file__).resolve().parents[1] / "sim" / "model"
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]


def completion(prompt: Any, model: str = "m", **fields: Any) -> Ask:
    return read("/v1/completions", {}, json.dumps({"model": model, "prompt": prompt, **fields}).encode())


def chat(messages: Any = HELLO, model: str = "m", **fields: Any) -> Ask:
    body = {"model": model, "messages": messages, **fields}
    return read("/v1/chat/completions", {}, json.dumps(body).encode())


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENT):
        while not true():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(tokenizers: str) -> AsyncIterator[Tokens]:
    mine = Tokens(RequestSettings(tokenizers=tokenizers))
    task = asyncio.create_task(mine.run())
    try:
        await asyncio.wait_for(mine.loaded(), PATIENT)
        yield mine
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        mine.close()


class Stub:
    """An engine that answers as it is told to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]] = self.plain
        self.runner: web.AppRunner | None = None
        self.port = 0

    async def plain(self, _: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        length = len(str(body.get("prompt", body.get("messages"))))
        return web.json_response({"count": length, "max_model_len": 9999, "tokens": list(range(length))})

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/base/tokenize", self._tokenize)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        assert self.runner is not None
        await self.runner.cleanup()

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        return await self.answer(request, body)

    @property
    def setting(self) -> str:
        return f"m=http://127.0.0.1:{self.port}/base"


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    mine = Stub()
    await mine.start()
    yield mine
    await mine.stop()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.02)


async def test_the_simulated_engine_tells_the_ids_that_its_own_files_give() -> None:
    server = Server(Options(port=0, model="m", model_dir=MODEL))
    await server.start()
    try:
        settings = f"m=http://127.0.0.1:{server.port},local={MODEL}"
        async with running(settings) as mine:
            tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}
            for fields in ({}, {"tools": [tool]}, {"add_generation_prompt": False}):
                told = await mine.ids(chat(**fields), PATIENT)
                assert isinstance(told, TokenIds)
                assert told == await mine.ids(chat(model="local", **fields), PATIENT)
            told = await mine.ids(completion(["Hello there", "and more"]), PATIENT)
            assert isinstance(told, TokenIds)
            assert told == await mine.ids(completion(["Hello there", "and more"], "local"), PATIENT)
    finally:
        await server.stop()


async def test_everything_that_changes_the_ids_is_asked_and_nothing_else(stub: Stub) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with running(stub.setting) as mine:
        await mine.ids(
            chat(
                tools=tools,
                continue_final_message=True,
                add_generation_prompt=False,
                temperature=0.5,
                chat_template="{{ 'mine' }}",
                chat_template_kwargs={"thinking": True, "chat_template": "mine"},
            ),
            PATIENT,
        )
        await mine.ids(completion("x", add_special_tokens=False, max_tokens=3), PATIENT)
    assert stub.asked == [
        {"model": "m", "prompt": "a"},
        {
            "model": "m",
            "messages": HELLO,
            "tools": tools,
            "add_generation_prompt": False,
            "continue_final_message": True,
            "add_special_tokens": False,
            "chat_template_kwargs": {"thinking": True},
        },
        {"model": "m", "prompt": "x", "add_special_tokens": False},
    ]


async def test_an_answer_is_asked_for_once(stub: Stub) -> None:
    async with running(stub.setting) as mine:
        first = await mine.ids(completion("Hello"), PATIENT)
        assert first == TokenIds((array("I", range(5)),))
        assert await mine.ids(completion("Hello"), PATIENT) == first
        assert mine.counts.engine_calls == mine.counts.engine_hit == 1
        assert await mine.ids(completion("Hello", add_special_tokens=False), PATIENT) == first
        assert mine.counts.engine_calls == 2
        assert mine.counts.told == 3


async def test_token_ids_in_between_are_passed_on(stub: Stub) -> None:
    async with running(stub.setting) as mine:
        ask = Ask(api=completion("x").api, model="m", prompts=(array("I", [7]), "abc"))
        assert await mine.ids(ask, PATIENT) == TokenIds((array("I", [7]), array("I", [0, 1, 2])))


async def test_a_megabyte_is_asked_and_answered(stub: Stub) -> None:
    text = "x" * 2_000_000
    async with running(stub.setting) as mine:
        told = await mine.ids(completion(text), PATIENT)
        assert isinstance(told, TokenIds)
        assert len(told.prompts[0]) == len(text)


async def test_past_the_budget_it_is_not_waited_for(stub: Stub) -> None:
    held = asyncio.Event()

    async def hold(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body["prompt"] not in {"a", "quick"}:
            await held.wait()
        return await stub.plain(request, body)

    stub.answer = hold
    async with running(stub.setting) as mine:
        assert await mine.ids(completion("slow"), 0.05) == Untold(Why.LATE)
        several = await mine.ids(completion(["quick", "slow"]), 0.3)
        assert several == TokenIds((array("I", range(5)),), complete=False)
        assert (mine.counts.late, mine.counts.partly, mine.counts.engine_failures) == (1, 1, 2)
        held.set()


def replying(*, status: int = 200, body: bytes = b"", **headers: str) -> Any:
    async def reply(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        if asked.get("prompt") == "a":
            return web.json_response({"tokens": [1], "count": 1})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return reply


@pytest.mark.parametrize(
    ("reply", "why", "fault"),
    [
        (replying(status=400), Why.REFUSED, False),
        (replying(status=404), Why.REFUSED, False),
        (replying(status=422), Why.REFUSED, False),
        (replying(status=500), Why.AWAY, False),
        (replying(status=429), Why.AWAY, True),
        (replying(status=503), Why.AWAY, True),
        (replying(status=204), Why.AWAY, True),
        (replying(status=307, Location="/base/tokenize"), Why.AWAY, True),
        (replying(body=b"no json"), Why.AWAY, True),
        (replying(body=b"[]"), Why.AWAY, True),
        (replying(body=b"{}"), Why.AWAY, True),
        (replying(body=b'{"tokens": []}'), Why.AWAY, True),
        (replying(body=b'{"tokens": [-1]}'), Why.AWAY, True),
        (replying(body=b'{"tokens": [4294967296]}'), Why.AWAY, True),
        (replying(body=b'{"tokens": [1.5]}'), Why.AWAY, True),
        (replying(body=b'{"tokens": ["1"]}'), Why.AWAY, True),
        (replying(body=b'{"tokens": [1, 2], "count": 3}'), Why.AWAY, True),
        (replying(body=b'{"tokens": [' + b"1, " * 200_000 + b"1]}"), Why.AWAY, True),
        (replying(body=b"\x1f\x8b", Content_Encoding="gzip"), Why.AWAY, True),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_counted_and_not_kept(
    stub: Stub, reply: Any, why: Why, fault: bool
) -> None:
    stub.answer = reply
    async with running(stub.setting) as mine:
        assert await mine.ids(completion("b"), PATIENT) == Untold(why)
        assert mine.counts.engine_failures == fault
        assert getattr(mine.counts, why.value) == 1
        assert [asked["prompt"] for asked in stub.asked] == ["a", "b"]
        stub.answer = stub.plain
        assert isinstance(await mine.ids(completion("b"), PATIENT), TokenIds)


async def test_one_that_keeps_failing_is_left_alone_until_it_answers_us(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_MOST", 0.05)
    async with running(stub.setting) as mine:
        await stub.stop()
        for _ in range(module.FAILURES):
            assert await mine.ids(completion("b"), PATIENT) == Untold(Why.AWAY)
        assert mine.counts.engine_breaks == 1
        calls = mine.counts.engine_calls
        for _ in range(50):
            assert await mine.ids(completion("b"), PATIENT) == Untold(Why.AWAY)
        assert mine.counts.engine_calls == calls
        (state,) = mine.status()["models"]
        assert state["state"] == "away"
        assert state["detail"]
        await stub.start()
        await until(lambda: mine.status()["models"][0]["state"] == "ready")
        assert isinstance(await mine.ids(completion("b"), PATIENT), TokenIds)


async def test_prompts_that_are_refused_do_not_break_it_for_others(stub: Stub) -> None:
    stub.answer = replying(status=500)
    async with running(stub.setting) as mine:
        for _ in range(3 * module.FAILURES):
            assert await mine.ids(completion("b"), PATIENT) == Untold(Why.AWAY)
        assert mine.counts.engine_breaks == 0


async def test_being_late_with_long_prompts_is_no_failure(stub: Stub) -> None:
    async def hold(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(body["prompt"]) > 10:
            await asyncio.sleep(0.5)
        return await stub.plain(request, body)

    stub.answer = hold
    async with running(stub.setting) as mine:
        for _ in range(module.FAILURES + 1):
            assert await mine.ids(completion("x" * module.SHORT_BYTES), 0.01) == Untold(Why.LATE)
        assert mine.counts.engine_failures == 0
        assert isinstance(await mine.ids(completion("b"), PATIENT), TokenIds)


async def test_one_that_is_away_at_the_start_does_not_hold_up_the_start() -> None:
    async with running("m=http://127.0.0.1:1,*=http://[::1]:1") as mine:
        assert mine.tried
        assert await mine.ids(completion("x"), PATIENT) == Untold(Why.AWAY)
        assert await mine.ids(completion("x", "another"), PATIENT) == Untold(Why.AWAY)


async def test_before_it_was_asked_a_model_is_routed_by_load(stub: Stub) -> None:
    mine = Tokens(RequestSettings(tokenizers=stub.setting))
    assert await mine.ids(completion("x")) == Untold(Why.LOADING)
    assert stub.asked == []
    mine.close()


async def test_what_the_endpoint_does_not_take_is_not_asked(stub: Stub) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x"}}
    async with running(stub.setting) as mine:
        for ask in (
            chat([{"role": "user", "content": [image]}]),
            chat(documents=[{"title": "t", "text": "x"}]),
        ):
            assert await mine.ids(ask, PATIENT) == Untold(Why.UNASKABLE)
        assert len(stub.asked) == 1


async def test_calls_at_one_time_and_their_length_are_bounded(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALLS", 2)
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    held = asyncio.Event()

    async def hold(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body["prompt"] != "a":
            await held.wait()
        return await stub.plain(request, body)

    stub.answer = hold
    async with running(stub.setting) as mine:
        asking = [asyncio.create_task(mine.ids(completion(f"text {n}"), PATIENT)) for n in range(2)]
        await until(lambda: len(stub.asked) == 3)
        assert await mine.ids(completion("one more"), PATIENT) == Untold(Why.BUSY)
        held.set()
        assert all(isinstance(told, TokenIds) for told in await asyncio.gather(*asking))
        assert await mine.ids(completion("x" * 1000), PATIENT) == Untold(Why.TOO_LONG)


async def test_a_text_that_is_no_unicode_fails_for_itself_alone(stub: Stub) -> None:
    async with running(stub.setting) as mine:
        for prompt in ("\ud800", Chat([{"role": "user", "content": "\ud800"}])):
            assert await mine.ids(Ask(api=chat().api, model="m", prompts=(prompt,)), PATIENT) == Untold(
                Why.FAILED
            )
        assert mine.counts.engine_failures == 0


@pytest.mark.parametrize(
    "text",
    [
        "m=ftp://host:1", "m=http://", "m=http://host:99999", "m=http://user:secret@host:1", "m=http://host:1?x=1",
        "m=http://host:1#x", "m=http://user:secret@host:x", "m=http://host:1,m=/x",
    ],
)  # fmt: skip
def test_a_wrong_address_is_named_without_its_secret(text: str) -> None:
    with pytest.raises(ValueError, match="model 'm'") as raised:
        parse_tokenizers(text)
    assert "secret" not in str(raised.value)
