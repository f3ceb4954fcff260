"""TLS towards the gateway: renewed certificates, clients that must show one, and which names they may have."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest
from structlog.testing import capture_logs

from picker.serving.gateway import request_headers
from picker.serving.methods import CHECK, LOGS
from picker.serving.methods import PROCESS as METHOD
from picker.serving.seam import Picked
from picker.serving.server import Server
from picker.serving.wire.extproc_pb2 import ProcessingResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse
from picker.settings import ServingSettings
from tests.tools.certificates import Authority, Pair

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks, OpenEnvoy, OpenWorker, Picks

GATEWAY = "spiffe://cluster.local/ns/gateways/sa/gateway"
RELOAD = 0.1


class Secret:
    """A replica's mounted certificate, and the authorities around it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.client_ca = self.clients.write(directory)
        self.renew()

    def renew(self) -> Pair:
        """A new certificate in the files, not in one step: a look in between must do no harm."""
        pair = self.servers.pair("picker", dns=["localhost"])
        pair.write(self.directory)
        return pair

    def settings(self, **more: Any) -> ServingSettings:
        given = {
            "grpc_host": "127.0.0.1",
            "grpc_port": 0,
            "grpc_health_port": 0,
            "tls": "files",
            "tls_cert_file": self.directory / "tls.crt",
            "tls_key_file": self.directory / "tls.key",
            "tls_reload_seconds": RELOAD,
        }
        return ServingSettings(**{**given, **more})

    def mutual(self, **more: Any) -> ServingSettings:
        return self.settings(tls_client_ca_file=self.client_ca, **more)

    def credentials(self, pair: Pair | None = None) -> grpc.ChannelCredentials:
        if pair is None:
            return grpc.ssl_channel_credentials(self.servers.pem)
        return grpc.ssl_channel_credentials(self.servers.pem, pair.key, pair.chain)


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path)


@asynccontextmanager
async def serving(settings: ServingSettings, picks: Picks) -> AsyncIterator[Server]:
    server = Server(settings, picks, hold=lambda: "response")
    await server.start()
    server.set_ready(True)
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def picks(make_picks: MakePicks) -> Picks:
    return make_picks(lambda _: Picked("127.0.0.1:9", "booking"))


@asynccontextmanager
async def connected(server: Server, credentials: grpc.ChannelCredentials) -> AsyncIterator[grpc.aio.Channel]:
    """A connection of its own, not one that another channel to the same address has."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials, options) as channel:
        yield channel


async def pick(channel: grpc.aio.Channel) -> bool:
    method: Any = channel.stream_stream(METHOD, response_deserializer=ProcessingResponse.FromString)
    stream: Any = method(timeout=10)
    await stream.write(request_headers(end=True).SerializeToString())
    answer: ProcessingResponse = await stream.read()
    stream.cancel()
    return answer.HasField("request_headers")


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    code: grpc.StatusCode = error.value.code()
    return code


async def health(channel: grpc.aio.Channel) -> Any:
    ask: Any = channel.unary_unary(CHECK, response_deserializer=HealthCheckResponse.FromString)
    return (await ask(HealthCheckRequest(service="readiness").SerializeToString(), timeout=10)).status


async def serial(server: Server) -> int:
    """Serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return Pair(b"", ssl.DER_cert_to_PEM_cert(der).encode()).serial


