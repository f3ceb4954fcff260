"""What the conformance suite of Gateway API Inference Extension asserts of gateways, on the real Envoy and our picker.

The suite needs a cluster; here pods are addresses of loopback. Its cases that only look at what a gateway writes into
the status of its objects (accepted, references resolved, a missing picker reference, ports) have no part of ours.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from picker.serving.conformance import SELECTION_HEADER, SERVED_HEADER
from picker.sim.envoy import PICKERS, Listener, envoy_config
from picker.sim.processes import free_ports
from tests.serving.conformance.gateway import (
    SERVED_BY,
    Pool,
    clusters_of,
    eventually,
    manager_of,
    running_envoy,
    running_pool,
    to_pool,
    workers_cluster,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLAIN = ["127.0.1.1", "127.0.1.2", "127.0.1.3"]
PARALLEL = [host for host in ("127.0.2.1", "127.0.2.2", "127.0.2.3") for _ in range(8)]
OTHER = ["127.0.3.1", "127.0.3.2"]
WEIGHTS = (70, 30)
BODY = {"model": "m", "prompt": "p"}


@dataclass
class Site:
    """One gateway with several listeners, before several pools."""

    pools: dict[str, Pool]
    urls: dict[str, str]
    client: aiohttp.ClientSession

    async def ask(
        self,
        name: str,
        selection: str = "",
        *,
        method: str = "POST",
        path: str = "/v1/completions",
        **headers: str,
    ) -> tuple[int, str, str]:
        """Status, the worker that answered by its own word, and the endpoint that served by the picker's."""
        if selection:
            headers[SELECTION_HEADER] = selection
        body = BODY if method == "POST" else None
        async with self.client.request(
            method, self.urls[name] + path, json=body, headers=headers
        ) as response:
            await response.read()
            told = response.headers
            return response.status, told.get(SERVED_BY, ""), told.get(SERVED_HEADER, "")

    async def ask_many(self, name: str, selection: str, count: int = 100) -> list[tuple[int, str, str]]:
        """So many requests, ten at a time."""
        turn = asyncio.Semaphore(10)

        async def one() -> tuple[int, str, str]:
            async with turn:
                return await self.ask(name, selection)

        return await asyncio.gather(*(one() for _ in range(count)))


def site_config(
    pools: dict[str, Pool], ports: dict[str, int], admin: int, h2c: dict[str, int]
) -> dict[str, Any]:
    """Listeners that each show one shape of routes; ``h2c`` are ports that speak cleartext HTTP/2 before workers."""
    plain, other, parallel, second = (pools[name] for name in ("plain", "other", "parallel", "second"))
    shapes: dict[str, list[dict[str, Any]]] = {
        "plain": [host(["*"], route("/", plain))],
        "parallel": [host(["*"], route("/", parallel))],
        "weighted": [host(["*"], weighted([(plain, WEIGHTS[0]), (other, WEIGHTS[1])]))],
        "rules": [
            host(["primary.example.com"], route("/primary", plain), route("/secondary", other)),
            host(["*"], route("/", other)),
        ],
        "second": [host(["*"], route("/", second))],
        "h2c": [host(["*"], route("/", plain, "plain-h2c"))],
    }
    listeners = [Listener(name, ports[name], follows_list=True) for name in shapes]
    config = envoy_config(listeners, ["127.0.0.1:1"], admin, workers=plain.addresses, access_log=False)
    for number, hosts in enumerate(shapes.values()):
        manager_of(config, number)["route_config"] = {"virtual_hosts": hosts}
    resources = config["static_resources"]
    resources["clusters"] = [cluster for pool in pools.values() for cluster in clusters_of(pool)]
    add_h2c(resources, plain, h2c)
    return config


