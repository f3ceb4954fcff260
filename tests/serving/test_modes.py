"""Every body mode through a real Envoy: requests and responses arrive as they were sent, and bookings end."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, End, Picked
from picker.settings import ServingSettings

if TYPE_CHECKING:
    from tests.serving.conftest import Gate, OpenGate

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAIN = [
    ("BUFFERED", "NONE"),
    ("BUFFERED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "NONE"),
    ("FULL_DUPLEX_STREAMED", "STREAMED"),
]
FURTHER = [
    ("BUFFERED", "BUFFERED"),
    ("BUFFERED_PARTIAL", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
]
UNSHOWN = [("NONE", "NONE"), ("STREAMED", "STREAMED")]
FORGED = {
    DESTINATION_HEADER: "127.0.0.1:9",
    BOOKING_HEADER: "forged",
    "x-gateway-destination-endpoint-served": "127.0.0.1:9",
    "x-data-parallel-rank": "7",
    "x-data-parallel-host-rank": "7",
    "x-llm-d-inference-objective": "vip",
    "x-picker-anything": "x",
}

Pair = tuple[str, str]


async def post(gate: Gate, pair: Pair, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    data = io.BytesIO(body) if isinstance(body, bytes) else body
    async with gate.client.post(gate.url(pair), data=data, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER, *UNSHOWN], ids="-".join)
@pytest.mark.parametrize("size", [1_000, 200_000, 5 * 1024 * 1024])
async def test_a_body_arrives_at_the_picked_worker_byte_for_byte(gate: Gate, pair: Pair, size: int) -> None:
    body = os.urandom(size)
    status, told = await post(gate, pair, body)
    assert (status, told["size"]) == (200, size)
    assert told["sha256"] == hashlib.sha256(body).hexdigest()
    (request,) = gate.picks.requests
    if pair in UNSHOWN:
        assert request.body is None
    else:
        assert request.body == body
        assert request.complete
    assert request.headers[":path"] == "/v1/completions"
    assert gate.server.buffered_bytes == 0
    (received,) = gate.worker.headers
    assert received[DESTINATION_HEADER] == [gate.worker.address]
    assert received[BOOKING_HEADER] == [gate.booking]
    assert received["x-test-set"] == ["by-us"]


async def test_a_body_of_16_mib_arrives_by_default(open_gate: OpenGate, tmp_path: Path) -> None:
    body = os.urandom(16 * 1024 * 1024)
    async with open_gate(tmp_path, MAIN, max_body_bytes=ServingSettings().max_body_bytes) as gate:
        for pair in MAIN:
            status, told = await post(gate, pair, body)
            assert (status, told["sha256"]) == (200, hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER, *UNSHOWN], ids="-".join)
async def test_every_booking_is_over_exactly_once_with_the_worker_named(gate: Gate, pair: Pair) -> None:
    for _ in range(5):
        assert (await post(gate, pair, b"{}"))[0] == 200
    await gate.eventually(lambda: len(gate.picks.overs) == 5)
    await gate.eventually(lambda: gate.server.open_streams == 0)
    assert set(Counter(booking for booking, _ in gate.picks.overs).values()) == {1}
    expected = {End.HALF_CLOSED} if pair[1] == "NONE" else {End.PROVEN}
    assert {end for _, end in gate.picks.overs} == expected
    assert {response.served for _, response in gate.picks.responses} == {gate.worker.address}
    assert {response.status for _, response in gate.picks.responses} == {200}


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER, *UNSHOWN], ids="-".join)
async def test_a_request_without_a_body_is_served(gate: Gate, pair: Pair) -> None:
    async with gate.client.get(gate.url(pair, "/v1/models")) as response:
        assert response.status == 200
    (request,) = gate.picks.requests
    assert request.body is None
    assert request.headers[":method"] == "GET"
    assert gate.worker.headers[0][BOOKING_HEADER] == [gate.booking]


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER], ids="-".join)
async def test_a_chunked_body_arrives_too(gate: Gate, pair: Pair) -> None:
    async def pieces() -> Any:
        for _ in range(5):
            yield b"x" * 30_000
            await asyncio.sleep(0.02)

    status, told = await post(gate, pair, pieces())
    assert (status, told["size"]) == (200, 150_000)
    assert told["sha256"] == hashlib.sha256(b"x" * 150_000).hexdigest()


async def post_with_trailers(gate: Gate, pair: Pair, body: bytes) -> tuple[int, bytes]:
    host, port = gate.url(pair, "").removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n"
        b"connection: close\r\n\r\n" + chunk + b"0\r\nx-end: 1\r\n\r\n"
    )
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER], ids="-".join)
async def test_a_body_that_ends_with_trailers_is_served(gate: Gate, pair: Pair) -> None:
    status, answer = await post_with_trailers(gate, pair, b"hello")
    assert status == 200
    assert hashlib.sha256(b"hello").hexdigest().encode() in answer


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER], ids="-".join)
async def test_trailers_without_a_body_are_served_where_the_gateway_shows_them(
    gate: Gate, pair: Pair
) -> None:
    status, _ = await post_with_trailers(gate, pair, b"")
    # a buffering gateway shows neither body nor trailers, and answers by itself
    assert status == (200 if pair[0] == "FULL_DUPLEX_STREAMED" else 503)
    await gate.eventually(lambda: gate.server.open_streams == 0)
    assert len(gate.picks.requests) == (1 if status == 200 else 0)


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER], ids="-".join)
async def test_an_event_stream_reaches_the_client_whole(gate: Gate, pair: Pair) -> None:
    async with gate.client.post(
        gate.url(pair), data=b"{}", headers={"x-test-answer": "stream:4"}
    ) as response:
        text = await response.text()
    assert text == "".join(f"data: {index}\n\n" for index in range(4))
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.responses[0][1].event_stream
    assert bool(gate.picks.bodies) == (pair[1] != "NONE")


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_a_held_stream_lasts_as_long_as_its_response(gate: Gate, pair: Pair) -> None:
    async with gate.client.post(
        gate.url(pair), data=b"{}", headers={"x-test-answer": "stream:5"}
    ) as response:
        await response.content.readline()
        await asyncio.sleep(0.15)
        assert gate.server.open_streams == 1
        assert gate.picks.overs == []
        await response.read()
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [(gate.booking, End.HALF_CLOSED if pair[1] == "NONE" else End.PROVEN)]


@pytest.mark.parametrize("pair", MAIN, ids="-".join)
async def test_hold_headers_lets_go_at_response_headers_and_the_response_completes(
    gate: Gate, pair: Pair
) -> None:
    gate.hold = "headers"
    async with gate.client.post(
        gate.url(pair), data=b"{}", headers={"x-test-answer": "stream:5"}
    ) as response:
        await gate.eventually(lambda: gate.server.open_streams == 0)
        assert gate.picks.overs == [(gate.booking, End.CLOSED_BY_US)]
        assert gate.ends() == []
        text = await response.text()
    assert text.count("data:") == 5
    assert gate.picks.overs == [(gate.booking, End.CLOSED_BY_US)]


@pytest.mark.parametrize("pair", [*MAIN, *FURTHER, *UNSHOWN], ids="-".join)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_a_client_forges_reaches_neither_the_route_nor_the_worker(
    gate: Gate, pair: Pair, method: str
) -> None:
    data = b"{}" if method == "POST" else None
    async with gate.client.request(method, gate.url(pair), data=data, headers=FORGED) as response:
        assert response.status == 200
    (received,) = gate.worker.headers
    assert received[DESTINATION_HEADER] == [gate.worker.address]
    assert received[BOOKING_HEADER] == [gate.booking]
    assert not (FORGED.keys() - {DESTINATION_HEADER, BOOKING_HEADER}) & received.keys()


async def test_many_requests_at_once_leave_nothing_open(gate: Gate) -> None:
    gate.picks.delay = 0.01
    work = [post(gate, MAIN[index % 4], b"x" * (index * 500)) for index in range(100)]
    assert [status for status, _ in await asyncio.gather(*work)] == [200] * 100
    await gate.eventually(lambda: len(gate.picks.overs) == 100 and gate.server.open_streams == 0)
    assert gate.server.buffered_bytes == 0


async def test_a_destination_list_is_passed_on_as_it_is(gate: Gate) -> None:
    gate.picks.decide = lambda _: Picked(f"{gate.worker.address}", "one")
    assert (await post(gate, MAIN[2], b"{}"))[0] == 200
    assert gate.worker.headers[0][BOOKING_HEADER] == ["one"]