async def eventually(true: Callable[[], Any], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


async def test_new_connections_get_the_renewed_certificate_and_old_ones_live_on(
    secret: Secret, picks: Picks
) -> None:
    first = Pair(b"", (secret.directory / "tls.crt").read_bytes()).serial
    async with serving(secret.settings(), picks) as server, connected(server, secret.credentials()) as old:
        assert await pick(old)
        assert await serial(server) == first
        renewed = secret.renew()
        await eventually(lambda: server.counts.tls_reloads == 1)
        assert await serial(server) == renewed.serial
        assert await pick(old)
        async with connected(server, secret.credentials()) as new:
            assert await pick(new)
        assert server.counts.tls_handshakes == 4


async def test_a_broken_pair_keeps_the_old_one_in_force(secret: Secret, picks: Picks) -> None:
    first = Pair(b"", (secret.directory / "tls.crt").read_bytes()).serial
    with capture_logs() as lines:
        async with serving(secret.settings(), picks) as server:
            (secret.directory / "tls.key").write_bytes(b"-----BEGIN PRIVATE KEY-----\nhalf")
            await eventually(lambda: server.counts.tls_reload_failures > 3)
            assert await serial(server) == first
            renewed = secret.renew()
            await eventually(lambda: server.counts.tls_reloads == 1)
            assert await serial(server) == renewed.serial
    assert len([line for line in lines if line["log_level"] == "error"]) == 1


async def test_read_once_means_once(secret: Secret, picks: Picks) -> None:
    first = Pair(b"", (secret.directory / "tls.crt").read_bytes()).serial
    async with serving(secret.settings(tls_reload_seconds=0), picks) as server:
        secret.renew()
        await asyncio.sleep(3 * RELOAD)
        assert await serial(server) == first


async def test_tls_before_1_2_is_refused(secret: Secret, picks: Picks) -> None:
    async with serving(secret.settings(), picks) as server:
        for version, good in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.set_alpn_protocols(["h2"])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = version
            connecting = asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            if good:
                (await connecting)[1].close()
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await connecting


async def test_clients_must_show_a_certificate_of_the_authorities(secret: Secret, picks: Picks) -> None:
    async with serving(secret.mutual(), picks) as server:
        async with connected(server, secret.credentials(secret.clients.pair("any"))) as good:
            assert await pick(good)
        for wrong in (None, Authority("clients").pair("stranger"), secret.servers.pair("picker")):
            async with connected(server, secret.credentials(wrong)) as bad:
                assert await code_of(pick(bad)) is grpc.StatusCode.UNAVAILABLE
                assert await code_of(health(bad)) is grpc.StatusCode.UNAVAILABLE
        assert server.counts.streams == 1
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.health_port}") as probe:
            assert await health(probe) == HealthCheckResponse.SERVING


async def test_renewed_authorities_judge_new_connections(secret: Secret, picks: Picks) -> None:
    before = secret.clients.pair("gateway")
    async with serving(secret.mutual(), picks) as server:
        async with connected(server, secret.credentials(before)) as old:
            assert await pick(old)
            secret.clients = Authority("successors")
            secret.clients.write(secret.directory)
            await eventually(lambda: server.counts.tls_reloads == 1)
            assert await pick(old)
        async with connected(server, secret.credentials(before)) as late:
            assert await code_of(pick(late)) is grpc.StatusCode.UNAVAILABLE
        async with connected(server, secret.credentials(secret.clients.pair("gateway"))) as new:
            assert await pick(new)


async def test_only_clients_of_an_allowed_name_may_ask(secret: Secret, picks: Picks) -> None:
    allowed = secret.mutual(tls_client_names=(GATEWAY, "gateway.example"))
    by_id, by_name = (
        secret.clients.pair("a", uris=[GATEWAY]),
        secret.clients.pair("b", dns=["gateway.example"]),
    )
    with capture_logs() as lines:
        async with serving(allowed, picks) as server:
            for pair in (by_id, by_name):
                async with connected(server, secret.credentials(pair)) as good:
                    assert await pick(good)
            # its common name vouches for nothing
            other = secret.clients.pair("gateway.example", uris=[f"{GATEWAY}-2"])
            async with connected(server, secret.credentials(other)) as bad:
                assert await code_of(pick(bad)) is grpc.StatusCode.PERMISSION_DENIED
                logs: Any = bad.stream_unary(LOGS)
                assert await code_of(logs(timeout=10)) is grpc.StatusCode.PERMISSION_DENIED
                assert await health(bad) == HealthCheckResponse.SERVING
            assert (server.counts.refused_identity, server.counts.streams, server.counts.log_streams) == (
                2,
                2,
                0,
            )
    told = [line for line in lines if "PICKER_TLS_CLIENT_NAMES" in line["event"]]
    assert [line["names"] for line in told] == [[f"{GATEWAY}-2"]] * 2, "once for each service"


