"""Whether replicas agree: equal only when ids, workers and amounts are, and at one moment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from picker.sim.agreement import Observer, differences, read_bookings, untruths
from picker.sim.programs import Replica, Worker


def row(
    id_: str, worker: str = "w:1", prefill: int = 0, blocks: int = 3, state: str = "active"
) -> dict[str, Any]:
    amount = {"prefill_tokens": prefill, "blocks": blocks, "requests": 1}
    return {"id": id_, "worker": worker, "state": state, **amount}


def page(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"version": {"epoch": 1, "number": 7}, "bookings": list(rows)}


def test_pages_in_another_order_agree() -> None:
    one, two = page(row("a"), row("b")), page(row("b"), row("a"))
    assert differences({"one": read_bookings(one), "two": read_bookings(two)}) == []


OTHERS = [
    page(),
    page(row("a", worker="w:2")),
    page(row("a", prefill=1)),
    page(row("a", blocks=4)),
    page(row("a", state="draining")),
]


@pytest.mark.parametrize("other", OTHERS)
def test_a_missing_booking_another_worker_or_amount_is_a_difference_that_names_it(
    other: dict[str, Any],
) -> None:
    (line,) = differences({"one": read_bookings(page(row("a"))), "two": read_bookings(other)})
    assert line.startswith("a: one says active on w:1")


def test_untruths_name_the_request_and_both_sides() -> None:
    shown = read_bookings(page(row("a"), row("b"), row("d")))
    lines = untruths("one", shown, {"b": "w:2", "c": "w:2", "d": "w:1"})
    assert lines == [
        "one books a on w:1, which carries it no more",
        "w:2 carries b, which one books on w:1",
        "w:2 carries c, which one does not know",
    ]


def test_a_draining_booking_that_no_engine_carries_is_a_leftover_not_an_untruth() -> None:
    shown = read_bookings(page(row("a", state="draining"), row("b", state="draining"), row("c")))
    carried = {"b": "w:1", "c": "w:1"}
    assert untruths("one", shown, carried) == []


class Stage:
    """Two replicas and an engine that show what a test tells them to."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, Any]] = {"one": page(), "two": page()}
        self.load: dict[str, Any] = {"requests": []}
        self.address = ""

    async def bookings(self, request: web.Request) -> web.Response:
        return web.json_response(self.pages[request.match_info["name"]])

    async def debug_load(self, _request: web.Request) -> web.Response:
        return web.json_response(self.load)

    @property
    def replicas(self) -> list[Replica]:
        return [Replica(name, "", "", f"{self.address}/{name}") for name in self.pages]

    @property
    def worker(self) -> Worker:
        return Worker("engine-0", self.address, "", "", "", "")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    app = web.Application()
    app.router.add_get("/{name}/bookings.json", stage.bookings)
    app.router.add_get("/debug/load", stage.debug_load)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    stage.address = f"{host}:{port}"
    yield stage
    await runner.cleanup()


@pytest.fixture
async def observer() -> AsyncIterator[Observer]:
    async with aiohttp.ClientSession() as session:
        yield Observer(session)


async def test_views_that_meet_in_time_agree_and_say_how_many_they_hold(
    stage: Stage, observer: Observer
) -> None:
    stage.pages["one"] = page(row("a"))
    watching = asyncio.create_task(observer.agree(stage.replicas, within=5))
    await asyncio.sleep(0.2)
    assert not watching.done()
    stage.pages["two"] = page(row("a"))
    agreement = await watching
    assert agreement.agreed
    assert agreement.bookings == 1


async def test_views_that_do_not_meet_disagree_and_say_where(stage: Stage, observer: Observer) -> None:
    stage.pages["one"] = page(row("a"))
    agreement = await observer.agree(stage.replicas, within=0.2)
    assert not agreement.agreed
    assert agreement.differences == (
        "a: one says active on w:1, 0 prefill tokens, 3 blocks, 1 requests, two does not know it",
    )


async def test_a_replica_that_does_not_answer_is_a_disagreement(stage: Stage, observer: Observer) -> None:
    gone = Replica("gone", "", "", f"{stage.address}/nobody")
    assert not (await observer.agree([*stage.replicas, gone], within=0.1)).agreed


async def test_truth_is_what_the_engines_carry(stage: Stage, observer: Observer) -> None:
    stage.pages = {name: page(row("a", worker=stage.address)) for name in stage.pages}
    assert not (await observer.truth(stage.replicas, [stage.worker], within=0.1)).agreed
    stage.load = {"requests": [{"id": "r", "booking": "a"}]}
    assert (await observer.truth(stage.replicas, [stage.worker], within=5)).agreed
