"""Refusals, aborts, resets, lost replicas, the access log and TLS, all through a real Envoy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, REASON_HEADER, End, Picked, Refused

if TYPE_CHECKING:
    from tests.serving.conftest import Gate, OpenEnvoy, OpenGate, OpenWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")

Pair = tuple[str, str]
MAIN = [
    ("BUFFERED", "NONE"),
    ("BUFFERED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "NONE"),
    ("FULL_DUPLEX_STREAMED", "STREAMED"),
]
REFUSALS = [
    Refused(400, "invalid_request_error", "bad_request", "The body is not JSON.", param="messages"),
    Refused(429, "rate_limit_error", "saturated", "All workers are full.", "rejected-saturated", 3),
    Refused(503, "service_unavailable", "no_endpoints", "No worker.", "rejected-no-endpoints", 1),
]
STREAM = {"x-test-answer": "stream:8"}
REPLICA = Path(__file__).with_name("replica.py")


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal.status))
async def test_a_refusal_reaches_the_client_as_json(gate: Gate, pair: Pair, refusal: Refused) -> None:
    gate.picks.decide = lambda _: refusal
    async with gate.client.post(gate.url(pair), json={"model": "m"}) as response:
        assert response.status == refusal.status
        assert response.headers["content-type"] == "application/json"
        assert response.headers.get("retry-after") == (
            str(refusal.retry_after) if refusal.retry_after else None
        )
        assert response.headers.get(REASON_HEADER, "") == refusal.reason
        told = (await response.json())["error"]
    assert told == {
        "message": refusal.message,
        "type": refusal.type,
        "param": refusal.param,
        "code": refusal.code,
    }
    assert gate.worker.headers == []
    assert gate.picks.overs == []


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_answered_413_in_json(gate: Gate, pair: Pair, declared: bool) -> None:
    size = gate.max_body + 1000

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, size, 500_000):
            yield b"x" * min(500_000, size - at)

    headers = {"content-length": str(size)} if declared else {}
    before = gate.server.counts.refused_too_large
    async with gate.client.post(gate.url(pair), data=pieces(), headers=headers) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "request_too_large"
    await gate.eventually(lambda: gate.server.open_streams == 0)
    assert gate.picks.requests == []
    assert gate.server.buffered_bytes == 0
    assert gate.server.counts.refused_too_large == before + 1


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_client_that_leaves_in_mid_response_ends_its_booking(gate: Gate, pair: Pair) -> None:
    async with gate.client.post(gate.url(pair), data=b"{}", headers=STREAM) as response:
        await response.content.readline()
        await asyncio.sleep(0.2)
        response.close()
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [(gate.booking, End.HALF_CLOSED)]
    await gate.eventually(lambda: gate.worker.aborted == 1)


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_client_that_leaves_while_its_pick_waits_leaves_nothing(gate: Gate, pair: Pair) -> None:
    gate.picks.delay = 3.0
    with pytest.raises(asyncio.TimeoutError):
        async with gate.client.post(gate.url(pair), data=b"{}", timeout=aiohttp.ClientTimeout(total=0.2)):
            pass
    await gate.eventually(lambda: gate.picks.cancelled == 1)
    await gate.eventually(lambda: gate.server.open_streams == 0)
    assert gate.picks.overs == []


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_worker_that_resets_in_mid_response_ends_its_booking(gate: Gate, pair: Pair) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        async with gate.client.post(
            gate.url(pair), data=b"{}", headers={"x-test-answer": "reset:5"}
        ) as response:
            await response.read()
    await gate.eventually(lambda: gate.picks.overs)
    ((booking, end),) = gate.picks.overs
    assert booking == gate.booking
    # within 0.1 s of an event stream's headers it is not believed to be an end
    assert end in {End.HALF_CLOSED, End.CANCELLED}


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_worker_that_cannot_be_reached_ends_its_booking(gate: Gate, pair: Pair) -> None:
    gate.picks.decide = lambda _: Picked("127.0.0.1:1", "nowhere")
    async with gate.client.post(gate.url(pair), data=b"{}") as response:
        assert response.status == 503
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [("nowhere", End.PROVEN)]
    assert gate.picks.responses[0][1].status == 503


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
@pytest.mark.parametrize("hold", ["headers", "response"])
async def test_the_access_log_names_the_booking_while_it_runs_and_when_it_ends(
    gate: Gate, pair: Pair, hold: Any
) -> None:
    gate.hold = hold
    headers = {"x-test-answer": "stream:14"}
    async with gate.client.post(gate.url(pair), data=b"{}", headers=headers) as response:
        await gate.eventually(
            lambda: any(entry.booking_id == gate.booking and not entry.end for entry in gate.picks.entries)
        )
        assert gate.ends() == []
        await response.read()
    await gate.eventually(gate.ends)
    (end,) = gate.ends()
    assert (end.booking_id, end.served, end.status) == (gate.booking, gate.worker.address, 200)
    assert gate.server.last_logged is not None


async def test_the_access_log_says_that_a_client_left(gate: Gate) -> None:
    async with gate.client.post(gate.url(MAIN[0]), data=b"{}", headers=STREAM) as response:
        await response.content.readline()
        response.close()
    await gate.eventually(gate.ends)
    assert "downstream_connection_termination" in gate.ends()[0].flags


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_refused_request_cannot_end_the_booking_that_it_names(gate: Gate, pair: Pair) -> None:
    gate.picks.decide = lambda _: REFUSALS[0]
    before = gate.server.counts.log_messages
    async with gate.client.post(gate.url(pair), data=b"{}", headers={BOOKING_HEADER: "another"}) as response:
        assert response.status == 400
    await gate.eventually(lambda: gate.server.counts.log_messages > before)
    await asyncio.sleep(0.2)
    assert gate.picks.entries == []


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
@pytest.mark.parametrize("whole", [True, False], ids=["while the pick waits", "before its body is whole"])
async def test_a_client_that_leaves_before_the_pick_cannot_end_or_prolong_the_booking_that_it_names(
    gate: Gate, pair: Pair, whole: bool
) -> None:
    gate.picks.delay = 30
    counts = gate.server.counts

    def unbelieved() -> int:
        return counts.log_untrusted + counts.log_unnamed

    before = unbelieved()
    host, _, port = gate.url(pair, "").removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n{BOOKING_HEADER}: another\r\n\r\n"
    )
    try:
        writer.write(head.encode() + (b"{}" if whole else b"{"))
        await writer.drain()
        await gate.eventually(lambda: unbelieved() > before)  # a periodic entry: the request still runs
    finally:
        writer.close()
        await writer.wait_closed()
    await gate.eventually(lambda: unbelieved() > before + 1)
    assert gate.picks.entries == []


@asynccontextmanager
async def replica(worker: str, hold: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A replica in a process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(REPLICA), worker, hold, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        async with asyncio.timeout(30):
            yield process, f"127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("hold", ["headers", "response"])
@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_replica_killed_in_mid_response_cuts_it_only_where_it_held_the_stream(
    open_worker: OpenWorker, open_envoy: OpenEnvoy, tmp_path: Path, pair: Pair, hold: str
) -> None:
    async with (
        open_worker() as worker,
        replica(worker.address, hold) as (process, address),
        open_envoy(tmp_path, [address], [pair]) as urls,
        aiohttp.ClientSession() as client,
    ):
        (url,) = urls.values()
        async with client.post(url, data=b"{}", headers=STREAM) as response:
            await response.content.readline()
            await asyncio.sleep(0.2)
            os.kill(process.pid, signal.SIGKILL)
            if hold == "headers":
                assert (await response.text()).count("data:") == 7
            else:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()


async def test_requests_are_served_though_no_replica_is_held_to_be_healthy(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    async with open_gate(tmp_path, MAIN[:1]) as gate:
        gate.server.set_ready(False)
        for _ in range(30):
            async with gate.client.post(gate.url(MAIN[0]), data=b"{}") as response:
                assert response.status == 200
            await asyncio.sleep(0.1)  # past the next health checks


async def test_failing_open_follows_no_destination_that_a_client_wrote(
    open_worker: OpenWorker, open_envoy: OpenEnvoy, tmp_path: Path
) -> None:
    async with (
        open_worker() as worker,
        replica("127.0.0.1:1", "response") as (process, address),
        open_envoy(tmp_path, [address], MAIN[:1], failure_mode_allow=True) as urls,
        aiohttp.ClientSession() as client,
    ):
        (url,) = urls.values()
        process.kill()
        await process.wait()
        for method in ("GET", "POST"):
            async with client.request(method, url, headers={DESTINATION_HEADER: worker.address}) as response:
                assert response.status >= 500
        assert worker.headers == []


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_replica_that_drains_cuts_no_response(
    open_gate: OpenGate, tmp_path: Path, pair: Pair
) -> None:
    async with (
        open_gate(tmp_path, [pair]) as gate,
        gate.client.post(gate.url(pair), data=b"{}", headers=STREAM) as response,
    ):
        await response.content.readline()
        gate.server.set_ready(False)
        gate.server.close_log_streams()
        assert await gate.server.drain_streams(0.1) == 1
        assert gate.picks.overs == [(gate.booking, End.DRAINED)]
        assert gate.server.open_streams == 0
        assert (await response.text()).count("data:") == 7


async def test_a_drain_is_over_as_soon_as_no_stream_is_open(open_gate: OpenGate, tmp_path: Path) -> None:
    async with open_gate(tmp_path, MAIN[:1]) as gate:
        async with gate.client.post(
            gate.url(MAIN[0]), data=b"{}", headers={"x-test-answer": "stream:3"}
        ) as response:
            await response.content.readline()
            async with asyncio.timeout(20):
                assert await gate.server.drain_streams(60) == 0
            await response.read()
        assert gate.picks.overs[0][1] is End.HALF_CLOSED


async def test_tls_with_a_self_signed_certificate_serves_gateways_that_do_not_verify(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    async with open_gate(tmp_path, MAIN, tls="self-signed") as gate:
        for pair in MAIN:
            async with gate.client.post(gate.url(pair), data=b"x" * 200_000) as response:
                assert (response.status, (await response.json())["size"]) == (200, 200_000)
        await gate.eventually(lambda: gate.server.counts.log_ends == len(MAIN))
