"""The life of one replica: dependencies that are away, readiness, the order of SIGTERM. A real `picker serve`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from picker.serving.wire.extproc_pb2 import (
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
)
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse
from picker.sim import programs
from picker.sim.processes import Children, free_ports

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
SERVING = HealthCheckResponse.SERVING
WORKER = "127.0.0.1:9"


@dataclass
class Serve:
    """A running `picker serve`, and how to speak to it."""

    process: asyncio.subprocess.Process
    grpc: str
    health: str
    admin: str
    http: aiohttp.ClientSession
    log: Path

    async def get(self, page: str) -> tuple[int, Any]:
        async with self.http.get(f"http://{self.admin}{page}") as answer:
            return answer.status, json.loads(await answer.read())

    async def ready(self) -> bool:
        try:
            return (await self.get("/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False

    async def check(self, service: str, *, port: str = "") -> int:
        async with grpc.aio.insecure_channel(port or self.health) as channel:
            call = channel.unary_unary(
                CHECK,
                request_serializer=HealthCheckRequest.SerializeToString,
                response_deserializer=HealthCheckResponse.FromString,
            )
            return int((await call(HealthCheckRequest(service=service), timeout=5)).status)

    def pick(self, channel: Any) -> Any:
        call = channel.stream_stream(
            PROCESS,
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )
        return call()

    async def picks(self) -> str:
        """One header-only request, and where it was sent."""
        async with grpc.aio.insecure_channel(self.grpc) as channel:
            stream = self.pick(channel)
            await stream.write(header_only())
            answer = await asyncio.wait_for(stream.read(), 5)
            await stream.done_writing()
            return destination(answer)


def header_only() -> ProcessingRequest:
    request = ProcessingRequest(
        request_headers=HttpHeaders(end_of_stream=True), protocol_config=ProtocolConfiguration()
    )
    for key, value in ((":path", "/v1/models"), (":method", "GET")):
        request.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    return request


def destination(answer: ProcessingResponse) -> str:
    for option in answer.request_headers.response.header_mutation.set_headers:
        if option.header.key == "x-gateway-destination-endpoint":
            return option.header.raw_value.decode()
    return str(answer)


async def until(look: Any, *, seconds: float = 20, what: str = "") -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not await look():
        assert asyncio.get_running_loop().time() < end, f"never: {what}"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def serve(folder: Path, **environment: str) -> AsyncIterator[Serve]:
    main, health, admin = free_ports(3)
    workers, log = folder / "workers.txt", folder / "serve.log"
    workers.write_text(f"{WORKER}\n")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PICKER_")}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "picker", "serve",
            stdout=out, stderr=out,
            env=plain | {
                "PICKER_GRPC_HOST": "127.0.0.1", "PICKER_GRPC_PORT": str(main),
                "PICKER_GRPC_HEALTH_PORT": str(health), "PICKER_METRICS_PORT": str(admin),
                "PICKER_ADMIN_HOST": "127.0.0.1", "PICKER_WORKERS_FILE": str(workers),
                "PICKER_DRAIN_MIN_SECONDS": "1", "PICKER_DRAIN_MAX_SECONDS": "3", "PICKER_WARMUP_SECONDS": "20",
                "PICKER_LOG_FORMAT": "text",
            } | environment,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            yield Serve(process, f"127.0.0.1:{main}", f"127.0.0.1:{health}", f"127.0.0.1:{admin}", http, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_sigterm_unreadies_at_once_serves_on_and_ends_with_0(tmp_path: Path) -> None:
    async with serve(tmp_path) as it:
        await until(it.ready, what="ready")
        assert await it.check("readiness") == SERVING
        assert await it.check("envoy.service.ext_proc.v3.ExternalProcessor", port=it.grpc) == SERVING
        it.process.send_signal(signal.SIGTERM)

        async def unready() -> bool:
            return (await it.get("/readyz"))[0] == 503

        await until(unready, seconds=1, what="unready")
        assert await it.check("readiness") != SERVING
        assert await it.check("liveness") == SERVING
        assert await it.picks() == WORKER, "gateways send on until they have noticed"
        assert await asyncio.wait_for(it.process.wait(), 10) == 0
    assert "Traceback" not in it.log.read_text()


async def test_a_stream_still_open_at_the_drain_maximum_is_closed_with_ok(tmp_path: Path) -> None:
    async with serve(tmp_path, PICKER_STREAM_HOLD="response") as it:
        await until(it.ready, what="ready")
        async with grpc.aio.insecure_channel(it.grpc) as channel:
            stream = it.pick(channel)
            await stream.write(header_only())
            assert destination(await stream.read()) == WORKER
            begun = asyncio.get_running_loop().time()
            it.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK
            assert asyncio.get_running_loop().time() - begun > 2, "it is waited for until the maximum"
        assert await asyncio.wait_for(it.process.wait(), 10) == 0


async def test_dependencies_away_at_the_start_make_it_late_and_degraded_but_it_serves(tmp_path: Path) -> None:
    plane, nats = free_ports(2)
    away = {
        "PICKER_PLANE_URL": f"redis://127.0.0.1:{plane}",
        "PICKER_NATS_URL": f"nats://127.0.0.1:{nats}",
        "PICKER_WARMUP_SECONDS": "2",
    }
    async with serve(tmp_path, **away) as it, Children(tmp_path, say=lambda _line: None) as children:
        await until(it.ready, what="ready although everything is away")
        _, ready = await it.get("/readyz")
        assert ready["ready_before_warm"]
        told = " ".join(ready["degraded"])
        assert "plane" in told
        assert "events" in told
        _, status = await it.get("/status.json")
        assert status["plane"]["state"] == "away"
        assert status["events"]["state"] == "away"
        assert await it.picks() == WORKER

        await children.start(programs.valkey(f"127.0.0.1:{plane}", tmp_path))
        await children.start(programs.nats(f"127.0.0.1:{nats}", tmp_path))

        async def well() -> bool:
            _, now = await it.get("/status.json")
            return bool(
                now["plane"]["state"] == "healthy"
                and now["plane"]["joined"]
                and now["events"]["state"] == "healthy"
            )

        await until(well, what="both are back")
        assert "Traceback" not in it.log.read_text()


async def test_a_password_is_never_in_the_log(tmp_path: Path) -> None:
    [plane] = free_ports(1)
    away = {"PICKER_PLANE_URL": f"redis://user:hunter2@127.0.0.1:{plane}", "PICKER_WARMUP_SECONDS": "1"}
    async with serve(tmp_path, PICKER_LOG_LEVEL="debug", **away) as it:
        await until(it.ready, what="ready")
        for page in ("/status.json", "/readyz", "/bookings.json"):
            assert "hunter2" not in str(await it.get(page))
    assert "hunter2" not in it.log.read_text()


async def test_the_log_level_changes_while_it_runs(tmp_path: Path) -> None:
    async with serve(tmp_path) as it:
        await until(it.ready, what="ready")
        async with it.http.post(f"http://{it.admin}/loglevel", json={"level": "error"}) as answer:
            assert answer.status == 200
        before = it.log.read_text()
        it.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(it.process.wait(), 10) == 0
        assert "stopping" not in it.log.read_text().removeprefix(before)


async def test_workers_come_and_go_with_the_file(tmp_path: Path) -> None:
    async with serve(tmp_path) as it:
        await until(it.ready, what="ready")
        (tmp_path / "workers.txt").write_text("127.0.0.1:7\n127.0.0.1:8\n")

        async def changed() -> bool:
            _, status = await it.get("/status.json")
            return [worker["name"] for worker in status["workers"]] == ["127.0.0.1:7", "127.0.0.1:8"]

        await until(changed, what="the new workers")
        assert await it.picks() in {"127.0.0.1:7", "127.0.0.1:8"}


async def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    async with serve(tmp_path) as first:
        await until(first.ready, what="ready")
        other = tmp_path / "other"
        other.mkdir()
        async with serve(other, PICKER_GRPC_PORT=first.grpc.rpartition(":")[2]) as second:
            assert await asyncio.wait_for(second.process.wait(), 20) != 0
        assert "PICKER_GRPC_PORT" in second.log.read_text()
        assert "Traceback" not in second.log.read_text()


async def test_impossible_modes_do_not_start_and_say_why(tmp_path: Path) -> None:
    for environment, word in (
        ({"PICKER_PLANE_URL": "mongodb://x"}, "PICKER_PLANE_URL"),
        ({"PICKER_SYNC": "eventual", "PICKER_PEERS": "a:1"}, "memory plane"),
        ({"PICKER_WORKERS_FILE": ""}, "PICKER_WORKERS_FILE"),
        ({"PICKER_TOKENIZERS": "nonsense"}, "PICKER_TOKENIZERS"),
    ):
        async with serve(tmp_path, **environment) as it:
            assert await asyncio.wait_for(it.process.wait(), 20) == 2, it.log.read_text()
        assert word in it.log.read_text()
        assert "Traceback" not in it.log.read_text()
