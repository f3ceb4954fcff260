"""The owner of bookings dies, comes back under its name, or stands still for a while."""

import asyncio
import time

import pytest

from picker.sim.processes import free_ports
from tests.e2e.plane.gateway import Gateway, completion
from tests.e2e.plane.pool import BLIND_SECONDS, REPORTED_SECONDS, SLACK_SECONDS, SOON, Pool

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINUTE = 60.0
FREEZE = 30.0


async def test_load_of_a_killed_owner_that_no_engine_carries_goes_in_time_and_the_rest_is_kept(
    pool: Pool, gateway: Gateway
) -> None:
    here, *living = pool.replicas
    carrying, empty, both = pool.workers
    blind = f"127.0.0.1:{free_ports(1)[0]}"
    pool.cluster.set_workers([*pool.workers, blind])
    try:
        await pool.until_known(blind)
        kept = [await gateway.attempt(here, completion(60), only=[worker]) for worker in (carrying, both)]
        idle = [await gateway.attempt(here, completion(60), only=[worker]) for worker in (empty, both)]
        unseen = await gateway.attempt(here, completion(60), only=[blind])
        for one in kept:
            await one.send()
            await one.answered()
        await pool.until_seen(*kept, *idle, unseen)
        await pool.cluster.kill(here.name)
        killed = time.monotonic()

        async def reported() -> list[str]:
            return await pool.sums_untrue(living)

        await pool.until(
            reported, seconds=REPORTED_SECONDS + SLACK_SECONDS, what="load is what engines carry"
        )
        assert (await pool.shown(unseen, replicas=living))[0]["requests"] == 1, (
            "nobody can say of this one yet"
        )
        await pool.until_gone(
            unseen, replicas=living, seconds=BLIND_SECONDS + SLACK_SECONDS - (time.monotonic() - killed)
        )
        end = killed + BLIND_SECONDS
        while time.monotonic() < end:
            assert await pool.sums_untrue(living) == []
            await asyncio.sleep(0.2)
        for one in kept:
            await one.hang_up()
        await pool.until_true(REPORTED_SECONDS + SLACK_SECONDS, replicas=living)
    finally:
        pool.cluster.set_workers(pool.workers)


async def test_a_replica_restarted_under_its_name_takes_nothing_over_and_loses_nothing(
    pool: Pool, gateway: Gateway
) -> None:
    here = pool.replicas[0]
    old = [await gateway.attempt(here, completion(60), only=[worker]) for worker in pool.workers]
    for one in old:
        await one.send()
        await one.answered()
    await pool.until_seen(*old)
    was = (await pool.shown(old[0]))[0]["owner"]
    await pool.cluster.kill(here.name)
    restarted = asyncio.create_task(pool.cluster.restart(here.name))
    while not restarted.done():
        assert await pool.untruths(pool.replicas[1:]) == []
        await asyncio.sleep(0.1)
    restarted.result()
    assert await pool.untruths() == [], "equal from the moment it is ready"
    new = await gateway.attempt(here, completion(60), only=pool.workers[:1])
    await new.send()
    await new.answered()
    await pool.until_seen(new)
    for one in old:
        await pool.until_shown(one, seconds=4.0 + SLACK_SECONDS, state="draining", cause="lease", owner=was)
    rows = await pool.shown(new)
    assert {row["state"] for row in rows} == {"active"}
    assert was not in {row["owner"] for row in rows}
    await pool.until_true(SOON)
    await pool.stays_true(1.0)
    for one in old:
        await one.hang_up()
    await pool.until_gone(*old, seconds=REPORTED_SECONDS + SLACK_SECONDS)
    await new.hang_up()
    await new.finished()
    await pool.until_gone(new, seconds=SOON)


@pytest.mark.timeout(240)
async def test_a_minute_in_which_one_owner_dies_and_one_stands_still_for_half_of_it(
    pool: Pool, gateway: Gateway
) -> None:
    """Responses of a minute: those of the dead owner are adopted, those of the frozen one come back to it, and each
    counts once until its end, and no longer.
    """
    dead, frozen, witness = pool.replicas
    await pool.until_logged()
    begun = time.monotonic()
    responses = asyncio.create_task(pool.ask(*[MINUTE] * 9, spread=0.1))
    held = [await gateway.attempt(frozen, completion(MINUTE), only=[worker]) for worker in pool.workers[:2]]
    for one in held:
        await one.send()
        await one.answered()
    await asyncio.sleep(2.0)
    await pool.until_true(SOON)
    rows = await pool.rows(witness)
    owners = {id_: row["owner"] for id_, row in rows.items()}
    orphans = {id_ for id_, owner in owners.items() if owner.startswith(f"{dead.name}/")}
    assert orphans
    assert len(rows) == 9 + len(held)

    await pool.cluster.kill(dead.name)
    await pool.until(
        lambda: adopted(pool, orphans, dead.name),
        seconds=6.0 + SLACK_SECONDS,
        what="the dead owner's bookings are adopted",
    )
    await pool.freeze(frozen.name)
    since = time.monotonic()

    async def drained() -> list[str]:
        rows = await pool.rows(witness)
        return [str(rows[one.booking]) for one in held if rows[one.booking]["state"] != "draining"]

    await pool.until(drained, seconds=4.0 + SLACK_SECONDS, what="the frozen owner's bookings drain")
    while time.monotonic() - since < FREEZE:
        assert await pool.untruths([witness]) == []
        await asyncio.sleep(0.25)
    await pool.thaw(frozen.name)
    for one in held:
        await pool.until_shown(one, replicas=[frozen, witness], state="active", owner=owners[one.booking])
    left = [frozen, witness]
    await pool.until_true(SOON, replicas=left)
    while time.monotonic() - begun < MINUTE - 2.0:
        assert await pool.untruths(left) == []
        await asyncio.sleep(0.25)
    assert [record.fault for record in await responses if not record.complete] == []
    for one in held:
        await one.served_out()
        await one.finished()
    await pool.until_true(SOON, replicas=left)
    assert await pool.views(left) == {one.name: {} for one in left}


async def adopted(pool: Pool, ids: set[str], owner: str) -> list[str]:
    rows = await pool.rows(pool.replicas[2])
    return [
        f"{id_}: {rows.get(id_)}"
        for id_ in ids
        if id_ not in rows or rows[id_]["state"] != "active" or rows[id_]["owner"].startswith(f"{owner}/")
    ]
