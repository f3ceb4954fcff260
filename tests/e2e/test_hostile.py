"""Clients that mean harm, or are only slow, through a real Envoy to a real replica: all end, nothing is left."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest
import pytest_asyncio

from picker.sim.cluster import Cluster, Layout
from picker.sim.mixed import Mixed, Outcome, Sizes, mixed, send_all, told, unexpected
from picker.sim.model import MODEL

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
SIZES = Sizes(limit=6 * 1024 * 1024, huge=5_000_000)
BODY_TIMEOUT = 10
REQUESTS, CONCURRENCY = 10_000, 64
SILENT = 1_000
SETTINGS = {
    "PICKER_MAX_BODY_BYTES": str(SIZES.limit),
    "PICKER_BODY_TIMEOUT_SECONDS": str(BODY_TIMEOUT),
}


class Pool:
    """A cluster of one replica, and its own numbers."""

    def __init__(self, cluster: Cluster, client: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.client = client

    async def metrics(self) -> dict[str, float]:
        async with self.client.get(f"http://{self.cluster.replicas[0].admin}/metrics") as response:
            lines = (await response.text()).splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    async def settled(self, seconds: float = 30) -> dict[str, float]:
        """The replica's numbers once nothing is open, or as they are when the time is over."""
        end = time.monotonic() + seconds
        while True:
            await asyncio.sleep(0.5)
            numbers = await self.metrics()
            open_now = [
                numbers[f"picker_{name}"] for name in ("streams_open", "bookings_own", "bookings_draining")
            ]
            if not any(open_now) or time.monotonic() > end:
                return numbers

    async def chat(self) -> tuple[int, float]:
        """Status and seconds of one small request."""
        begun = time.monotonic()
        body = {"model": MODEL, "messages": [{"role": "user", "content": "how are you"}], "max_tokens": 1}
        async with self.client.post(f"{self.cluster.envoy_url}/v1/chat/completions", json=body) as response:
            await response.read()
            return response.status, time.monotonic() - begun


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[Pool]:
    layout = Layout(replicas=1, workers=2, engine_options=("--time-scale", "10"), settings=SETTINGS)
    timeout = aiohttp.ClientTimeout(total=60)
    async with Cluster(layout) as cluster, aiohttp.ClientSession(timeout=timeout) as client:
        yield Pool(cluster, client)


def nothing_left(before: dict[str, float], after: dict[str, float]) -> None:
    for name in ("streams_open", "bookings_own", "bookings_draining", "buffered_bytes", "plane_outbox"):
        assert after[f"picker_{name}"] == 0, name
    # the pools of threads and connections grow a little, once
    assert after["picker_tasks"] <= before["picker_tasks"] + 16
    assert after["process_open_fds"] <= before["process_open_fds"] + 16


async def run_mixed(pool: Pool) -> tuple[list[Outcome], dict[str, float]]:
    requests = mixed(6, REQUESTS, model=MODEL, sizes=SIZES)
    outcomes = await send_all(pool.cluster.envoy, requests, concurrency=CONCURRENCY, timeout=60)
    return outcomes, await pool.settled()


async def test_ten_thousand_mixed_requests_are_all_answered_and_leave_nothing_behind(pool: Pool) -> None:
    before = await pool.metrics()
    outcomes, first = await run_mixed(pool)
    assert len(outcomes) == REQUESTS
    assert unexpected(outcomes) == {}
    assert {status for (_, status) in told(outcomes)} >= {200, 400, 413}
    nothing_left(before, first)
    again, second = await run_mixed(pool)
    assert unexpected(again) == {}
    nothing_left(before, second)
    memory = "process_resident_memory_bytes"
    assert second[memory] <= 1.1 * first[memory]


def silent_request(length: int, *pieces: bytes, pause: float = 0.0) -> Mixed:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    return Mixed("slow", (head.encode(), *pieces), frozenset({408}), pause=pause)


async def hostile(pool: Pool) -> None:
    """Two slow bodies, a thousand requests that are headers alone, a thousand ext_proc streams without a message."""
    trickle = silent_request(1_000, *[b" "] * 600, pause=1.0)
    endless = silent_request(1_000, b'{"model":')
    requests = [trickle, endless, *[silent_request(100)] * SILENT]

    async def open_streams() -> None:
        async with grpc.aio.insecure_channel(pool.cluster.replicas[0].extproc) as channel:
            streams: list[Any] = [channel.stream_stream(PROCESS)() for _ in range(SILENT)]
            ends = await asyncio.gather(*(stream.read() for stream in streams))
        assert set(ends) == {grpc.aio.EOF}

    outcomes, _ = await asyncio.gather(
        send_all(pool.cluster.envoy, requests, concurrency=len(requests), timeout=6 * BODY_TIMEOUT),
        open_streams(),
    )
    assert unexpected(outcomes) == {}


async def others(pool: Pool, until: asyncio.Event) -> list[float]:
    """Seconds of each request of four clients that ask one thing after the other; none may fail."""
    seconds = list[float]()

    async def ask() -> None:
        while not until.is_set():
            status, took = await pool.chat()
            assert status == 200
            seconds.append(took)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(ask())
    return seconds


async def test_slow_and_silent_clients_end_and_the_others_do_not_feel_them(pool: Pool) -> None:
    before = await pool.settled()
    idle, beset = list[float](), list[float]()
    for _ in range(3):
        # in turn, so that a busy machine weighs on both alike
        for medians, harm in ((idle, asyncio.sleep(5)), (beset, hostile(pool))):
            ended = asyncio.Event()
            asking = asyncio.create_task(others(pool, ended))
            try:
                await harm
            finally:
                ended.set()
                seconds = await asking
            medians.append(statistics.median(seconds))
    after = await pool.settled()
    assert (
        after["picker_serving_closed_silent_total"] - before["picker_serving_closed_silent_total"]
        == 3 * SILENT
    )
    assert after["picker_serving_body_timeouts_total"] - before["picker_serving_body_timeouts_total"] == 3 * (
        SILENT + 2
    )
    nothing_left(before, after)
    assert statistics.median(beset) <= 2 * statistics.median(idle), (idle, beset)
