"""Very many clients, or rude ones, behind one real Envoy that sends us all by one connection: none costs another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from picker.sim.processes import free_ports

if TYPE_CHECKING:
    from tests.serving.conftest import Gate, OpenGate

pytestmark = pytest.mark.timeout(120)

PAIR = ("FULL_DUPLEX_STREAMED", "NONE")
CLIENTS = 2_500
KIND = "type.googleapis.com/envoy"


def traced_by_a_gateway_that_resets(config: dict[str, Any]) -> None:
    """Have each stream carry what its client says of its trace, and end with a reset, as older versions do."""
    tracer = {
        "@type": f"{KIND}.config.trace.v3.OpenTelemetryConfig",
        "grpc_service": {"envoy_grpc": {"cluster_name": "traces"}},
        "service_name": "gateway",
    }
    for listener in config["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["tracing"] = {"provider": {"name": "envoy.tracers.opentelemetry", "typed_config": tracer}}
    (nobody,) = free_ports(1)
    address = {"socket_address": {"address": "127.0.0.1", "port_value": nobody}}
    endpoints = {"lb_endpoints": [{"endpoint": {"address": address}}]}
    pickers = next(each for each in config["static_resources"]["clusters"] if each["name"] == "pickers")
    (options,) = pickers["typed_extension_protocol_options"].values()
    # by itself it has 1024 on each connection
    options["explicit_http_config"]["http2_protocol_options"]["max_concurrent_streams"] = 100_000
    traces = {
        "name": "traces",
        "type": "STATIC",
        "typed_extension_protocol_options": pickers["typed_extension_protocol_options"],
        "load_assignment": {"cluster_name": "traces", "endpoints": [endpoints]},
    }
    config["static_resources"]["clusters"].append(traces)
    flags = {"envoy.reloadable_features.ext_proc_graceful_grpc_close": False}
    config["layered_runtime"] = {"layers": [{"name": "flags", "static_layer": flags}]}


@pytest.fixture(scope="session", params=["native"])
def transport(request: pytest.FixtureRequest) -> Any:
    """These are promises of one transport only."""
    return request.param


@asynccontextmanager
async def herded(open_gate: OpenGate, folder: Path) -> AsyncIterator[Gate]:
    """A gate whose listener's connection to us must be the same before and after."""
    async with open_gate(folder, [PAIR], envoy={"change": traced_by_a_gateway_that_resets}) as gate:
        assert await ask(gate) == 200
        # its log has a connection of its own
        await gate.eventually(gate.ends)
        before = gate.server.http2.connections
        yield gate
        assert await ask(gate) == 200
        counts = gate.server.http2
        assert counts.connections == before
        floods = {name: getattr(counts, name) for name in counts.__slots__ if name.startswith("flooded_")}
        assert not any(floods.values()), floods
        assert counts.connection_errors == counts.stream_errors == counts.handler_errors == 0
        await gate.eventually(lambda: gate.server.open_streams == 0)
        assert gate.server.buffered_bytes == 0


@asynccontextmanager
async def client(gate: Gate, head: str = "content-length: 2") -> AsyncIterator[tuple[Any, Any]]:
    """A client that has sent its headers."""
    host, _, port = gate.url(PAIR)[7:].partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n".encode())
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(gate: Gate, head: str = "content-length: 2") -> int:
    """The status of one request."""
    async with client(gate, head) as (reader, writer):
        writer.write(b"{}")
        return int((await reader.readline()).split()[1])


def trace(number: int, size: int) -> str:
    parent = f"00-{number + 1:032x}-{number + 1:016x}-01"
    return f"content-length: 2\r\ntraceparent: {parent}\r\ntracestate: a={number:0{size}}"


async def test_clients_that_all_leave_at_one_time_cost_no_other_its_answer(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    async with herded(open_gate, tmp_path) as gate:
        async with AsyncExitStack() as herd:
            for number in range(CLIENTS):
                await herd.enter_async_context(client(gate, trace(number, 60)))
            await gate.eventually(lambda: gate.server.open_streams == CLIENTS, 30)
            gate.picks.delay = 1.0
            waiting = asyncio.gather(*(ask(gate) for _ in range(5)))
            await gate.eventually(lambda: gate.server.open_streams == CLIENTS + 5)
        assert await waiting == [200] * 5


async def test_clients_that_name_huge_traces_and_leave_cost_no_other_its_answer(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    async with herded(open_gate, tmp_path) as gate:
        for number in range(400):
            async with client(gate, trace(number, 2_500 if number % 2 else 50_000)):
                await asyncio.sleep(0)
        # what the worker takes of such headers is its own matter
        assert await ask(gate, trace(1, 50_000)) == 400
        assert len(gate.worker.headers) == 1


async def test_a_body_far_over_the_limit_is_told_so_though_the_gateway_sends_it_as_one_message(
    open_gate: OpenGate, tmp_path: Path
) -> None:
    pair = ("BUFFERED", "NONE")
    async with open_gate(tmp_path, [pair], max_body_bytes=1_000_000) as gate:

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 100_000

        async with gate.client.post(gate.url(pair), data=pieces()) as response:
            assert response.status == 413
        assert gate.server.http2.messages_too_large == 1
        assert gate.server.counts.refused_too_large == 1
        async with gate.client.post(gate.url(pair), data=b"{}") as response:
            assert response.status == 200
        assert gate.server.buffered_bytes == 0
