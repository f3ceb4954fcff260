"""The destination list, walked by the real Envoy: the next endpoint serves, and the booking goes with the request."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from picker.core.load import Load
from picker.serving.server import Server
from picker.settings import ServingSettings
from picker.sim.envoy import Listener, envoy_config
from picker.sim.processes import free_ports
from stateplane.booking import Booking, State
from tests.serving.conformance.gateway import (
    Worker,
    eventually,
    ext_proc_of,
    running_envoy,
    running_workers,
)
from tests.unit.picking.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODES: list[Any] = ["FULL_DUPLEX_STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", "NONE"]
WAYS = {
    "metadata": ("served metadata alone", True, False),
    "attributes": ("response attributes alone", False, True),
    "log": ("the access log alone", False, False),
}
"""Name of a listener -> what tells who served; whether metadata is shown; whether attributes are."""


@dataclass
class Walk:
    """A gateway that walks the list, three workers and one dead address, and a picker that names all of them."""

    world: World
    server: Server
    workers: list[Worker]
    dead: str
    urls: dict[str, str]
    client: aiohttp.ClientSession
    hold: str = "response"

    def order(self, *addresses: str) -> None:
        """Let the picker name these, in this order."""
        self.world.workers.names[:] = addresses
        self.world.workers.loads = {
            address: Load(0, 1_000_000 * at, 0) for at, address in enumerate(addresses)
        }

    def bookings(self) -> dict[str, Booking]:
        return dict(self.world.desk.view.bookings())

    async def post(self, name: str, body: bytes = b'{"model":"m","prompt":"p"}', **headers: str) -> Any:
        async with self.client.post(
            self.urls[name] + "/v1/completions", data=io.BytesIO(body), headers=headers
        ) as response:
            return response.status, await response.text()


def walking(names: list[str], ports: list[int], pickers: list[str], admin: int, workers: list[str]) -> Any:
    """The configuration: one listener per mode, and one per way to tell who served."""
    listeners = [
        Listener(
            name, port, follows_list=True, retries=2, attributes=WAYS.get(name, ("", True, True))[2],
            request_body_mode="FULL_DUPLEX_STREAMED" if name in WAYS else name,  # type: ignore[arg-type]
        )
        for name, port in zip(names, ports, strict=True)
    ]  # fmt: skip
    config = envoy_config(listeners, pickers, admin, workers=workers)
    for number, name in enumerate(names):
        if name in WAYS and not WAYS[name][1]:
            del ext_proc_of(config, number)["metadata_options"]["forwarding_namespaces"]
    return config


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _walk(tmp_path_factory: pytest.TempPathFactory, transport: str) -> AsyncIterator[Walk]:
    world = World(fallbacks=2)
    names = [*MODES, *WAYS]
    admin, dead, *ports = free_ports(len(names) + 2)
    dead_address = f"127.0.0.1:{dead}"
    serving = ServingSettings(grpc_host="127.0.0.1", grpc_port=0, grpc_health_port=0)
    async with running_workers(3) as workers, aiohttp.ClientSession() as client:
        addresses = [dead_address, *(worker.address for worker in workers)]
        for address in addresses:
            world.index.add(address)
        urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        walk = Walk(world, None, workers, dead_address, urls, client)  # type: ignore[arg-type]
        walk.server = Server(serving, world.picking, hold=lambda: walk.hold)  # type: ignore[arg-type, return-value]
        await walk.server.start()
        walk.server.set_ready(True)
        config = walking(names, ports, [f"127.0.0.1:{walk.server.port}"], admin, addresses)
        try:
            async with running_envoy(Path(tmp_path_factory.mktemp("walk")), config):
                yield walk
        finally:
            await walk.server.stop()
            world.close()


@pytest_asyncio.fixture(loop_scope="session")
async def walk(_walk: Walk) -> Walk:
    """As if no test had been there before."""
    await eventually(lambda: _walk.server.open_streams == 0)
    _walk.hold = "response"
    for worker in _walk.workers:
        worker.fault = ""
        worker.bodies.clear()
        worker.headers.clear()
    return _walk


def prompt(size: int) -> bytes:
    """A body that says something, of about that size."""
    return b'{"model":"m","prompt":"%s"}' % os.urandom(size // 2).hex().encode()


def told(text: str) -> Any:
    return json.loads(text)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("size", [100, 200_000])
async def test_the_second_endpoint_gets_the_same_body_when_the_first_is_dead(
    walk: Walk, name: str, size: int
) -> None:
    second, third, _ = walk.workers
    walk.order(walk.dead, second.address, third.address)
    body = prompt(size)
    status, text = await walk.post(name, body)
    assert (status, told(text)["worker"]) == (200, second.address)
    assert told(text)["destination"] == ",".join((walk.dead, second.address, third.address))
    assert [hashlib.sha256(one).digest() for one in second.bodies] == [hashlib.sha256(body).digest()]
    assert third.bodies == []


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("fault", ["reset", "503"])
async def test_the_body_goes_once_to_each_endpoint_when_the_first_fails_after_it_had_it(
    walk: Walk, name: str, fault: str
) -> None:
    first, second, third = walk.workers
    first.fault = fault
    walk.order(first.address, second.address, third.address)
    body = prompt(200_000)
    status, text = await walk.post(name, body)
    assert (status, told(text)["worker"]) == (200, second.address)
    assert first.bodies == second.bodies == [body]
    assert third.bodies == []


async def test_the_third_endpoint_serves_when_the_first_two_are_dead_or_fail(walk: Walk) -> None:
    failing, third, _ = walk.workers
    failing.fault = "503"
    walk.order(walk.dead, failing.address, third.address)
    status, text = await walk.post("attributes")
    assert (status, told(text)["worker"]) == (200, third.address)


async def test_when_none_serves_the_client_is_told_so_and_nothing_stays_booked(walk: Walk) -> None:
    for worker in walk.workers:
        worker.fault = "503"
    walk.order(*(worker.address for worker in walk.workers))
    before = walk.bookings().keys()
    status, _ = await walk.post("attributes")
    assert status == 503
    await eventually(lambda: walk.server.open_streams == 0)
    left = [booking for id_, booking in walk.bookings().items() if id_ not in before]
    assert [booking for booking in left if booking.state is State.ACTIVE] == []


def moved(walk: Walk, before: Container[str], first: str, second: str) -> bool:
    """Whether the one new booking is on the second worker, and what it left on the first one drains."""
    fresh = {id_: one for id_, one in walk.bookings().items() if id_ not in before}
    active = [one for one in fresh.values() if one.state is State.ACTIVE]
    left = [one for one in fresh.values() if one.state is State.DRAINING]
    return [one.worker for one in active] == [second] and [
        (one.id, one.worker, one.superseded) for one in left
    ] == [(f"{active[0].id}~1", first, True)]


@pytest.mark.parametrize("name", list(WAYS))
async def test_the_booking_moves_to_the_endpoint_that_serves_told_by(walk: Walk, name: str) -> None:
    """Told by served metadata alone, by response attributes alone, by the access log alone with streams let go."""
    second = walk.workers[0].address
    walk.order(walk.dead, second)
    walk.hold, pieces = ("headers", 35) if name == "log" else ("response", 10)
    before, counts = set(walk.bookings()), walk.world.underway.counts
    moves, unknown = counts.moved_to_served, counts.served_unknown_worker
    post = walk.client.post(
        walk.urls[name] + "/v1/completions",
        json={"model": "m", "prompt": "p"},
        headers={"x-test-answer": f"stream:{pieces}"},
    )
    async with post as response:
        await eventually(lambda: moved(walk, before, walk.dead, second), seconds=pieces * 0.1 - 0.1)
        assert walk.server.open_streams == (0 if name == "log" else 1)
        assert (await response.text()).count("data:") == pieces
    await eventually(
        lambda: all(
            walk.bookings()[one].state is not State.ACTIVE for one in walk.bookings() if one not in before
        )
    )
    assert counts.moved_to_served == moves + 1
    assert counts.served_unknown_worker == unknown


async def test_the_log_names_the_endpoint_that_served_a_short_request_too(walk: Walk) -> None:
    """Its one entry is the last one: the booking ends, and what may still run on the first worker drains there."""
    second = walk.workers[0].address
    walk.order(walk.dead, second)
    walk.hold = "headers"
    before = set(walk.bookings())
    status, _ = await walk.post("log")
    assert status == 200

    def drained() -> bool:
        left = [one for id_, one in walk.bookings().items() if id_ not in before]
        return [(one.worker, one.state, one.superseded) for one in left] == [
            (walk.dead, State.DRAINING, True)
        ]

    await eventually(drained)


@pytest.mark.parametrize("name", ["metadata", "attributes"])
async def test_a_request_that_the_first_endpoint_serves_moves_nothing(walk: Walk, name: str) -> None:
    first = walk.workers[0].address
    walk.order(first, walk.workers[1].address)
    before, counts = set(walk.bookings()), walk.world.underway.counts
    moves = counts.moved_to_served
    assert (await walk.post(name))[0] == 200
    await eventually(lambda: not set(walk.bookings()) - before)
    assert counts.moved_to_served == moves
