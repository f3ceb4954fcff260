from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from picker.sim.engine.scheduler import Pace
from picker.sim.engine.server import Server

WORDS = (
    "The river runs past the old mill and under the bridge to the harbor where the ships wait for the tide. "
)
SLOW = Pace(prefill_seconds_per_token=0.02, decode_seconds=0.02)


def chat(text: str = WORDS, **more: Any) -> dict[str, Any]:
    return {"model": "demo-8b", "messages": [{"role": "user", "content": text}], **more}


async def post(
    session: aiohttp.ClientSession, server: Server, body: object, *, path: str = "/v1/chat/completions"
) -> tuple[int, Any]:
    async with session.post(server.url + path, json=body) as response:
        return response.status, await response.json()


async def get(session: aiohttp.ClientSession, server: Server, path: str) -> Any:
    async with session.get(server.url + path) as response:
        return await response.json()


async def stream(
    session: aiohttp.ClientSession, server: Server, body: dict[str, Any]
) -> list[dict[str, Any]]:
    """The events of a streamed chat, which must end with `[DONE]`."""
    async with session.post(server.url + "/v1/chat/completions", json={**body, "stream": True}) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in response.content if line.strip()]
    assert lines[-1] == b"data: [DONE]\n"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def samples(session: aiohttp.ClientSession, server: Server) -> dict[str, float]:
    """Every sample of the metrics page under `name{label=value,...}`, labels sorted."""
    async with session.get(server.url + "/metrics") as response:
        text = await response.text()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_a_stream_says_what_a_plain_answer_says(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(name="w7")
    events = await stream(session, server, chat(max_tokens=9, stream_options={"include_usage": True}))
    status, plain = await post(session, server, chat(max_tokens=9))
    *pieces, last = events
    text = "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
    assert status == 200
    assert text == plain["choices"][0]["message"]["content"]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None] * 9 + ["length"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"] == 9


async def test_a_repeated_prompt_is_told_as_cached(start_engine: Any, session: aiohttp.ClientSession) -> None:
    server = await start_engine(block_size=8)
    _, first = await post(session, server, chat(max_tokens=1))
    _, again = await post(session, server, chat(max_tokens=1))
    size = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (size - 1) // 8 * 8


async def test_response_headers_come_before_the_prompt_is_computed(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(pace=SLOW, name="w1")
    async with session.post(
        server.url + "/v1/chat/completions", json=chat(stream=True, max_tokens=2)
    ) as response:
        assert response.headers["x-sim-worker"] == "w1"
        load = await get(session, server, "/debug/load")
        assert load["prefill_tokens_left"] > 0
        assert (await response.content.readline()).startswith(b"data: ")
        assert (await get(session, server, "/debug/load"))["prefill_tokens_left"] == 0


async def test_completions_take_prompts_in_every_form(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine()
    for prompt, choices in (("one", 2), (["one", "two"], 4), ([5, 6, 7], 2), ([[5, 6], [7]], 4)):
        body = {"model": "demo-8b", "prompt": prompt, "n": 2, "max_tokens": 3}
        status, answer = await post(session, server, body, path="/v1/completions")
        assert status == 200
        assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
        assert answer["usage"]["completion_tokens"] == 3 * choices
    assert answer["usage"]["prompt_tokens"] == 3


async def test_every_choice_of_a_stream_comes_whole(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine()
    events = await stream(session, server, chat(n=3, max_tokens=5, ignore_eos=True))
    said = Counter(
        choice["index"] for event in events for choice in event["choices"] if choice["delta"]["content"]
    )
    assert said == {0: 5, 1: 5, 2: 5}


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"model": "demo-8b"}, 400, "messages"),
        ({"model": "demo-8b", "messages": []}, 400, "empty"),
        ({"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "other"),
        (chat(max_tokens=0), 400, "max_tokens"),
        (chat(n=0), 400, "n must"),
        (chat("word " * 300), 400, "longest context is 256"),
        (chat(messages=[{"content": "x"}]), 400, "template"),
        ([], 400, "body"),
    ],
)
async def test_a_bad_request_is_refused_in_words(
    start_engine: Any, session: aiohttp.ClientSession, body: object, status: int, says: str
) -> None:
    server = await start_engine(blocks=16, block_size=16)
    got, answer = await post(session, server, body)
    assert got == status
    assert says in answer["error"]["message"]


async def test_bad_completions_are_refused(start_engine: Any, session: aiohttp.ClientSession) -> None:
    server = await start_engine()
    for prompt in ("", [], [-1], [10**9], ["a", 5]):
        status, _ = await post(session, server, {"prompt": prompt}, path="/v1/completions")
        assert status == 400


async def test_a_full_queue_answers_503_and_takes_nothing_of_the_request(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(max_waiting=2)
    status, answer = await post(session, server, chat(n=3))
    assert status == 503
    assert "2 sequences" in answer["error"]["message"]
    assert (await get(session, server, "/debug/load"))["requests"] == []
    assert (await get(session, server, "/debug/stats"))["refused"] == 1


async def test_the_load_page_names_requests_and_bookings(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(pace=SLOW)
    headers = {"x-request-id": "r-1", "x-picker-booking": "b-1"}
    asked = session.post(server.url + "/v1/chat/completions", json=chat(stream=True), headers=headers)
    async with asked:
        load = await get(session, server, "/debug/load")
        (row,) = load["requests"]
        assert (row["id"], row["booking"], row["state"]) == ("r-1", "b-1", "running")
        assert load["running"] == 1
        assert load["blocks_used"] == row["blocks"] > 0


async def test_the_page_of_lives_loses_no_request_between_two_looks(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine()
    begun = time.monotonic()
    for number in range(3):
        headers = {"x-picker-booking": f"b{number}", "x-request-id": f"r{number}"}
        url = f"{server.url}/v1/chat/completions"
        async with session.post(url, json=chat(max_tokens=2), headers=headers) as response:
            await response.read()
    page = await get(session, server, "/debug/lives")
    assert page["carried"] == []
    assert [(one["name"], one["booking"], one["state"]) for one in page["ended"]] == [
        (f"r{number}", f"b{number}", "finished") for number in range(3)
    ]
    assert all(begun <= one["arrived"] < one["ended"] <= page["now"] for one in page["ended"])
    later = await get(session, server, f"/debug/lives?after={page['ended'][1]['number']}")
    assert [one["name"] for one in later["ended"]] == ["r2"]
    assert later["born"] == page["born"]
    async with session.get(f"{server.url}/debug/lives?after=-1") as response:
        assert response.status == 400


@pytest.mark.parametrize("delay", [0.0, 0.3])
async def test_a_client_that_leaves_ends_its_request(
    start_engine: Any, session: aiohttp.ClientSession, delay: float
) -> None:
    server = await start_engine(pace=SLOW, abort_delay=delay)
    body = chat("hi", stream=True, max_tokens=2000, ignore_eos=True)
    async with session.post(server.url + "/v1/chat/completions", json=body) as response:
        await response.content.readline()
        left = time.monotonic()
        response.close()
    await _until_empty(session, server)
    assert time.monotonic() - left >= delay
    stats = await get(session, server, "/debug/stats")
    assert (stats["aborted"], stats["left"], stats["finished"]) == (1, 1, 0)
    assert server.engine.pool.used == 0


async def test_a_client_that_leaves_is_not_noticed_where_that_is_switched_off(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(pace=SLOW, abort_on_disconnect=False)
    body = chat("hi", stream=True, max_tokens=20, ignore_eos=True)
    async with session.post(server.url + "/v1/chat/completions", json=body) as response:
        await response.content.readline()
        response.close()
    await _until_empty(session, server)
    stats = await get(session, server, "/debug/stats")
    assert (stats["aborted"], stats["left"], stats["finished"], stats["output_tokens"]) == (0, 1, 1, 20)


async def _until_empty(session: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(15):
        while (await get(session, server, "/debug/load"))["requests"]:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.02)


async def test_requests_beyond_the_batch_wait_in_the_metrics(
    start_engine: Any, session: aiohttp.ClientSession, until: Any
) -> None:
    server = await start_engine(pace=Pace(max_sequences=1, decode_seconds=0.02), metric_names="both", rank=2)
    bodies = [chat(f"{n} {WORDS}", max_tokens=50, ignore_eos=True) for n in range(3)]
    tasks = [asyncio.create_task(post(session, server, body)) for body in bodies]
    scheduler = server.engine.scheduler
    await until(
        lambda: len(scheduler.running) + len(scheduler.waiting) == 3 and scheduler.counts.first_tokens == 1
    )
    found = await samples(session, server)
    where = "engine=2,model_name=demo-8b"
    assert found[f"vllm:num_requests_running{{{where}}}"] == 1
    assert found[f"vllm:num_requests_waiting{{{where}}}"] == 2
    assert found[f"vllm:num_requests_waiting_by_reason{{{where},reason=capacity}}"] == 2
    assert found[f"vllm:gpu_cache_usage_perc{{{where}}}"] == found[f"vllm:kv_cache_usage_perc{{{where}}}"] > 0
    await asyncio.gather(*tasks)
    found = await samples(session, server)
    assert found[f"vllm:num_requests_waiting{{{where}}}"] == 0
    assert found[f"vllm:time_to_first_token_seconds_count{{{where}}}"] == 3
    assert (
        found[f"vllm:prefix_cache_queries_total{{{where}}}"]
        == found[f"vllm:gpu_prefix_cache_queries_total{{{where}}}"]
    )


@pytest.mark.parametrize(
    ("names", "old", "new"), [("old", True, False), ("new", False, True), ("both", True, True)]
)
async def test_metrics_have_the_names_of_their_version(
    start_engine: Any, session: aiohttp.ClientSession, names: str, old: bool, new: bool
) -> None:
    server = await start_engine(metric_names=names, blocks=77, loras=("sql",))
    found = await samples(session, server)
    bare = {name.partition("{")[0] for name in found}
    assert ("vllm:gpu_cache_usage_perc" in bare, "vllm:gpu_prefix_cache_hits_total" in bare) == (old, old)
    assert ("vllm:kv_cache_usage_perc" in bare, "vllm:prefix_cache_hits_total" in bare) == (new, new)
    assert ("vllm:engine_sleep_state" in bare) == new
    assert {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:lora_requests_info"} <= bare
    (config,) = [name for name in found if name.startswith("vllm:cache_config_info{")]
    assert "num_gpu_blocks=77" in config
    assert "model_name" not in config


async def test_adapters_and_salts_have_caches_of_their_own(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(loras=("sql",))
    models = await get(session, server, "/v1/models")
    assert [card["id"] for card in models["data"]] == ["demo-8b", "sql"]

    async def cached(**more: Any) -> int:
        _, answer = await post(session, server, chat(max_tokens=1, **more))
        found: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert [await cached(), await cached(model="sql"), await cached(cache_salt="t")] == [0, 0, 0]
    assert [await cached() > 0, await cached(model="sql") > 0, await cached(cache_salt="t") > 0] == [True] * 3
    resident = await get(session, server, "/debug/blocks")
    assert {block["lora"] for block in resident["blocks"]} == {"", "sql"}


async def test_a_sleeping_engine_serves_nothing_and_has_an_empty_cache(
    start_engine: Any, session: aiohttp.ClientSession, until: Any
) -> None:
    server = await start_engine()
    await post(session, server, chat(max_tokens=1))
    assert (await post(session, server, None, path="/sleep?level=2"))[0] == 200
    assert (await get(session, server, "/debug/blocks"))["count"] == 0
    waiting = asyncio.create_task(post(session, server, chat(max_tokens=1)))
    await until(lambda: bool(server.engine.scheduler.waiting))
    found = await samples(session, server)
    where = "engine=0,model_name=demo-8b"
    assert found[f"vllm:engine_sleep_state{{{where},sleep_state=awake}}"] == 0
    assert found[f"vllm:engine_sleep_state{{{where},sleep_state=discard_all}}"] == 1
    assert found[f"vllm:num_requests_waiting_by_reason{{{where},reason=deferred}}"] == 1
    await post(session, server, None, path="/wake_up")
    assert (await waiting)[0] == 200


class Listener:
    """Folds an engine's events as a reader that counts copies."""

    def __init__(self, server: Server) -> None:
        assert server.engine.publisher
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.subscribe("")
        self._socket.connect(server.engine.publisher.live)
        self.held: Counter[int] = Counter()
        self.tokens: dict[int, list[int]] = {}
        self.kinds: list[str] = []
        self.numbers: list[int] = []

    async def take(self, *, seconds: float = 10.0) -> None:
        """The next batch."""
        async with asyncio.timeout(seconds):
            _, number, payload = await self._socket.recv_multipart()
        self.numbers.append(int.from_bytes(number, "big"))
        for event in msgspec.msgpack.decode(payload)[1]:
            self.kinds.append(event["type"])
            if event["type"] == "BlockStored":
                self.held.update(event["block_hashes"])
                size = event["block_size"]
                for at, block in enumerate(event["block_hashes"]):
                    self.tokens[block] = event["token_ids"][at * size : (at + 1) * size]
            elif event["type"] == "BlockRemoved":
                self.held.subtract(event["block_hashes"])
            else:
                self.held.clear()

    async def take_all(self, server: Server) -> None:
        """Every batch published so far."""
        assert server.engine.publisher
        while self.numbers[-1] < server.engine.publisher.counts.batches - 1:
            await self.take()

    async def join(self, server: Server) -> None:
        """Empty batches until one arrives: then the subscription stands."""
        assert server.engine.publisher
        while not self.numbers:
            await server.engine.publisher.publish(msgspec.msgpack.encode([0.0, [], 0]))
            with suppress(TimeoutError):
                await self.take(seconds=0.1)
        await self.take_all(server)

    def close(self) -> None:
        self._context.destroy(linger=0)


async def test_events_tell_exactly_what_lies_in_the_cache(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(kv_events="tcp://127.0.0.1:0", blocks=24, block_size=4, max_model_len=90)
    listener = Listener(server)
    await listener.join(server)
    for n in range(12):
        texts = [f"{n % 3} {WORDS[: 40 + 5 * n]}", f"{n} {WORDS[:30]}"]
        bodies = [chat(text, max_tokens=6, ignore_eos=True) for text in texts]
        answers = await asyncio.gather(*(post(session, server, body) for body in bodies))
        assert [status for status, _ in answers] == [200, 200]
    await listener.take_all(server)
    resident = (await get(session, server, "/debug/blocks"))["blocks"]
    assert +listener.held == Counter({block["hash"]: block["copies"] for block in resident})
    assert all(listener.tokens[block["hash"]] == block["tokens"] for block in resident)
    assert listener.numbers == list(range(listener.numbers[0], listener.numbers[0] + len(listener.numbers)))
    assert (await get(session, server, "/debug/stats"))["evictions"] > 0
    listener.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_reset_is_announced_at_once_or_with_the_next_step(
    start_engine: Any, session: aiohttp.ClientSession, waits: bool
) -> None:
    server = await start_engine(kv_events="tcp://127.0.0.1:0", clear_waits=waits)
    listener = Listener(server)
    await listener.join(server)
    await post(session, server, chat(max_tokens=1))
    await listener.take_all(server)
    assert (await post(session, server, None, path="/reset_prefix_cache"))[1] == {"cleared": True}
    if waits:
        with pytest.raises(TimeoutError):
            await listener.take(seconds=0.2)
        await post(session, server, chat("another text", max_tokens=1))
    await listener.take()
    assert listener.kinds[1] == "AllBlocksCleared"
    assert (await get(session, server, "/debug/blocks"))["count"] == sum(listener.held.values())
    listener.close()


async def test_a_reset_is_refused_while_requests_run(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    server = await start_engine(pace=SLOW)
    async with session.post(server.url + "/v1/chat/completions", json=chat(stream=True)) as response:
        assert response.status == 200
        assert (await post(session, server, None, path="/reset_prefix_cache"))[1] == {"cleared": False}


async def test_engine_hashes_of_two_processes_have_nothing_in_common(
    start_engine: Any, session: aiohttp.ClientSession
) -> None:
    hashes = []
    for _ in range(2):
        server = await start_engine()
        await post(session, server, chat(max_tokens=1))
        hashes.append({block["hash"] for block in (await get(session, server, "/debug/blocks"))["blocks"]})
    assert hashes[0].isdisjoint(hashes[1])


async def test_a_large_body_is_read(start_engine: Any, session: aiohttp.ClientSession) -> None:
    server = await start_engine(max_model_len=2_000_000, blocks=40_000, pace=Pace(100, 10**6, 0.0, 0.001))
    status, answer = await post(session, server, chat(WORDS * 5000, max_tokens=1))
    assert status == 200
    assert answer["usage"]["prompt_tokens"] > 100_000


async def test_tokens_of_a_prompt_can_be_asked_for(start_engine: Any, session: aiohttp.ClientSession) -> None:
    server = await start_engine()
    _, told = await post(session, server, chat(), path="/tokenize")
    _, answer = await post(session, server, chat(max_tokens=1))
    assert told["count"] == len(told["tokens"]) == answer["usage"]["prompt_tokens"]
