"""Scraping against real HTTP servers on loopback: good ones, slow ones, silent ones, hostile ones."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from picker.settings import WorkerSettings
from picker.workers.registry import Registry
from picker.workers.scrape import Scraper

PAGE = 'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_waiting{engine="0"} 1\n'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Endpoint:
    address: str
    rank: int = 0
    labels: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def serving(handler: Handler, path: str = "/metrics") -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get(path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(registry: Registry, **given: float | str) -> AsyncIterator[Scraper]:
    settings = WorkerSettings(**{"scrape_seconds": 0.05, "scrape_timeout_seconds": 0.5, **given})  # type: ignore[arg-type]
    scraper = Scraper(registry, settings, rng=random.Random(1))
    task = asyncio.create_task(scraper.run())
    try:
        yield scraper
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


def page_of(text: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text)

    return answer


async def test_reports_arrive_again_and_again_with_the_times_of_their_scrape() -> None:
    registry, seen = Registry(), []
    registry.listen(reported=lambda name, report: seen.append((name, report)))
    async with serving(page_of(PAGE)) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        before = time.monotonic()
        await until(lambda: len(seen) >= 3)
    assert {name for name, _ in seen} == {address}
    reports = [report for _, report in seen]
    assert reports[0].requests == 4
    assert all(before <= r.begun <= r.ended <= time.monotonic() for r in reports)
    assert all(a.ended <= b.begun for a, b in pairwise(reports))
    assert scraper.counts.good >= 3


async def test_workers_known_before_the_start_are_scraped_and_those_that_leave_no_more() -> None:
    asked: list[float] = []

    async def answer(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        return web.Response(text=PAGE)

    registry = Registry()
    async with serving(answer) as address:
        registry.update([Endpoint(address)])
        async with running(registry):
            await until(lambda: len(asked) >= 2)
            registry.update([])
            await asyncio.sleep(0.1)
            count = len(asked)
            await asyncio.sleep(0.3)
            assert len(asked) == count
            registry.update([Endpoint(address)])
            await until(lambda: len(asked) > count)


async def test_ranks_of_one_address_are_scraped_once() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(text=PAGE + 'vllm:num_requests_running{engine="1"} 9\n')

    registry = Registry()
    async with serving(answer) as address, running(registry, scrape_seconds=60.0) as scraper:
        scraper._rng = random.Random()
        scraper._rng.random = lambda: 0.0  # type: ignore[method-assign]
        registry.update([Endpoint(address), Endpoint(address, 1)])
        await until(lambda: registry.report(address + "@1", time.monotonic()))
    assert len(asked) == 1
    report = registry.record(address + "@1")
    assert report is not None
    assert report.report is not None
    assert report.report.running == 9


async def test_workers_that_hang_do_not_delay_one_that_answers() -> None:
    """More of them hang than scrapes may run at one time."""
    registry, good = Registry(), []

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(serving(hang)) for _ in range(12)]
        healthy = await stack.enter_async_context(serving(page_of(PAGE)))
        registry.update([Endpoint(address) for address in (*hanging, healthy)])
        registry.listen(reported=lambda name, _: good.append(name))
        scraper = await stack.enter_async_context(running(registry, scrape_parallel=4))
        await until(lambda: all((r.failures > 0) for r in registry.records if r.name != healthy), 30)
        good.clear()
        await asyncio.sleep(1.5)
        assert len(good) >= 10
        assert set(good) == {healthy}
        assert scraper.counts.timeouts >= 12
    record = registry.record(hanging[0])
    assert record is not None
    assert record.error == "no answer in 0.5 s"


@pytest.mark.parametrize("bound", [1, 4])
async def test_scrapes_in_flight_are_bounded(bound: int) -> None:
    now, most = 0, 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return web.Response(text=PAGE)

    registry = Registry()
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(serving(answer)) for _ in range(12)]
        registry.update([Endpoint(address) for address in addresses])
        scraper = await stack.enter_async_context(running(registry, scrape_parallel=bound))
        await until(lambda: scraper.counts.good >= 40)
    assert most <= bound


async def test_a_worker_that_recovers_reports_again() -> None:
    broken = True

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=500) if broken else web.Response(text=PAGE)

    registry = Registry()
    async with serving(answer) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        record = registry.record(address)
        assert record is not None
        await until(lambda: record.failures >= 2)
        assert record.ok is False
        assert record.error == "it answered 500"
        broken = False
        await until(lambda: record.ok)
        assert record.failures == 0
    assert scraper.counts.refused >= 2


async def test_a_redirect_is_never_followed() -> None:
    followed = []

    async def elsewhere(request: web.Request) -> web.Response:
        followed.append(request)
        return web.Response(text=PAGE)

    async with serving(elsewhere) as other:

        async def redirect(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"http://{other}/metrics")

        registry = Registry()
        async with serving(redirect) as address, running(registry) as scraper:
            registry.update([Endpoint(address)])
            await until(lambda: scraper.counts.refused)
    assert followed == []


async def test_a_page_over_the_bound_is_dropped_while_it_arrives() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"# " + b"x" * 4094)
                sent += 4096
        return response

    registry = Registry()
    async with serving(endless) as address, running(registry, scrape_max_bytes=65536) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.too_large)
        record = registry.record(address)
        assert record is not None
        assert "65536 bytes" in record.error
    assert sent < 64 * 1024 * 1024


async def test_a_packed_answer_is_refused_and_not_unpacked() -> None:
    async def packed(_: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    registry = Registry()
    async with serving(packed) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.refused)


async def test_a_page_of_something_else_is_counted_as_unreadable() -> None:
    registry = Registry()
    async with serving(page_of("<html>hello</html>")) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.unreadable)
        record = registry.record(address)
        assert record is not None
        assert record.ok is False


async def test_broken_lines_on_a_good_page_are_counted() -> None:
    registry = Registry()
    page = PAGE + 'vllm:kv_cache_usage_perc{engine="0"} NaN\n'
    async with serving(page_of(page)) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.faults)
        assert scraper.counts.good


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no host:99999", "[::1:80", "nowhere.invalid:80"])
async def test_an_address_that_cannot_be_reached_is_a_failure_and_no_more(address: str) -> None:
    registry = Registry()
    async with running(registry) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.unconnected + scraper.counts.unreachable + scraper.counts.timeouts)
        record = registry.record(address)
        assert record is not None
        assert record.ok is False
        assert record.error


async def test_silence_that_never_ends_is_cut_at_the_timeout() -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, ConnectionError):
            await _reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    registry = Registry()
    async with server, running(registry, scrape_timeout_seconds=0.1) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.timeouts >= 2)


async def test_a_failing_worker_is_asked_less_often() -> None:
    asked = []

    async def failing(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        return web.Response(status=503)

    registry = Registry()
    async with serving(failing) as address, running(registry, scrape_seconds=0.05):
        registry.update([Endpoint(address)])
        await until(lambda: len(asked) >= 6)
    assert asked[5] - asked[4] > 2 * (asked[1] - asked[0])


async def test_the_path_and_the_usage_name_are_as_set() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=PAGE + 'own_usage{engine="0"} 0.75\n')

    registry = Registry()
    async with (
        serving(answer) as address,
        running(registry, kv_cache_usage_percentage_metric="own_usage") as scraper,
    ):
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.good)
        report = registry.report(address, time.monotonic())
        assert report is not None
        assert report.kv_usage == 0.75


async def test_an_unexpected_failure_in_reading_is_counted_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("picker.workers.scrape.Reader.read", broken)
    registry = Registry()
    async with serving(page_of(PAGE)) as address, running(registry) as scraper:
        registry.update([Endpoint(address)])
        await until(lambda: scraper.counts.unexpected >= 2)


# --- TensorRT-LLM, whose page is elsewhere

LOAD = (Path(__file__).parent / "pages" / "trtllm-main.txt").read_text("utf-8")
STATISTICS = '[{"iter": 7, "numActiveRequests": 3}]'


@dataclass(slots=True)
class Engine:
    """Answers by path; what was asked, in order."""

    pages: dict[str, tuple[int, str]]
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        status, text = self.pages.get(request.path, (404, "no such path"))
        return web.Response(status=status, text=text)


@asynccontextmanager
async def watched(engine: Engine, **given: float | str) -> AsyncIterator[tuple[Registry, Scraper, str]]:
    """The engine is the one worker of the pool."""
    registry = Registry()
    async with serving(engine.answer, "/{path:.*}") as address, running(registry, **given) as scraper:
        registry.update([Endpoint(address)])
        yield registry, scraper, address


async def test_where_metrics_are_json_the_other_path_is_asked_and_remembered() -> None:
    engine = Engine({"/metrics": (200, STATISTICS), "/prometheus/metrics": (200, LOAD)})
    async with watched(engine) as (registry, scraper, address):
        await until(lambda: scraper.counts.good >= 3)
        report = registry.report(address, time.monotonic())
        assert report is not None
        assert (report.requests, report.kv_usage) == (4, 0.62)
        assert engine.asked[:3] == ["/metrics", "/prometheus/metrics", "/prometheus/metrics"]
        assert engine.asked.count("/metrics") == 1
        assert scraper.counts.other_path == 1
        assert scraper.counts.unreadable == 0


async def test_when_another_engine_comes_to_that_address_its_own_path_is_asked_again() -> None:
    engine = Engine({"/metrics": (200, STATISTICS), "/prometheus/metrics": (200, LOAD)})
    async with watched(engine) as (registry, scraper, address):
        await until(lambda: scraper.counts.good >= 2)
        engine.pages = {"/metrics": (200, PAGE)}
        good = scraper.counts.good
        await until(lambda: scraper.counts.good >= good + 2)
        report = registry.report(address, time.monotonic())
        assert report is not None
        assert (report.requests, report.total_blocks) == (4, None)
        assert engine.asked[-1] == "/metrics"


async def test_what_is_remembered_of_an_address_leaves_with_it() -> None:
    engine = Engine({"/metrics": (200, STATISTICS), "/prometheus/metrics": (200, LOAD)})
    async with watched(engine) as (registry, scraper, address):
        await until(lambda: scraper.counts.good)
        registry.update([])
        assert (scraper._paths, scraper._readers) == ({}, {})
        registry.update([Endpoint(address)])
        good = scraper.counts.good
        await until(lambda: scraper.counts.good > good)
        assert scraper.counts.other_path == 2


@pytest.mark.parametrize(
    ("pages", "counter", "said"),
    [
        ({"/metrics": (200, STATISTICS)}, "refused", "is return_perf_metrics set there?"),
        (
            {"/metrics": (200, STATISTICS), "/prometheus/metrics": (200, "trtllm_request_success_total 5\n")},
            "unreadable",
            "enable_iter_perf_stats",
        ),
        ({"/metrics": (200, STATISTICS), "/prometheus/metrics": (200, STATISTICS)}, "unreadable", "is JSON"),
    ],
)
async def test_an_engine_that_tells_its_load_nowhere_is_told_of_with_what_to_do(
    pages: dict[str, tuple[int, str]], counter: str, said: str
) -> None:
    engine = Engine(pages)
    async with watched(engine) as (registry, scraper, address):
        await until(lambda: getattr(scraper.counts, counter) >= 2)
        record = registry.record(address)
        assert record is not None
        assert said in record.error
        assert record.here
        assert scraper._paths == {}
        assert len(engine.asked) <= 2 * scraper.counts.scrapes


async def test_a_page_that_is_neither_metrics_nor_json_is_not_looked_for_elsewhere() -> None:
    engine = Engine({"/metrics": (200, "<html>hello</html>"), "/prometheus/metrics": (200, LOAD)})
    async with watched(engine) as (_, scraper, _address):
        await until(lambda: scraper.counts.unreadable >= 2)
        assert set(engine.asked) == {"/metrics"}


async def test_the_other_path_may_be_the_one_that_is_set() -> None:
    engine = Engine({"/prometheus/metrics": (200, LOAD)})
    async with watched(engine, metrics_path="/prometheus/metrics") as (_, scraper, _address):
        await until(lambda: scraper.counts.good >= 2)
        engine.pages["/prometheus/metrics"] = (200, STATISTICS)
        await until(lambda: scraper.counts.unreadable >= 1)
        assert set(engine.asked) == {"/prometheus/metrics"}
        assert scraper.counts.other_path == 0
