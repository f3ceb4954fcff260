"""Bodies that go on changed, both ways and in every mode, through a real Envoy: lengths are right, ends are seen."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from picker.serving.seam import BOOKING_HEADER, End, HttpRequest, Picked
from picker.serving.testing import ScriptedReading

if TYPE_CHECKING:
    from tests.serving.conftest import Gate, OpenGate

pytestmark = pytest.mark.asyncio(loop_scope="session")

Pair = tuple[str, str]
REWRITABLE = [
    ("BUFFERED", "NONE"),
    ("BUFFERED_PARTIAL", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "NONE"),
    ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
]
SHOWN = [
    ("BUFFERED", "STREAMED"),
    ("BUFFERED", "BUFFERED"),
    ("BUFFERED", "BUFFERED_PARTIAL"),
    ("STREAMED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "STREAMED"),
    ("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
]
OLD = b"o" * 100_000
NEW = {"shorter": b"n" * 10, "longer": b"n" * 300_000, "equal": b"n" * len(OLD), "empty": b""}
EVENTS = "".join(f"data: {index}\n\n" for index in range(4))


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 30_000):
        yield body[at : at + 30_000]
        await asyncio.sleep(0.01)


async def post(gate: Gate, pair: Pair, data: Any) -> tuple[int, Any]:
    async with gate.client.post(gate.url(pair), data=data) as response:
        return response.status, await response.json()


async def post_with_trailers(gate: Gate, pair: Pair, body: bytes) -> bytes:
    host, port = gate.url(pair, "").removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n"
        b"connection: close\r\n\r\n%x\r\n%s\r\n0\r\nx-end: 1\r\n\r\n" % (len(body), body)
    )
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def filter_with(**more: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the gateway's configuration: more in every ext_proc filter."""

    def change(config: dict[str, Any]) -> None:
        for listener in config["static_resources"]["listeners"]:
            for each in listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]:
                if each["name"] == "envoy.filters.http.ext_proc":
                    each["typed_config"].update(more)

    return change


def write(gate: Gate, body: bytes) -> None:
    """Have every request go on with this body."""
    gate.picks.decide = lambda request: Picked(gate.worker.address, "one", body=body)


def read_with(gate: Gate, reading: ScriptedReading) -> None:
    """Have every response pass this reading."""
    gate.picks.decide = lambda request: Picked(gate.worker.address, "one", reading=reading)


@pytest.mark.parametrize("pair", REWRITABLE, ids="-".join)
@pytest.mark.parametrize("size", list(NEW))
@pytest.mark.parametrize("client", ["plain", "chunked"])
async def test_another_body_arrives_with_its_own_length(
    gate: Gate, pair: Pair, size: str, client: str
) -> None:
    body = NEW[size]
    write(gate, body)
    status, told = await post(gate, pair, io.BytesIO(OLD) if client == "plain" else chunked(OLD))
    assert (status, told["size"]) == (200, len(body))
    assert told["sha256"] == hashlib.sha256(body).hexdigest()
    (request,) = gate.picks.requests
    assert (request.body, request.rewritable) == (OLD, True)
    (received,) = gate.worker.headers
    assert received.get("content-length", [str(len(body))]) == [str(len(body))]
    assert ("content-length" in received) != ("transfer-encoding" in received)
    assert received[BOOKING_HEADER] == ["one"]
    assert gate.server.buffered_bytes == 0


@pytest.mark.parametrize("pair", REWRITABLE, ids="-".join)
@pytest.mark.parametrize("size", ["shorter", "longer"])
async def test_another_body_arrives_though_trailers_follow(gate: Gate, pair: Pair, size: str) -> None:
    write(gate, NEW[size])
    answer = await post_with_trailers(gate, pair, b"hello")
    assert answer.split(b" ", 2)[1] == b"200"
    (request,) = gate.picks.requests
    # a chunked body whose end is not marked may be a cut one
    expected = NEW[size] if request.rewritable else b"hello"
    assert request.rewritable == (pair[0] != "BUFFERED_PARTIAL")
    assert hashlib.sha256(expected).hexdigest().encode() in answer


@pytest.mark.parametrize("size", [20_000, 200_000])
async def test_a_body_beyond_the_gateway_s_buffer_arrives_unread_in_partial_mode(
    open_gate: OpenGate, tmp_path: Path, size: int
) -> None:
    pair = ("BUFFERED_PARTIAL", "NONE")
    body = b"x" * size
    async with open_gate(tmp_path, [pair], envoy={"buffer_limit": 65_536}) as gate:
        gate.picks.decide = lambda request: Picked(gate.worker.address, "one", body=b"other")
        status, told = await post(gate, pair, io.BytesIO(body))
        (request,) = gate.picks.requests
        assert request.complete == request.rewritable == (size < 65_536)
        expected = b"other" if request.complete else body
        assert (status, told["sha256"]) == (200, hashlib.sha256(expected).hexdigest())
        assert gate.server.counts.bodies_cut == (not request.complete)


# -- responses ------------------------------------------------------------------------------------------------------


