"""The native transport as its peers see it: RFC 9113 by h2spec, slow readers, limits, TLS and going away."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from picker.serving import server as serving
from picker.serving.gateway import request_body, request_headers, response_headers
from picker.serving.http2 import frames
from picker.serving.http2.frames import frame
from picker.serving.methods import CHECK, LOGS, WATCH
from picker.serving.native import link, router
from picker.serving.seam import End, HttpRequest, Refused
from picker.serving.wire.extproc_pb2 import ProcessingResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest
from tests.tools.h2spec import h2spec

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks

from tests.serving.front import DUPLEX, Raw, raw
from tests.serving.front import native_front as front


@pytest.fixture(scope="session", params=["native"])
def transport(request: pytest.FixtureRequest) -> Any:
    """These are promises of one transport only."""
    return request.param


async def test_h2spec_finds_nothing(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        program = await asyncio.to_thread(h2spec)
        process = await asyncio.create_subprocess_exec(
            str(program), "-h", "127.0.0.1", "-p", str(at.server.port), "-o", "5", "generic", "http2", "hpack",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, output[output.rfind("Failures:") :]
        told = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", output)
        assert told
        assert told[1] == told[2]
        assert int(told[1]) >= 145
        assert at.server.http2.handler_errors == 0
        assert await at.served()


# -- what is no call -------------------------------------------------------------------------------------------------


async def test_what_is_not_grpc_is_told_so(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1, "/", end=True, method="GET", kind="text/html")
        await one.until(frames.HEADERS, 1)
        assert one.decoded[":status"] == "415"
        assert b"gRPC" in await one.until(frames.DATA, 1)


async def test_what_is_not_grpc_and_never_whole_is_given_up(
    make_picks: MakePicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "STRANGER_SECONDS", 0.2)
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1, "/", kind="text/html")
        await one.until(frames.RST_STREAM, 1)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"path": "/no.Such/Method"}, "12"),
        ({"grpc_timeout": "soon"}, "13"),
        ({"grpc_timeout": "0S"}, "4"),
        ({"x": "a" * 16_000, "y": "b" * 16_000, "z": "c" * 4_000}, "8"),
    ],
    ids=["method", "no timeout", "no time", "headers"],
)
async def test_a_call_that_cannot_be_served_is_told_why(
    make_picks: MakePicks, more: dict[str, str], status: str
) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1, **more)  # type: ignore[arg-type]
        assert await one.status(1) == status
        one.ask(3)
        one.message(3, request_headers(end=True))
        await one.until(frames.DATA, 3)


async def asked_over_a_standstill(one: Raw) -> None:
    """A stream is answered; the replica stands still, and meanwhile another one is asked for."""
    one.ask(1)
    one.message(1, request_headers(end=True))
    await one.until(frames.DATA, 1)
    time.sleep(link.STALE_SECONDS + 0.1)  # noqa: ASYNC251 - nothing of the loop may run
    one.ask(3)
    one.message(3, request_headers(end=True))


async def test_what_a_peer_said_before_it_left_while_this_replica_stood_still_is_not_heeded(
    make_picks: MakePicks,
) -> None:
    async with front(make_picks) as at, raw(at) as one:
        await asked_over_a_standstill(one)
        one.writer.write_eof()
        await one.ends()
        assert at.server.http2.connections_stale == 1
        assert len(at.picks.requests) == 1
        assert at.picks.overs == [("booking", End.CANCELLED)]
        assert await at.served()


async def test_a_peer_that_is_there_is_heeded_after_a_standstill(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        await asked_over_a_standstill(one)
        await one.until(frames.DATA, 3)
        assert at.server.http2.connections_stale == 0


@pytest.mark.parametrize("size", [20, 40_000])
async def test_a_compressed_message_ends_its_call_alone(make_picks: MakePicks, size: int) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1)
        one.ask(3)
        one.send(frame(frames.DATA, 0, 1, b"\x01" + size.to_bytes(4, "big") + b"x" * 20))
        assert await one.status(1) == "12"
        one.message(3, request_headers(end=True))
        await one.until(frames.DATA, 3)
        assert at.server.http2.messages_compressed == 1
        assert at.server.open_streams == 1


async def test_a_stream_that_ends_amid_a_message_fails_and_gives_its_memory_back(
    make_picks: MakePicks,
) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1)
        one.send(frame(frames.DATA, 0, 1, b"\0\0\0\x10\0" + b"x" * 100))
        await at.eventually(lambda: at.server.buffered_bytes == 105)
        one.send(frame(frames.DATA, frames.END_STREAM, 1, b"x"))
        assert await one.status(1) == "13"
        assert at.server.buffered_bytes == 0
        assert at.server.open_streams == 0


async def test_messages_come_in_any_pieces(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1)
        data = b"".join(
            b"\0" + len(part).to_bytes(4, "big") + part
            for part in (
                request_headers(mode=DUPLEX).SerializeToString(),
                request_body(b"x" * 50, end=False).SerializeToString(),
                request_body(b"y" * 50).SerializeToString(),
            )
        )
        for at_ in range(len(data)):
            one.send(frame(frames.DATA, 0, 1, data[at_ : at_ + 1]))
        await one.until(frames.DATA, 1)
        assert at.picks.requests[0].body == b"x" * 50 + b"y" * 50
        assert at.server.buffered_bytes in {0, 100}


async def test_a_deadline_of_the_client_ends_the_call(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1, grpc_timeout="200m")
        one.message(1, request_headers(end=True))
        await one.until(frames.DATA, 1)
        assert await one.status(1) == "4"
        assert at.picks.overs == [("booking", End.CANCELLED)]
        assert at.server.http2.deadlines == 1


# -- picks -----------------------------------------------------------------------------------------------------------


async def test_a_pick_that_is_made_at_once_is_answered_in_the_same_write(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        at.picks.pick = at.picks.decide  # type: ignore[method-assign, assignment]
        one.ask(1)
        one.message(1, request_headers(mode=DUPLEX), request_body(b"{}"))
        data = await one.until(frames.DATA, 1)
        first = int.from_bytes(data[1:5], "big")
        assert ProcessingResponse.FromString(data[5 : 5 + first]).HasField("request_headers")
        assert ProcessingResponse.FromString(data[10 + first :]).HasField("request_body")
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing of ours waits for anything"


async def test_a_pick_that_raises_at_once_is_answered_500(make_picks: MakePicks) -> None:
    def broken(_: HttpRequest) -> Refused:
        raise ValueError("a defect")

    async with front(make_picks) as at, raw(at) as one:
        at.picks.pick = broken  # type: ignore[method-assign, assignment]
        one.ask(1)
        one.message(1, request_headers(end=True))
        answer = ProcessingResponse.FromString((await one.until(frames.DATA, 1))[5:])
        assert answer.immediate_response.status.code == 500
        assert at.server.counts.pick_errors == 1


async def test_a_picker_that_raises_where_nothing_may_ends_one_stream_alone(make_picks: MakePicks) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a defect")

    async with front(make_picks) as at, raw(at) as one:
        at.picks.responded = broken  # type: ignore[method-assign, assignment]
        for number in (1, 3):
            one.ask(number)
            one.message(number, request_headers(end=True))
            await one.until(frames.DATA, number)
        one.message(1, response_headers())
        await one.until(frames.RST_STREAM, 1)
        assert at.server.open_streams == 1
        assert at.server.http2.handler_errors == 1
        one.message(3, request_headers(end=True))
        assert await one.status(3) == "0"


# -- slow and hostile peers ------------------------------------------------------------------------------------------


async def test_a_gateway_that_does_not_take_its_answers_is_given_up(
    make_picks: MakePicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from picker.serving.native import extproc

    monkeypatch.setattr(extproc, "WRITE_SECONDS", 0.5)
    async with (
        front(make_picks) as at,
        raw(at, settings=frames.settings({frames.INITIAL_WINDOW_SIZE: 1_000})) as one,
    ):
        one.ask(1)
        one.ask(3)
        one.message(1, request_headers(mode=DUPLEX), request_body(b"x" * 200_000))
        await at.eventually(lambda: at.server.counts.write_timeouts == 1)
        await one.until(frames.RST_STREAM, 1)
        assert at.server.buffered_bytes == 0
        assert at.picks.overs == [("booking", End.CANCELLED)]
        one.message(3, request_headers(end=True))
        await one.until(frames.DATA, 3)


async def test_a_body_is_held_once_while_the_gateway_takes_it(make_picks: MakePicks) -> None:
    async with (
        front(make_picks) as at,
        raw(at, settings=frames.settings({frames.INITIAL_WINDOW_SIZE: 1_000})) as one,
    ):
        one.ask(1)
        one.message(1, request_headers(mode=DUPLEX), request_body(b"x" * 1_000_000))
        await at.eventually(lambda: at.server.counts.decided == 1)
        assert at.server.buffered_bytes == 1_000_000
        one.send(frames.window_update(1, 2_000_000), frames.window_update(0, 2_000_000))
        await at.eventually(lambda: at.server.buffered_bytes == 0)


async def test_a_connection_that_does_not_read_holds_up_no_other(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        wide = frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30)
        async with raw(at, settings=wide) as one:
            for number in range(1, 21, 2):
                one.ask(number)
                one.message(number, request_headers(mode=DUPLEX), request_body(b"x" * 3_000_000))
            await at.eventually(lambda: at.server.counts.decided == 10, 30)
            assert await at.served()
            total = 0
            async with asyncio.timeout(30):
                while total < 30_000_000:
                    found = await one.frame()
                    assert found is not None
                    total += len(found[3]) if found[0] == frames.DATA else 0
            await at.eventually(lambda: at.server.buffered_bytes == 0)


async def test_a_dead_peer_of_a_kept_connection_is_found(make_picks: MakePicks) -> None:
    async with front(make_picks, keepalive_seconds=1, keepalive_timeout_seconds=1) as at, raw(at) as one:
        one.ask(1)
        one.message(1, request_headers(end=True))
        ping = await one.until(frames.PING)
        one.send(frame(frames.PING, frames.ACK, 0, ping))
        await one.until(frames.PING)
        await at.eventually(lambda: at.server.http2.connections_dead == 1)
        assert at.picks.overs == [("booking", End.CANCELLED)]


async def test_who_does_not_take_the_last_word_is_cut(
    make_picks: MakePicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LINGER_SECONDS", 0.5)
    async with front(make_picks) as at:
        wide = frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30)
        async with raw(at, settings=wide) as one:
            for number in range(1, 21, 2):
                one.ask(number)
                one.message(number, request_headers(mode=DUPLEX), request_body(b"x" * 3_000_000))
            await at.eventually(lambda: at.server.counts.decided == 10, 30)
            one.send(frame(frames.DATA, 0, 0, b"a fault"))
            await at.eventually(lambda: at.server.http2.connections_lingering == 1)
            assert at.server.open_streams == 0
            assert at.server.buffered_bytes == 0


async def test_a_stop_tells_peers_to_go_and_closes_what_is_held_with_ok(make_picks: MakePicks) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1)
        one.message(1, request_headers(end=True))
        await one.until(frames.DATA, 1)
        one.ask(3, LOGS)
        one.ask(5, WATCH)
        question = HealthCheckRequest(service="readiness").SerializeToString()
        one.send(
            frame(frames.DATA, frames.END_STREAM, 5, b"\0" + len(question).to_bytes(4, "big") + question)
        )
        await one.until(frames.DATA, 5)
        async with asyncio.timeout(5):
            await at.server.stop()
        statuses: dict[int, str | None] = {}
        code = None
        while (found := await one.frame()) is not None:
            if found[0] == frames.HEADERS:
                fields = one.fields(found[3])
                statuses[found[2]] = fields.get("grpc-status", statuses.get(found[2]))
            elif found[0] == frames.GOAWAY:
                code = int.from_bytes(found[3][4:8], "big")
        assert statuses == {1: "0", 3: "0", 5: "14"}
        assert code == frames.NO_ERROR
        assert at.picks.overs == [("booking", End.DRAINED)]


@pytest.mark.parametrize("count", [0, 2])
async def test_a_check_of_health_is_one_message(make_picks: MakePicks, count: int) -> None:
    async with front(make_picks) as at, raw(at) as one:
        one.ask(1, CHECK)
        one.send(frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\0" * count))
        assert await one.status(1) == "13"


# -- TLS -------------------------------------------------------------------------------------------------------------


def context(*protocols: str) -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)], ids=["none", "http1"])
async def test_over_tls_only_http2_is_spoken(make_picks: MakePicks, protocols: tuple[str, ...]) -> None:
    async with front(make_picks, tls="self-signed") as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context(*protocols))
        async with asyncio.timeout(10):
            with suppress(ConnectionError, ssl.SSLError):
                while await reader.read(1024):
                    pass
        writer.transport.abort()
        assert at.server.http2.connections == 0


async def test_what_comes_with_the_end_of_the_handshake_is_not_lost(make_picks: MakePicks) -> None:
    async with front(make_picks, tls="self-signed") as at:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context("h2"))
            one = Raw(reader, writer)
            one.send(frames.PREFACE, frames.settings({}))
            one.ask(1)
            one.message(1, request_headers(end=True))
            await one.until(frames.DATA, 1)
            writer.transport.abort()
        await at.eventually(lambda: at.server.open_streams == 0)
        assert (at.server.counts.tls_handshakes, at.server.http2.connections) == (20, 20)


async def test_handshakes_that_never_end_count_as_connections_and_are_given_up(
    make_picks: MakePicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_SECONDS", 1)
    async with front(make_picks, tls="self-signed", max_connections=2) as at:
        silent = [await asyncio.open_connection("127.0.0.1", at.server.port) for _ in range(3)]
        await at.eventually(lambda: at.server.http2.connections_refused == 1)
        async with asyncio.timeout(10):
            for reader, writer in silent:
                with suppress(ConnectionError):
                    while await reader.read(1024):
                        pass
                writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context("h2"))
        one = Raw(reader, writer)
        one.send(frames.PREFACE, frames.settings({}))
        await one.until(frames.SETTINGS)
        writer.transport.abort()


async def test_large_bodies_pass_over_tls_both_ways(make_picks: MakePicks) -> None:
    async with front(make_picks, tls="self-signed") as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context("h2"))
        one = Raw(reader, writer)
        wide = frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30})
        one.send(frames.PREFACE, wide, frames.window_update(0, 1 << 30))
        one.ask(1)
        one.message(1, request_headers(mode=DUPLEX), request_body(b"x" * 5_000_000))
        total = 0
        async with asyncio.timeout(30):
            while total < 5_000_000:
                total += len(await one.until(frames.DATA, 1))
        await at.eventually(lambda: at.server.buffered_bytes == 0)
        writer.transport.abort()
