"""The plane stands still, or comes back with nothing; somebody joins late; another pool uses the same workers."""

import asyncio
import time
from collections.abc import Callable

import aiohttp
import pytest

from picker.sim.load import Record
from tests.e2e.plane.gateway import Gateway, completion
from tests.e2e.plane.pool import SOON, Pool, Rows

pytestmark = pytest.mark.asyncio(loop_scope="session")

FREEZE = 10.0
LONG = 8
LONGEST_PICK = 2.5
"""Far above what a pick may take, and far below the time that the plane stands still."""


async def watched(pool: Pool, seconds: float, look: Callable[[dict[str, Rows]], None]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look(await pool.views())
        await asyncio.sleep(0.1)


async def lasting(pool: Pool, seconds: float) -> tuple[asyncio.Task[list[Record]], dict[str, str]]:
    """Long responses through Envoy; returns their owners by booking once every replica shows them."""
    running = asyncio.create_task(pool.ask(*[seconds] * LONG, spread=0.05))
    await asyncio.sleep(1.0)
    await pool.until_true(SOON)
    rows = await pool.rows(pool.replicas[0])
    assert len(rows) == LONG
    return running, {id_: row["owner"] for id_, row in rows.items()}


async def test_while_the_plane_stands_still_nobody_is_reaped_no_pick_waits_and_no_view_reads_zero(
    pool: Pool,
) -> None:
    await pool.until_logged()
    running, owners = await lasting(pool, FREEZE + 9.0)
    load = asyncio.create_task(pool.ask(*[0.4] * 100, spread=0.13))
    await asyncio.sleep(1.0)
    slow = await pool.slow_picks(LONGEST_PICK)

    def whole(views: dict[str, Rows]) -> None:
        for name, rows in views.items():
            lost = {
                id_: rows.get(id_)
                for id_, owner in owners.items()
                if id_ not in rows or rows[id_]["state"] != "active" or rows[id_]["owner"] != owner
            }
            assert not lost, f"{name} shows {lost}"

    await pool.freeze(pool.cluster.plane_server)
    await watched(pool, FREEZE, whole)
    pages = [await pool.status(replica) for replica in pool.replicas]
    assert {page["plane"]["state"] for page in pages} == {"away"}
    assert all(page["plane"]["since_seconds"] > 1 for page in pages)
    await pool.thaw(pool.cluster.plane_server)
    await watched(pool, 4.0, whole)
    records = await load
    assert [record.fault for record in records if not record.complete] == []
    assert await pool.slow_picks(LONGEST_PICK) == slow
    await pool.until_true(SOON)
    assert {name: rows.keys() for name, rows in (await pool.views()).items()} == {
        replica.name: owners.keys() for replica in pool.replicas
    }
    pages = [await pool.status(replica) for replica in pool.replicas]
    assert {page["plane"]["state"] for page in pages} == {"healthy"}
    assert {len(page["members"]) for page in pages} == {3}
    assert [record.fault for record in await running if not record.complete] == []


async def test_a_plane_that_comes_back_empty_is_told_everything_and_no_view_reads_less_meanwhile(
    pool: Pool,
) -> None:
    await pool.until_logged()
    running, owners = await lasting(pool, 11.0)
    epochs = {
        (await pool.get(f"{replica.admin}/bookings.json"))["version"]["epoch"] for replica in pool.replicas
    }

    def whole(views: dict[str, Rows]) -> None:
        for name, rows in views.items():
            assert owners.keys() <= rows.keys(), f"{name} lost {owners.keys() - rows.keys()}"

    await pool.cluster.kill(pool.cluster.plane_server)
    await watched(pool, 1.5, whole)
    restart = asyncio.create_task(pool.cluster.restart(pool.cluster.plane_server))
    await watched(pool, 3.0, whole)
    await restart

    async def told_again() -> list[str]:
        lines = await pool.untruths()
        whole(await pool.views())
        for replica in pool.replicas:
            page = await pool.status(replica)
            plane = page["plane"]
            if (
                plane["state"] != "healthy"
                or plane["owing"]
                or plane["kept"]
                or plane["version"]["epoch"] in epochs
            ):
                lines.append(f"{replica.name} stands so to the plane: {plane}")
        return lines

    await pool.until(told_again, seconds=2.0 + SOON, what="all agree in the new epoch", holds=3)
    assert {row["owner"] for rows in (await pool.views()).values() for row in rows.values()} == set(
        owners.values()
    )
    assert [record.fault for record in await running if not record.complete] == []


async def test_a_late_joiner_shows_all_that_the_others_do_before_it_is_ready(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, late = pool.replicas
    await pool.cluster.kill(late.name)
    attempts = [
        await gateway.attempt(replica, completion(60), only=[worker])
        for replica in (here, there)
        for worker in pool.workers
        for _ in range(3)
    ]
    await asyncio.gather(*(one.send() for one in attempts))
    await pool.until_true(SOON, replicas=[here, there])
    restart = asyncio.create_task(pool.cluster.restart(late.name))

    async def ready() -> bool:
        try:
            async with pool.http.get(f"http://{late.admin}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    while not await ready():
        assert not restart.done() or restart.result()
        await asyncio.sleep(0.005)
    views = await pool.views()
    assert views[late.name].keys() == {one.booking for one in attempts}
    assert views[late.name] == views[here.name] == views[there.name]
    assert await pool.untruths() == []
    await restart
    for one in attempts:
        await one.hang_up()
        await one.answered()
        await one.finished()
    await pool.until_gone(*attempts, seconds=SOON)


async def test_two_pools_over_the_same_workers_and_with_the_same_request_ids_never_meet(
    pool: Pool, gateway: Gateway
) -> None:
    async with pool.another("second", 2) as second:
        body = completion(60)
        ours = [await gateway.attempt(replica, body, request_id="same") for replica in pool.replicas[:2]]
        theirs = [await gateway.attempt(replica, body, request_id="same") for replica in second.replicas]
        for one in (*ours, *theirs):
            await one.send()
            await one.answered()

        async def apart(wanted: tuple[tuple[Pool, set[str]], ...]) -> list[str]:
            lines: list[str] = []
            for each, ids in wanted:
                views = await each.views()
                lines += [f"{name} shows {rows.keys()}" for name, rows in views.items() if rows.keys() != ids]
                lines += await each.untruths(ids=ids) if ids else []
                lines += [
                    f"attempts {rows}"
                    for rows in views.values()
                    if {row["attempt"] for row in rows.values()} != set(range(1, 1 + len(ids)))
                ]
            return lines

        both = ((pool, {one.booking for one in ours}), (second, {one.booking for one in theirs}))
        await pool.until(lambda: apart(both), seconds=SOON, what="each pool shows its own", holds=5)
        # the end of one pool's booking, told to the other, is nothing to it
        logs = gateway.logs(second.replicas[0])
        await logs.tell(*ours, end=True)
        await asyncio.sleep(1.0)
        assert await apart(both) == []
        for one in theirs:
            await one.hang_up()
            await one.finished()
        await pool.until(
            lambda: apart((both[0], (second, set()))), seconds=SOON, what="theirs are gone", holds=3
        )
        for one in ours:
            await one.hang_up()
            await one.finished()
        await pool.until_gone(*ours, seconds=SOON)