def collect() -> Callable[[bytes, bool], bytes]:
    kept: list[bytes] = []

    def piece(data: bytes, end: bool) -> bytes:
        kept.append(data)
        return b"".join(kept) + b"!" if end else b""

    return piece


CHANGES: dict[str, Callable[[], Callable[[bytes, bool], bytes | None]]] = {
    "same": lambda: lambda data, end: None,
    "longer": lambda: (
        lambda data, end: data.replace(b"data", b"longer-data").replace(b"size", b"longer-size")
    ),
    "shorter": lambda: lambda data, end: data.replace(b"data", b"d").replace(b"size", b"s"),
    "swallow": lambda: lambda data, end: b"",
    "collect": collect,
}


def expected(change: str, text: str) -> str:
    return {
        "same": text,
        "longer": text.replace("data", "longer-data").replace("size", "longer-size"),
        "shorter": text.replace("data", "d").replace("size", "s"),
        "swallow": "",
        "collect": text + "!",
    }[change]


@pytest.mark.parametrize("pair", SHOWN, ids="-".join)
@pytest.mark.parametrize("change", list(CHANGES))
async def test_an_answer_reaches_the_client_changed_and_whole(gate: Gate, pair: Pair, change: str) -> None:
    reading = ScriptedReading(CHANGES[change]())
    read_with(gate, reading)
    async with gate.client.post(gate.url(pair), data=b"{}") as response:
        text = await response.text()
        length = response.headers.get("content-length", str(len(text)))
    plain = f'{{"sha256": "{hashlib.sha256(b"{}").hexdigest()}", "size": 2}}'
    assert (response.status, text, length) == (200, expected(change, plain), str(len(text)))
    assert reading.begun[0].content_type.startswith("application/json")
    assert b"".join(data for data, _ in reading.pieces).decode() == plain
    assert [end for _, end in reading.pieces].count(True) == 1
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [("one", End.PROVEN)]
    assert gate.picks.requests[0].response_shown


@pytest.mark.parametrize("pair", SHOWN, ids="-".join)
@pytest.mark.parametrize("change", list(CHANGES))
async def test_an_event_stream_reaches_the_client_changed_and_whole(
    gate: Gate, pair: Pair, change: str
) -> None:
    read_with(gate, ScriptedReading(CHANGES[change]()))
    headers = {"x-test-answer": "stream:4"}
    async with gate.client.post(gate.url(pair), data=b"{}", headers=headers) as response:
        assert (response.status, await response.text()) == (200, expected(change, EVENTS))
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [("one", End.PROVEN)]


@pytest.mark.parametrize(
    "pair", [("BUFFERED", "STREAMED"), ("FULL_DUPLEX_STREAMED", "STREAMED")], ids="-".join
)
@pytest.mark.parametrize("rewrites", [True, False])
async def test_under_hold_headers_only_a_response_that_is_changed_is_held(
    gate: Gate, pair: Pair, rewrites: bool
) -> None:
    gate.hold = "headers"
    reading = ScriptedReading(CHANGES["longer"](), rewrites=rewrites)
    read_with(gate, reading)
    headers = {"x-test-answer": "stream:4"}
    async with gate.client.post(gate.url(pair), data=b"{}", headers=headers) as response:
        text = await response.text()
    assert text == expected("longer" if rewrites else "same", EVENTS)
    await gate.eventually(lambda: gate.picks.overs)
    assert gate.picks.overs == [("one", End.PROVEN if rewrites else End.CLOSED_BY_US)]
    assert bool(reading.pieces) == rewrites


@pytest.mark.parametrize("pair", SHOWN, ids="-".join)
async def test_a_reading_that_fails_does_not_fail_the_response(gate: Gate, pair: Pair) -> None:
    def fail(data: bytes, end: bool) -> bytes:
        raise RuntimeError("a defect")

    before = gate.server.counts.reading_errors
    read_with(gate, ScriptedReading(fail))
    headers = {"x-test-answer": "stream:4"}
    async with gate.client.post(gate.url(pair), data=b"{}", headers=headers) as response:
        assert (response.status, await response.text()) == (200, EVENTS)
    assert gate.server.counts.reading_errors == before + 1


# -- overrides ------------------------------------------------------------------------------------------------------

ASKED = [
    (("NONE", "STREAMED"), False),
    (("NONE", "BUFFERED"), False),
    (("NONE", "BUFFERED_PARTIAL"), False),
    (("STREAMED", "STREAMED"), False),
    (("STREAMED", "BUFFERED"), False),
    (("NONE", "NONE"), True),
    (("STREAMED", "NONE"), True),
]
NEVER_ASKED = [
    (("FULL_DUPLEX_STREAMED", "STREAMED"), False),
    (("FULL_DUPLEX_STREAMED", "NONE"), True),
    (("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"), False),
    (("STREAMED", "FULL_DUPLEX_STREAMED"), False),
]
BUFFERED = [(("BUFFERED", "STREAMED"), False), (("BUFFERED", "NONE"), True)]


def named(row: tuple[Pair, bool]) -> str:
    return f"{'-'.join(row[0])}-{'read' if row[1] else 'unread'}"