def add_h2c(resources: dict[str, Any], pool: Pool, ports: dict[str, int]) -> None:
    """A cluster that speaks HTTP/2 without TLS, and listeners that speak nothing else before the pool's workers."""
    (template,) = [one for one in clusters_of(pool) if one["name"] == workers_cluster(pool)]
    template["name"] = template["load_assignment"]["cluster_name"] = "plain-h2c"
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    template["typed_extension_protocol_options"] = {
        options: {
            "@type": f"type.googleapis.com/{options}",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    lines = [{"endpoint": {"address": at(host_, port)}} for host_, port in ports.items()]
    template["load_assignment"]["endpoints"] = [{"lb_endpoints": lines}]
    resources["clusters"].append(template)
    for worker in pool.workers:
        host_ = worker.address.partition(":")[0]
        name = f"h2c-{host_}"
        listener = envoy_config(
            [Listener(name, ports[host_], ext_proc=False)], [], 1, workers=[worker.address]
        )
        (made,), (cluster,) = (listener["static_resources"][key] for key in ("listeners", "clusters"))
        cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
        manager = made["filter_chains"][0]["filters"][0]["typed_config"]
        manager["codec_type"] = "HTTP2"
        manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["cluster"] = name
        made["address"] = at(host_, ports[host_])
        resources["clusters"].append(cluster)
        resources["listeners"].append(made)


def at(host_: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host_, "port_value": port}}


def host(domains: list[str], *routes: dict[str, Any]) -> dict[str, Any]:
    return {"name": domains[0], "domains": domains, "routes": list(routes)}


def route(prefix: str, pool: Pool, cluster: str = "") -> dict[str, Any]:
    action = {"cluster": cluster or workers_cluster(pool), "timeout": "0s"}
    return {"match": {"prefix": prefix}, "route": action, **to_pool(pool)}


def weighted(shares: list[tuple[Pool, int]]) -> dict[str, Any]:
    clusters = [{"name": workers_cluster(pool), "weight": share, **to_pool(pool)} for pool, share in shares]
    return {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": clusters}, "timeout": "0s"}}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _site(tmp_path_factory: pytest.TempPathFactory, transport: str) -> AsyncIterator[Site]:
    hosts = {"plain": PLAIN, "other": OTHER, "parallel": PARALLEL, "second": ["127.0.4.1"]}
    names = ["plain", "parallel", "weighted", "rules", "second", "h2c"]
    admin, *numbers = free_ports(1 + len(names) + len(PLAIN))
    ports = dict(zip(names, numbers, strict=False))
    async with AsyncExitStack() as stack:
        pools = {name: await stack.enter_async_context(running_pool(name, hosts[name])) for name in hosts}
        h2c = dict(zip(PLAIN, numbers[len(names) :], strict=True))
        # the same picker names these as well: a pool whose workers listen twice
        config = site_config(pools, ports, admin, h2c)
        directory: Path = tmp_path_factory.mktemp("site")
        await stack.enter_async_context(
            running_envoy(directory, config, pickers=[f"{name}-{PICKERS}" for name in pools])
        )
        client = await stack.enter_async_context(aiohttp.ClientSession())
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        for host_, port in h2c.items():
            pools["plain"].world.workers.names.append(f"{host_}:{port}")
            pools["plain"].world.index.add(f"{host_}:{port}")
        yield Site(pools, urls, client)


@pytest_asyncio.fixture(loop_scope="session")
async def site(_site: Site) -> Site:
    for pool in _site.pools.values():
        await eventually(lambda pool=pool: pool.server.open_streams == 0)
        pool.forget()
    return _site


def pods(addresses: list[str]) -> set[str]:
    return {address.partition(":")[0] for address in addresses}


@pytest.mark.parametrize("selected", [[0], [1], [2], [0, 1], [0, 1, 2]], ids=str)
async def test_a_gateway_follows_the_choice_among_the_selected_pods(site: Site, selected: list[int]) -> None:
    wanted = [site.pools["plain"].addresses[index] for index in selected]
    answers = await site.ask_many("plain", ",".join(wanted))
    assert {status for status, _, _ in answers} == {200}
    assert {worker for _, worker, _ in answers} == set(wanted)


async def test_a_pod_is_selected_by_its_address_without_a_port(site: Site) -> None:
    answers = await site.ask_many("second", "127.0.4.1", 10)
    assert {worker for _, worker, _ in answers} == set(site.pools["second"].addresses)


async def test_with_data_parallelism_a_pods_address_means_any_of_its_ports(site: Site) -> None:
    answers = await site.ask_many("parallel", "127.0.2.2")
    assert {status for status, _, _ in answers} == {200}
    assert pods([worker for _, worker, _ in answers]) == {"127.0.2.2"}
    assert len({worker for _, worker, _ in answers}) > 1


async def test_with_data_parallelism_an_address_with_a_port_means_that_rank_alone(site: Site) -> None:
    ranks = site.pools["parallel"].addresses
    mixed = f"{ranks[3]}, 127.0.2.3"
    answers = await site.ask_many("parallel", ranks[9])
    assert {worker for _, worker, _ in answers} == {ranks[9]}
    answers = await site.ask_many("parallel", mixed)
    assert {worker for _, worker, _ in answers} <= {ranks[3], *ranks[16:]}


async def test_weights_split_requests_between_two_pools_and_each_picker_keeps_to_its_own(site: Site) -> None:
    first, second = site.pools["plain"], site.pools["other"]
    union = ",".join([*first.addresses[:3], *second.addresses])
    count = 200
    answers = await site.ask_many("weighted", union, count)
    assert {status for status, _, _ in answers} == {200}
    share = Counter(worker in first.addresses for _, worker, _ in answers)[True] / count
    wanted = WEIGHTS[0] / sum(WEIGHTS)
    assert abs(share - wanted) <= max(0.1, 4.5 * math.sqrt(wanted * (1 - wanted) / count))
    assert all(worker in (*first.addresses, *second.addresses) for _, worker, _ in answers)


async def test_the_endpoint_that_served_is_told_in_the_response(site: Site) -> None:
    for address in site.pools["plain"].addresses[:3]:
        assert await site.ask("plain", address) == (200, address, address)


async def test_workers_that_speak_cleartext_http2_are_served_like_others(site: Site) -> None:
    http2 = site.pools["plain"].world.workers.names[len(PLAIN) :]
    for address in http2:
        status, worker, served = await site.ask("h2c", address)
        assert (status, served) == (200, address)
        assert pods([worker]) == pods([address])


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("name", "domain", "path", "pool"),
    [
        ("plain", "any.example.com", "/v1/models", "plain"),
        ("second", "any.example.com", "/v1/models", "second"),
        ("rules", "primary.example.com", "/primary/v1/models", "plain"),
        ("rules", "primary.example.com", "/secondary/v1/models", "other"),
        ("rules", "elsewhere.example.com", "/primary/v1/models", "other"),
    ],
)
async def test_each_gateway_host_and_path_asks_the_picker_of_its_own_pool(
    site: Site, method: str, name: str, domain: str, path: str, pool: str
) -> None:
    wanted = site.pools[pool].addresses[0]
    status, worker, served = await site.ask(name, wanted, method=method, path=path, host=domain)
    assert (status, worker, served) == (200, wanted, wanted)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_selection_outside_the_pool_is_refused(site: Site, method: str) -> None:
    elsewhere = site.pools["other"].addresses[0]
    assert (await site.ask("plain", elsewhere, method=method))[0] == 503
    assert (await site.ask("plain", ",", method=method))[0] == 503
    assert site.pools["other"].answered() == site.pools["plain"].answered() == []


async def test_a_picker_that_is_gone_is_done_without_where_the_pool_fails_open(tmp_path: Path) -> None:
    async with running_pool("open", PLAIN) as pool, aiohttp.ClientSession() as client:
        admin, port = free_ports(2)
        config = envoy_config(
            [Listener("open", port, follows_list=True)], [f"127.0.0.1:{pool.server.port}"], admin,
            workers=pool.addresses, failure_mode_allow=True,
        )  # fmt: skip
        async with running_envoy(tmp_path, config):
            site = Site({"open": pool}, {"open": f"http://127.0.0.1:{port}"}, client)
            pinned = pool.addresses[1]
            assert await site.ask("open", pinned) == (200, pinned, pinned)
            await pool.server.stop()
            async with asyncio.timeout(10):
                # the first requests may meet a stream that had begun
                while any([(await site.ask("open", pinned))[0] != 200 for _ in range(10)]):
                    pass
            answers = [await site.ask("open", pinned, method=how) for how in ("GET", "POST") * 10]
            assert {status for status, _, _ in answers} == {200}
            assert {worker for _, worker, _ in answers} == set(pool.addresses)
