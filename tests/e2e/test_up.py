"""`picker up` as a user sees it: answers, the same worker through any replica, reasons in numbers, a clean end."""

import asyncio
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import aiohttp
import pytest

from picker.sim.agreement import Held, Observer, Shown
from picker.sim.ports import Ports
from picker.sim.processes import lives

StartUp = Callable[..., AbstractContextManager[Any]]

SHAPE = {
    "envoy": str,
    "model": str,
    "replicas": [{"name": str, "extproc": str, "health": str, "admin": str, "peers": str, "pid": int}],
    "workers": [{"name": str, "address": str, "pid": int}],
    "plane": {"url": str, "pid": int},
    "nats": {"url": str, "pid": int},
    "peers_secret_file": str,
}


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value)


def test_the_ports_file_has_the_published_form(up: Ports) -> None:
    ports = up.page
    assert shape(ports) == SHAPE
    assert (len(ports["replicas"]), len(ports["workers"])) == (3, 4)
    assert all(lives(pid) for pid in up.pids().values())


async def test_a_streaming_chat_completion_is_answered_through_envoy(
    up: Ports, session: aiohttp.ClientSession
) -> None:
    body = {"model": up.model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    async with session.post(f"{up.envoy}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert (await response.read()).rstrip().endswith(b"data: [DONE]")


async def ask(session: aiohttp.ClientSession, up: Ports, prompt: str) -> tuple[str, str]:
    """Send a prompt; returns its request id and the name of the engine that answered."""
    name = str(uuid.uuid4())
    body = {"model": up.model, "prompt": prompt, "max_tokens": 2}
    url = f"{up.envoy}/v1/completions"
    async with session.post(url, json=body, headers={"x-request-id": name}) as response:
        assert response.status == 200, await response.text()
        return name, response.headers["x-sim-worker"]


async def why(session: aiohttp.ClientSession, up: Ports, name: str) -> tuple[str, dict[str, Any]]:
    """The replica that decided a request, and its reasons."""
    async with session.get(f"http://{up.replicas[0].admin}/why/{name}") as response:
        page = await response.json()
        assert response.status == 200, page
    ((replica,), (decision,)) = page["answered_by"], page["decisions"]
    return replica, decision


async def idle(observer: Observer, up: Ports) -> None:
    """Wait until no replica holds a booking."""
    async with asyncio.timeout(40):
        views: dict[str, Shown] = {"": {"": Held("", 0, 0, 0)}}
        while any(views.values()):
            views = await observer.views(up.replicas)


async def index_blocks(session: aiohttp.ClientSession, up: Ports, address: str) -> list[int]:
    found = []
    for replica in up.replicas:
        async with session.get(f"http://{replica.admin}/status.json") as response:
            workers = (await response.json())["workers"]
            found.append(next(each["index_blocks"] for each in workers if each["name"] == address))
    return found


async def test_the_same_long_prompt_goes_to_the_same_worker_through_any_replica_and_why_says_so_in_numbers(
    up: Ports, session: aiohttp.ClientSession
) -> None:
    prompt = f"{uuid.uuid4()} " + "tell me about the harbor and the old stone bridge " * 60
    _, first = await ask(session, up, prompt)
    address = next(each["address"] for each in up.page["workers"] if each["name"] == first)
    async with asyncio.timeout(10):
        known = [0]
        while min(known) < 30:
            known = await index_blocks(session, up, address)
    deciders: set[str] = set()
    observer = Observer(session)
    async with asyncio.timeout(30):
        while len(deciders) < 3:
            # what runs there has a price too; this is about the prefix alone
            await idle(observer, up)
            name, worker = await ask(session, up, prompt)
            assert worker == first
            replica, decision = await why(session, up, name)
            deciders.add(replica)
            prices = {each["worker"]: each["price"] for each in decision["candidates"]}
            assert decision["worker"] == address
            assert len(prices) == 4
            assert prices[address] == min(prices.values())
            assert decision["prompt"]["tokens_known"]


async def test_when_nothing_runs_nothing_is_held(up: Ports, observer: Observer) -> None:
    await idle(observer, up)
    assert (await observer.truth(up.replicas, up.workers, within=5)).agreed


def gone_soon(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(lives(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_however_it_ends(number: signal.Signals, start_up: StartUp) -> None:
    small = ("--replicas", "1", "--workers", "1", "--plane", "memory")
    with start_up(*small) as running:
        pids = list(running.ports.pids().values())
        assert len(pids) == 3
        running.process.send_signal(number)
        code = running.process.wait(30)
        assert gone_soon(pids, 5)
    if number != signal.SIGKILL:
        assert code == 0
        assert not running.ports.file.exists()


def test_it_ends_by_itself_after_the_given_time(start_up: StartUp) -> None:
    with start_up("--replicas", "1", "--workers", "1", "--plane", "memory", "--for", "1") as running:
        pids = list(running.ports.pids().values())
        assert running.process.wait(30) == 0
        assert gone_soon(pids, 1)
    assert "stopping" in running.log.read_text()
