"""The server alone, spoken to by a gRPC client: health, bounds, hostile bytes, lost connections, log streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from structlog.testing import capture_logs

from picker.serving.gateway import request_body, request_headers, response_headers
from picker.serving.methods import CHECK, LOGS, WATCH
from picker.serving.methods import PROCESS as METHOD
from picker.serving.seam import BOOKING_HEADER, End, HttpRequest, Picked, Refused
from picker.serving.server import PortError
from picker.serving.wire import accesslog_pb2 as log
from picker.serving.wire.extproc_pb2 import ProcessingMode, ProcessingResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse
from picker.tls import self_signed

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks

from tests.serving.front import DUPLEX, Front, send
from tests.serving.front import front as started

NAMES = ["", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension"]


class Dialled(Front):
    """A started server, a channel to it, and what its picker was told."""

    def __init__(self, at: Front, dialled: grpc.aio.Channel) -> None:
        super().__init__(at.server, at.picks)
        self.dialled = dialled

    def stream(self) -> Any:
        """A new ext_proc stream: raw bytes out, messages in."""
        return self.dialled.stream_stream(METHOD, response_deserializer=ProcessingResponse.FromString)()

    async def health(self, port: int, name: str) -> Any:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask: Any = channel.unary_unary(CHECK, response_deserializer=HealthCheckResponse.FromString)
            return (await ask(HealthCheckRequest(service=name).SerializeToString())).status


@asynccontextmanager
async def front(make_picks: MakePicks, **more: Any) -> AsyncIterator[Dialled]:
    async with started(make_picks, **more) as at, at.channel() as dialled:
        yield Dialled(at, dialled)


async def status_of(stream: Any) -> int:
    answer: ProcessingResponse = await stream.read()
    return answer.immediate_response.status.code


async def test_health_is_told_on_both_ports_under_every_name(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        for ready in (False, True, False):
            at.server.set_ready(ready)
            expected = HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
            for port in (at.server.port, at.server.health_port):
                assert [await at.health(port, name) for name in NAMES] == [expected] * 4
                assert await at.health(port, "liveness") == HealthCheckResponse.SERVING


async def test_health_of_an_unknown_name_is_not_found(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await at.health(at.server.health_port, "other")
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_of_health_is_told_now_and_at_each_change(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        watch: Any = at.dialled.unary_stream(WATCH, response_deserializer=HealthCheckResponse.FromString)
        call: Any = watch(HealthCheckRequest(service="readiness").SerializeToString())
        unknown: Any = watch(HealthCheckRequest(service="other").SerializeToString())
        seen = [(await call.read()).status]
        for ready in (True, False):
            at.server.set_ready(ready)
            seen.append((await call.read()).status)
        assert seen == [
            HealthCheckResponse.NOT_SERVING,
            HealthCheckResponse.SERVING,
            HealthCheckResponse.NOT_SERVING,
        ]
        assert (await unknown.read()).status == HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"\x12\xff\xff\xff\xff\x0f"])
async def test_bytes_that_are_no_message_are_refused_on_their_stream_alone(
    make_picks: MakePicks, data: bytes
) -> None:
    async with front(make_picks) as at:
        other = at.stream()
        await send(other, request_headers(mode=DUPLEX))
        stream = at.stream()
        await stream.write(data)
        assert await status_of(stream) == 500
        assert await stream.code() is grpc.StatusCode.OK
        await send(other, request_body(b"{}"))
        assert (await other.read()).HasField("request_headers")


async def test_bodies_of_all_streams_together_are_bounded(make_picks: MakePicks) -> None:
    async with front(make_picks, max_buffered_bytes=1 << 20) as at:
        first, second = at.stream(), at.stream()
        for stream in (first, second):
            await send(stream, request_headers(mode=DUPLEX))
        await send(first, request_body(b"x" * 700_000, end=False))
        await at.eventually(lambda: at.server.buffered_bytes == 700_000)
        await send(second, request_body(b"x" * 700_000, end=False))
        assert await status_of(second) == 429
        await send(first, request_body(b"y"))
        assert (await first.read()).HasField("request_headers")
        first.cancel()
        await at.eventually(lambda: at.server.buffered_bytes == 0)
        assert at.server.counts.refused_memory == 1


async def test_streams_are_bounded(make_picks: MakePicks) -> None:
    async with front(make_picks, max_streams=2) as at:
        held = [at.stream() for _ in range(2)]
        for stream in held:
            await send(stream, request_headers(mode=DUPLEX))
        await at.eventually(lambda: at.server.open_streams == 2)
        third = at.stream()
        await send(third, request_headers(mode=DUPLEX))
        assert await status_of(third) == 429
        held[0].cancel()
        await at.eventually(lambda: at.server.open_streams == 1)
        fourth = at.stream()
        await send(fourth, request_headers(mode=DUPLEX), request_body(b"{}"))
        assert (await fourth.read()).HasField("request_headers")


async def test_a_gateway_that_names_no_mode_and_sends_no_body_is_answered_in_time(
    make_picks: MakePicks,
) -> None:
    async with front(make_picks) as at:
        stream = at.stream()
        await send(stream, request_headers())
        async with asyncio.timeout(5):
            assert (await stream.read()).HasField("request_headers")
        assert at.picks.requests[0].body is None


async def test_a_gateway_set_to_what_is_not_served_is_told_of_once(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        with capture_logs() as lines:
            await refuse_two(at)
    assert len([line for line in lines if "not served" in line["event"]]) == 1


async def refuse_two(at: Dialled) -> None:
    for _ in range(2):
        stream, message = at.stream(), request_headers(mode=DUPLEX)
        message.protocol_config.request_body_mode = ProcessingMode.GRPC
        await send(stream, message)
        assert await status_of(stream) == 500
        await stream.code()
    await at.eventually(lambda: at.server.open_streams == 0)


async def test_a_body_that_does_not_come_ends_in_408(make_picks: MakePicks) -> None:
    async with front(make_picks, body_timeout_seconds=0.2) as at:
        stream = at.stream()
        await send(stream, request_headers(mode=DUPLEX), request_body(b"{", end=False))
        assert await status_of(stream) == 408


async def test_a_stream_that_says_nothing_is_closed(make_picks: MakePicks) -> None:
    async with front(make_picks, body_timeout_seconds=0.2) as at:
        stream = at.stream()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_pick_that_raises_is_answered_500_and_counted(make_picks: MakePicks) -> None:
    def broken(_: HttpRequest) -> Refused:
        raise ValueError("a defect")

    async with front(make_picks) as at:
        at.picks.decide = broken
        stream = at.stream()
        await send(stream, request_headers(end=True))
        assert await status_of(stream) == 500
        assert at.server.counts.pick_errors == 1


async def test_a_pick_that_will_not_be_cancelled_is_over_all_the_same(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        started, stubborn = asyncio.Event(), at.picks

        async def pick(request: HttpRequest) -> Picked | Refused:
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(30)
            return Picked("127.0.0.1:9", "late")

        stubborn.pick = pick  # type: ignore[method-assign]
        stream = at.stream()
        await send(stream, request_headers(end=True))
        await started.wait()
        stream.cancel()
        await at.eventually(lambda: stubborn.overs == [("late", End.PROVEN)])


async def test_a_lost_connection_ends_its_streams_once_each(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        writers: list[asyncio.StreamWriter] = []

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            while data := await reader.read(65_536):
                writer.write(data)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", at.server.port)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

        wire = await asyncio.start_server(forward, "127.0.0.1", 0)
        port = wire.sockets[0].getsockname()[1]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method: Any = channel.stream_stream(METHOD, response_deserializer=ProcessingResponse.FromString)
            streams: list[Any] = [method() for _ in range(3)]
            for stream in streams:
                await send(stream, request_headers(end=True))
                await stream.read()
            for writer in writers:
                writer.transport.abort()
            await at.eventually(lambda: at.server.open_streams == 0)
            assert at.picks.overs == [("booking", End.CANCELLED)] * 3
        wire.close()


async def test_stopping_closes_held_streams_with_ok_and_says_drained(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        stream = at.stream()
        await send(stream, request_headers(end=True))
        await stream.read()
        await send(stream, response_headers())
        await stream.read()
        await at.server.stop()
        assert await stream.code() is grpc.StatusCode.OK
        assert at.picks.overs == [("booking", End.DRAINED)]


def entry(booking: str) -> bytes:
    message = log.StreamAccessLogsMessage()
    one = message.http_logs.log_entry.add()
    one.common_properties.access_log_type = log.DownstreamEnd
    one.common_properties.upstream_remote_address.socket_address.address = "10.0.0.1"
    one.request.request_headers[BOOKING_HEADER] = booking
    return message.SerializeToString()


async def test_log_entries_are_told_as_they_come_and_log_streams_end_with_ok(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        send_logs: Any = at.dialled.stream_unary(LOGS)
        call: Any = send_logs()
        await call.write(entry("one"))
        await call.write(b"\xff\xff")
        await call.write(entry("two"))
        await at.eventually(lambda: [one.booking_id for one in at.picks.entries] == ["one", "two"])
        assert at.server.counts.log_unreadable == 1
        assert at.server.open_log_streams == 1
        at.server.close_log_streams()
        await call
        assert await call.code() is grpc.StatusCode.OK
        again: Any = send_logs()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await again
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert at.server.open_log_streams == 0


async def test_tls_negotiates_http2_by_alpn(make_picks: MakePicks) -> None:
    async with front(make_picks, tls="self-signed") as at:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()


async def test_tls_with_files_is_trusted_by_who_knows_the_certificate(
    make_picks: MakePicks, tmp_path: Any
) -> None:
    key, chain = self_signed()
    (tmp_path / "tls.key").write_bytes(key)
    (tmp_path / "tls.crt").write_bytes(chain)
    files = {"tls_cert_file": tmp_path / "tls.crt", "tls_key_file": tmp_path / "tls.key"}
    async with front(make_picks, tls="files", **files) as at:
        credentials = grpc.ssl_channel_credentials(chain)
        async with grpc.aio.secure_channel(f"localhost:{at.server.port}", credentials) as channel:
            ask: Any = channel.unary_unary(CHECK, response_deserializer=HealthCheckResponse.FromString)
            answer: Any = await ask(HealthCheckRequest(service="liveness").SerializeToString())
            assert answer.status == HealthCheckResponse.SERVING


async def test_a_port_that_is_taken_is_named_with_its_setting(make_picks: MakePicks) -> None:
    async with front(make_picks) as at:
        with pytest.raises(PortError, match="PICKER_GRPC_PORT"):
            async with front(make_picks, grpc_port=at.server.port):
                pass
        with pytest.raises(PortError, match="PICKER_GRPC_HEALTH_PORT"):
            async with front(make_picks, grpc_health_port=at.server.port):
                pass
