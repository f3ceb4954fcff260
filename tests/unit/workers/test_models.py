"""Lists of models, asked for on loopback: bounded, seldom, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
from aiohttp import web

from picker.settings import WorkerSettings
from picker.workers import models as lists
from picker.workers.models import ModelLists
from picker.workers.registry import Registry
from tests.unit.workers.test_scrape import Endpoint, Handler, page_of, serving, until

LIST = orjson.dumps({"data": [{"id": "m", "parent": None}, {"id": "sql", "parent": "m"}]}).decode()


@asynccontextmanager
async def asking(registry: Registry, every: float = 0.05, timeout: float = 0.3) -> AsyncIterator[ModelLists]:
    settings = WorkerSettings(models_seconds=every, scrape_timeout_seconds=timeout)
    found = ModelLists(registry, settings)
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_list_is_asked_for_again_and_again_and_its_adapters_count() -> None:
    registry = Registry()
    async with serving(page_of(LIST), "/v1/models") as address, asking(registry) as found:
        registry.update([Endpoint(address)])
        await until(lambda: found.counts.good >= 3)
    assert registry.held(address, 0.0).listed == frozenset({"sql"})
    assert registry.adapters["sql"] == "m"


async def test_a_worker_that_joins_is_asked_soon_and_the_others_are_not_asked_again() -> None:
    registry = Registry()
    async with (
        serving(page_of(LIST), "/v1/models") as first,
        serving(page_of(LIST), "/v1/models") as second,
        asking(registry, every=1000) as found,
    ):
        registry.update([Endpoint(first)])
        await until(lambda: found.counts.good == 1)
        registry.update([Endpoint(first), Endpoint(second)])
        await until(lambda: registry.held(second, 0.0).listed)
        assert found.counts.asked == 2


async def test_nobody_is_asked_where_the_interval_is_0() -> None:
    registry = Registry()
    async with serving(page_of(LIST), "/v1/models") as address, asking(registry, every=0) as found:
        registry.update([Endpoint(address)])
        await asyncio.sleep(0.2)
        assert found.counts.asked == 0


async def big(_: web.Request) -> web.Response:
    return web.Response(body=b"x" * (lists.MAX_BYTES + 1))


async def locked(_: web.Request) -> web.Response:
    return web.Response(status=401)


async def elsewhere(_: web.Request) -> web.Response:
    raise web.HTTPFound("http://127.0.0.1:1/")


async def silent(_: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (big, "unreadable"),
        (locked, "refused"),
        (elsewhere, "refused"),
        (silent, "failed"),
        (page_of("?"), "unreadable"),
    ],
)
async def test_a_worker_that_does_not_tell_is_counted_and_nothing_is_known_of_it(
    handler: Handler, kind: str
) -> None:
    registry = Registry()
    async with serving(handler, "/v1/models") as address, asking(registry) as found:
        registry.update([Endpoint(address)])
        await until(lambda: getattr(found.counts, kind) >= 1)
        assert registry.held(address, 0.0).listed is None
        assert found.counts.good == 0


async def test_a_list_is_believed_until_several_rounds_have_failed() -> None:
    registry, answers = Registry(), [200]

    async def turned(_: web.Request) -> web.Response:
        return web.Response(status=answers[0], text=LIST)

    async with serving(turned, "/v1/models") as address, asking(registry) as found:
        registry.update([Endpoint(address)])
        await until(lambda: found.counts.good)
        answers[0] = 503
        await until(lambda: found.counts.refused >= 1)
        assert registry.held(address, 0.0).listed == frozenset({"sql"}) or found.counts.refused >= lists.KEPT
        await until(lambda: registry.held(address, 0.0).listed is None)
        assert found.counts.refused >= lists.KEPT


async def test_those_that_hang_keep_nobody_from_being_asked() -> None:
    registry = Registry()
    async with (
        serving(silent, "/v1/models") as hanging,
        serving(page_of(LIST), "/v1/models") as good,
        asking(registry) as found,
    ):
        registry.update([Endpoint(hanging), Endpoint(good)])
        await until(lambda: found.counts.good >= 2 and found.counts.failed >= 2)
