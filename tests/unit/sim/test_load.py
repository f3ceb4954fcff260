from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from picker.sim.engine.scheduler import Pace
from picker.sim.load import Arrival, Client, Record, percentile, summary
from picker.sim.trace import arrivals, sample

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ask(at: float = 0.0, text: str = "hello there", tokens: int = 5) -> Arrival:
    messages = [{"role": "user", "content": text}]
    return Arrival(at, {"model": "demo-8b", "messages": messages, "max_tokens": tokens, "ignore_eos": True})


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Serves one handler for chats, and returns the base address."""
    runners = []

    async def start(answer: Answer) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_a_complete_answer_is_seen_as_complete(start_engine: Any) -> None:
    server = await start_engine(name="w5")
    seen: list[Record] = []
    (first,) = await Client(server.url).run([ask(text="word " * 40)], on_record=seen.append)
    (again,) = await Client(server.url).run([ask(text="word " * 40)])
    assert seen == [first]
    assert (first.complete, first.cut, first.failed, first.fault) == (True, False, False, "")
    assert (first.worker, first.status, first.pieces, first.output_tokens) == ("w5", 200, 5, 5)
    assert first.first_token is not None
    assert first.ended is not None
    assert 0 < first.first_token <= first.ended
    assert (first.cached_tokens, again.cached_tokens > 0) == (0, True)
    assert first.request_id != again.request_id


async def test_the_trace_runs_through_an_engine_and_finds_its_own_prefixes(start_engine: Any) -> None:
    server = await start_engine(pace=Pace(prefill_seconds_per_token=0.0, decode_seconds=0.0005))
    records = await Client(server.url).run(arrivals(sample()[:60], speed=200, model="demo-8b"))
    told = summary(records)
    assert (told.requests, told.complete, told.failed, told.cut) == (60, 60, 0, 0)
    assert told.cached_tokens > 0.3 * told.prompt_tokens
    assert 0 < told.ttft_p50_ms <= told.ttft_p90_ms


async def test_a_response_without_its_end_is_cut(serve: Any) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n')
        if request.headers["x-mode"] == "reset" and request.transport:
            request.transport.abort()
        return response

    url = await serve(answer)
    for mode in ("reset", "short"):
        (record,) = await Client(url, headers={"x-mode": mode}).run([ask()])
        assert (record.complete, record.cut, record.failed, record.pieces) == (False, True, False, 1)
        assert record.fault
    assert summary([record]).cut == 1


async def test_an_answer_that_lacks_tokens_is_cut_though_it_says_done(serve: Any) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        lines = [
            b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}]}',
            b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}',
            b"data: [DONE]",
        ]
        return web.Response(body=b"\n\n".join(lines) + b"\n\n")

    (record,) = await Client(await serve(answer)).run([ask()])
    assert record.done
    assert record.cut
    assert "1 of 5" in record.fault


async def test_a_refusal_keeps_its_status_and_words(serve: Any) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "all full"}}, status=429, headers={"Retry-After": "1"})

    (record,) = await Client(await serve(answer)).run([ask()])
    assert (record.failed, record.status, record.headers["retry-after"]) == (True, 429, "1")
    assert "all full" in record.fault


async def test_nobody_there_is_a_failure_not_an_exception() -> None:
    (record,) = await Client("http://127.0.0.1:9").run([ask()])
    assert (record.failed, record.status) == (True, None)
    assert record.fault


async def test_a_request_is_given_up_at_its_timeout(start_engine: Any) -> None:
    server = await start_engine(pace=Pace(prefill_seconds_per_token=0.0, decode_seconds=0.05))
    (record,) = await Client(server.url, timeout=0.3).run([ask(tokens=1000)])
    assert record.cut
    assert "0.3 s" in record.fault


async def test_requests_go_out_in_time_whatever_became_of_the_ones_before(start_engine: Any) -> None:
    server = await start_engine(pace=Pace(prefill_seconds_per_token=0.0, decode_seconds=0.02))
    records = await Client(server.url).run([ask(0.2), ask(0.0, tokens=50), ask(0.1)])
    assert [record.at for record in records] == [0.0, 0.1, 0.2]
    assert all(record.sent >= record.at for record in records)
    assert records[0].ended is not None
    assert records[2].sent < records[0].ended


async def test_no_more_than_the_bound_are_open_at_once(serve: Any) -> None:
    open_now = most = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await request.read()
        open_now -= 1
        return web.Response(status=503)

    records = await Client(await serve(answer), concurrency=2).run([ask() for _ in range(20)])
    assert len(records) == 20
    assert most <= 2


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile([4, 1, 3, 2], share) for share in (0.0, 0.5, 0.9, 1.0)] == [1, 2, 4, 4]
    assert percentile([], 0.5) == 0.0