class Gateway:
    """What an Envoy is told so that it shows a certificate and opens a new connection every few requests."""

    def __init__(self, secret: Secret, pair: Pair) -> None:
        certificate, key = pair.write(secret.directory, "gateway")
        self._context = {
            "alpn_protocols": ["h2"],
            "tls_certificates": [
                {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
            ],
            "validation_context": {
                "trusted_ca": {"inline_string": secret.servers.pem.decode()},
                "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "localhost"}}],
            },
        }

    def change(self, config: dict[str, Any]) -> None:
        for cluster in config["static_resources"]["clusters"]:
            if "transport_socket" in cluster:
                cluster["transport_socket"]["typed_config"]["common_tls_context"] = self._context
                (options,) = cluster["typed_extension_protocol_options"].values()
                options["common_http_protocol_options"] = {"max_requests_per_connection": 10}


@pytest.mark.parametrize("names", [(), (GATEWAY,)])
async def test_a_certificate_renewed_under_load_costs_no_request(
    secret: Secret,
    make_picks: MakePicks,
    open_worker: OpenWorker,
    open_envoy: OpenEnvoy,
    tmp_path: Path,
    names: Any,
) -> None:
    gateway = Gateway(secret, secret.clients.pair("gateway", uris=[GATEWAY]))
    picked = 0

    def choose(_: Any) -> Picked:
        nonlocal picked
        picked += 1
        return Picked(worker.address, f"booking-{picked}")

    async with (
        open_worker() as worker,
        serving(secret.mutual(tls_client_names=names), make_picks(choose)) as server,
        open_envoy(
            tmp_path,
            [f"127.0.0.1:{server.port}"],
            [("FULL_DUPLEX_STREAMED", "NONE")],
            tls=True,
            change=gateway.change,
        ) as urls,
        aiohttp.ClientSession() as client,
    ):
        (url,) = urls.values()
        ended = asyncio.Event()
        statuses: list[int] = []

        async def ask() -> None:
            while not ended.is_set():
                async with client.post(f"{url}/v1/completions", data=b"{}") as response:
                    statuses.append(response.status)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())
            for renewal in range(1, 4):
                secret.renew()
                await eventually(lambda number=renewal: server.counts.tls_reloads == number)  # type: ignore[misc]
                seen, shaken = len(statuses), server.counts.tls_handshakes
                await eventually(lambda since=seen: len(statuses) > since + 60)  # type: ignore[misc]
                assert server.counts.tls_handshakes > shaken, "Envoy connects again and again"
            ended.set()
        assert set(statuses) == {200}
        await eventually(lambda: server.counts.log_ends > 0)
        assert server.counts.refused_identity == 0


async def test_an_envoy_of_another_name_gets_no_request_through(
    secret: Secret, picks: Picks, open_envoy: OpenEnvoy, tmp_path: Path
) -> None:
    gateway = Gateway(secret, secret.clients.pair("gateway", uris=[f"{GATEWAY}-2"]))
    async with (
        serving(secret.mutual(tls_client_names=(GATEWAY,)), picks) as server,
        open_envoy(
            tmp_path,
            [f"127.0.0.1:{server.port}"],
            [("FULL_DUPLEX_STREAMED", "NONE")],
            tls=True,
            change=gateway.change,
        ) as urls,
        aiohttp.ClientSession() as client,
    ):
        (url,) = urls.values()
        async with client.post(f"{url}/v1/completions", data=b"{}") as response:
            assert response.status == 500
        assert picks.requests == []
        assert server.counts.refused_identity > 0
