"""`picker up` as a user sees it: answers, the same worker through any replica, reasons in numbers, a clean end."""

import asyncio
import json
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conftest import Up, lives, picker_up

from picker.sim.agreement import Observer

SHAPE = {
    "envoy": str,
    "model": str,
    "replicas": [{"name": str, "extproc": str, "health": str, "admin": str, "pid": int}],
    "workers": [{"name": str, "address": str, "pid": int}],
    "plane": {"url": str, "pid": int},
    "nats": {"url": str, "pid": int},
}


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value)


def test_the_ports_file_has_the_published_form(up: Up) -> None:
    ports = up.ports
    assert shape(ports) == SHAPE
    assert (len(ports["replicas"]), len(ports["workers"])) == (3, 4)
    assert all(lives(pid) for pid in up.pids)


async def test_a_streaming_chat_completion_is_answered_through_envoy(
    up: Up, session: aiohttp.ClientSession
) -> None:
    ports = up.ports
    body = {"model": ports["model"], "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    async with session.post(f"{ports['envoy']}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert (await response.read()).rstrip().endswith(b"data: [DONE]")


async def ask(session: aiohttp.ClientSession, up: Up, prompt: str) -> tuple[str, str]:
    """Send a prompt; returns its request id and the name of the engine that answered."""
    name = str(uuid.uuid4())
    body = {"model": up.ports["model"], "prompt": prompt, "max_tokens": 2}
    url = f"{up.ports['envoy']}/v1/completions"
    async with session.post(url, json=body, headers={"x-request-id": name}) as response:
        assert response.status == 200, await response.text()
        return name, response.headers["x-sim-worker"]


async def why(session: aiohttp.ClientSession, up: Up, name: str) -> tuple[str, dict[str, Any]]:
    """The replica that decided a request, and its reasons."""
    for replica in up.replicas():
        async with session.get(f"http://{replica.admin}/why/{name}") as response:
            if response.status == 200:
                (decision,) = (await response.json())["decisions"]
                return replica.name, decision
    raise AssertionError(f"no replica knows request {name}")


async def index_blocks(session: aiohttp.ClientSession, up: Up, address: str) -> list[int]:
    found = []
    for replica in up.replicas():
        async with session.get(f"http://{replica.admin}/status.json") as response:
            workers = (await response.json())["workers"]
            found.append(next(each["index_blocks"] for each in workers if each["name"] == address))
    return found


async def test_the_same_long_prompt_goes_to_the_same_worker_through_any_replica_and_why_says_so_in_numbers(
    up: Up, session: aiohttp.ClientSession
) -> None:
    prompt = f"{uuid.uuid4()} " + "tell me about the harbor and the old stone bridge " * 60
    _, first = await ask(session, up, prompt)
    address = next(each["address"] for each in up.ports["workers"] if each["name"] == first)
    async with asyncio.timeout(10):
        while min(await index_blocks(session, up, address)) < 30:
            await asyncio.sleep(0.1)
    deciders: set[str] = set()
    async with asyncio.timeout(30):
        while len(deciders) < 3:
            name, worker = await ask(session, up, prompt)
            assert worker == first
            replica, decision = await why(session, up, name)
            deciders.add(replica)
            prices = {each["worker"]: each["price"] for each in decision["candidates"]}
            assert decision["worker"] == address
            assert len(prices) == 4
            assert prices[address] == min(prices.values())
            assert decision["prompt"]["tokens_known"]


async def test_quiesced_replicas_agree_and_hold_nothing_when_nothing_runs(up: Up, observer: Observer) -> None:
    assert (await observer.truth(up.replicas(), up.workers(), within=10)).agreed
    agreement = await observer.agree(up.replicas())
    assert agreement.agreed, agreement.differences
    assert agreement.bookings == 0


def gone_soon(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(lives(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_however_it_ends(number: signal.Signals, tmp_path: Path) -> None:
    small = ("--replicas", "1", "--workers", "1", "--plane", "memory")
    with picker_up(tmp_path, *small) as running:
        pids = running.pids
        assert len(pids) == 3
        running.process.send_signal(number)
        code = running.process.wait(30)
        assert gone_soon(pids, 5)
    if number != signal.SIGKILL:
        assert code == 0
        assert not running.file.exists()


def test_it_ends_by_itself_after_the_given_time(tmp_path: Path) -> None:
    with picker_up(
        tmp_path, "--replicas", "1", "--workers", "1", "--plane", "memory", "--for", "1"
    ) as running:
        pids = running.pids
        assert running.process.wait(30) == 0
        assert gone_soon(pids, 1)
    assert json.dumps("stopping").strip('"') in running.log.read_text()