@pytest.mark.parametrize("allowed", [True, False])
async def test_overrides_are_obeyed_where_they_can_be_and_every_response_is_whole(
    open_gate: OpenGate, tmp_path: Path, allowed: bool
) -> None:
    rows = [*ASKED, *NEVER_ASKED, *BUFFERED]
    pairs = [pair for pair, _ in rows]

    envoy = {"change": filter_with(allow_mode_override=allowed)}
    async with open_gate(tmp_path, pairs, envoy=envoy, mode_override=True) as gate:
        for row in rows:
            for method in ("POST", "GET"):
                shown, asked = await served(gate, row, method)
                expects = asked and allowed
                told = row[0][1] != "NONE"
                assert shown == (not told if expects else told), (named(row), method, asked)
                possible = row not in NEVER_ASKED and (row not in BUFFERED or method == "GET")
                assert asked == possible, (named(row), method)
        ignored = sum(not reads for _, reads in ASKED) * 2 + 1
        assert gate.server.counts.overrides_ignored == (0 if allowed else ignored)


async def served(gate: Gate, row: tuple[Pair, bool], method: str) -> tuple[bool, bool]:
    """Whether the body of one response was shown, and whether another mode was asked for."""
    (pair, reads), counts = row, gate.server.counts
    before = counts.modes_overridden
    reading = ScriptedReading(CHANGES["longer"]()) if reads else None

    def pick(request: HttpRequest) -> Picked:
        return Picked(gate.worker.address, "one", reading=reading)

    gate.renew()
    gate.picks.decide = pick
    data = b"{}" if method == "POST" else None
    headers = {"x-test-answer": "stream:4"}
    async with gate.client.request(method, gate.url(pair), data=data, headers=headers) as response:
        assert response.status == 200
        text = await response.text()
    await gate.eventually(lambda: gate.picks.overs)
    assert len(gate.picks.overs) == 1
    shown = bool(gate.picks.bodies)
    assert text == expected("longer" if reading and shown else "same", EVENTS)
    await gate.eventually(lambda: gate.server.open_streams == 0)
    return shown, counts.modes_overridden > before


async def test_a_streamed_body_sent_ahead_is_read_before_the_decision(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    pairs = [("STREAMED", "STREAMED"), ("FULL_DUPLEX_STREAMED", "STREAMED"), ("BUFFERED", "NONE")]

    envoy = {"change": filter_with(send_body_without_waiting_for_header_response=True)}
    async with open_gate(tmp_path, pairs, envoy=envoy) as gate:
        for pair in pairs:
            for body in (b"{}", b"x" * 200_000):
                gate.renew()
                status, told = await post(gate, pair, io.BytesIO(body))
                assert (status, told["sha256"]) == (200, hashlib.sha256(body).hexdigest())
                assert [(each.body, each.complete) for each in gate.picks.requests] == [(body, True)]
        gate.renew()
        status, told = await post(gate, pairs[0], slow())
        assert (status, told["size"]) == (200, 10)
        assert [(each.body, each.complete) for each in gate.picks.requests] == [(b"first", False)]


async def slow() -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.sleep(0.5)
    yield b"later"


# -- response trailers ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def worker_with_trailers() -> AsyncIterator[str]:
    """A worker that answers two pieces and a trailer, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"content-length: 2" in head.lower():
            await reader.readexactly(2)
        else:
            await reader.readuntil(b"0\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
            b"connection: close\r\n\r\n"
        )
        for chunk in (b"9\r\ndata: 0\n\n\r\n", b"9\r\ndata: 1\n\n\r\n", b"0\r\nx-end: 1\r\n\r\n"):
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"{host}:{port}"
    finally:
        server.close()


def with_worker_trailers(config: dict[str, Any]) -> None:
    for cluster in config["static_resources"]["clusters"]:
        if cluster["name"] == "pool":
            cluster["http_protocol_options"] = {"enable_trailers": True}


async def test_a_response_that_ends_with_trailers_is_whole_where_the_gateway_takes_what_was_held_back(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    text = "data: 0\n\ndata: 1\n\n"
    async with (
        worker_with_trailers() as address,
        open_gate(tmp_path, SHOWN, envoy={"change": with_worker_trailers}) as gate,
    ):
        for pair in SHOWN:
            for change in ("same", "longer", "collect"):
                gate.renew()
                lost = gate.server.counts.response_tails_lost
                reading = ScriptedReading(CHANGES[change]())
                gate.picks.decide = partial(_to, address, reading)
                async with gate.client.post(gate.url(pair), data=b"{}") as response:
                    got = await response.text()
                await gate.eventually(lambda: gate.picks.overs)
                assert gate.picks.overs == [("one", End.PROVEN)]
                cut = change == "collect" and pair[1] == "STREAMED"
                assert got == ("" if cut else expected(change, text)), (pair, change)
                assert gate.server.counts.response_tails_lost == lost + cut


def _to(address: str, reading: ScriptedReading, request: HttpRequest) -> Picked:
    return Picked(address, "one", reading=reading)
