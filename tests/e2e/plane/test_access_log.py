"""What the access log proves, whichever replica it reaches, and what is made good when entries are lost."""

import asyncio
import time

import pytest

from tests.e2e.plane.gateway import Attempt, Gateway, Logs, completion
from tests.e2e.plane.pool import REPORTED_SECONDS, SLACK_SECONDS, SOON, Pool

pytestmark = pytest.mark.asyncio(loop_scope="session")

SILENT_SECONDS = 3.0
"""Three intervals of the log: past them a request whose stream is over is no longer believed."""


async def test_entries_that_reach_another_replica_keep_a_booking_alive_and_end_it(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, _ = pool.replicas
    await pool.until_logged()
    named = await gateway.attempt(here, completion(60), only=pool.workers[:1], held=False)
    unnamed = await gateway.attempt(here, completion(60), only=pool.workers[1:2], held=False)
    for one in (named, unnamed):
        await one.send()
        await one.answered()
    await pool.until_seen(named, unnamed)
    logs = gateway.logs(there)
    told = asyncio.create_task(each_second(logs, named))
    try:
        await pool.until_shown(unnamed, seconds=SILENT_SECONDS + SOON, state="draining", cause="silent")
        end = time.monotonic() + SILENT_SECONDS
        while time.monotonic() < end:
            rows = await pool.shown(named)
            assert {(row["state"], row["owner"].partition("/")[0]) for row in rows} == {("active", here.name)}
            assert await pool.untruths() == []
            await asyncio.sleep(0.1)
    finally:
        told.cancel()
    await named.hang_up()
    await logs.tell(named, end=True)
    await pool.until_gone(named, seconds=SOON)
    await unnamed.hang_up()
    await pool.until_gone(unnamed, seconds=REPORTED_SECONDS + SLACK_SECONDS)


async def each_second(logs: Logs, *attempts: Attempt) -> None:
    while True:
        await logs.tell(*attempts, end=False)
        await asyncio.sleep(1.0)


async def test_the_end_is_told_to_one_replica_and_heard_by_all(pool: Pool, gateway: Gateway) -> None:
    here, there, third = pool.replicas
    await pool.until_logged()
    for replica in (here, there, third):
        attempt = await gateway.attempt(here, completion(60), held=False)
        await attempt.send()
        await attempt.answered()
        await pool.until_true(SOON)
        await attempt.hang_up()
        await gateway.logs(replica).tell(attempt, end=True)
        await pool.until_gone(attempt, seconds=SOON)


async def test_a_dead_owners_booking_is_taken_over_by_who_hears_of_it_and_goes_when_nobody_does_any_more(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, third = pool.replicas
    living = [there, third]
    await pool.until_logged()
    ended, unheard = [
        await gateway.attempt(here, completion(60), only=[worker], held=False) for worker in pool.workers[:2]
    ]
    for one in (ended, unheard):
        await one.send()
        await one.answered()
    await pool.until_seen(ended, unheard)
    logs = gateway.logs(there)
    told = asyncio.create_task(each_second(logs, ended, unheard))
    try:
        await pool.cluster.kill(here.name)
        for one in (ended, unheard):
            await pool.until_owned(one, there.name, replicas=living, seconds=4.0 + SOON)
        await pool.stays_true(SILENT_SECONDS + 1.0, replicas=living)
    finally:
        told.cancel()
    await ended.hang_up()
    await logs.tell(ended, end=True)
    await pool.until_gone(ended, replicas=living, seconds=SOON)
    # the entry of this one's end is lost on its way
    await unheard.hang_up()
    await pool.until_gone(unheard, replicas=living, seconds=SILENT_SECONDS + REPORTED_SECONDS + SLACK_SECONDS)


async def test_when_the_replica_that_receives_the_log_is_killed_no_request_is_cut_and_load_stays_true(
    pool: Pool,
) -> None:
    await pool.until_logged()
    long = asyncio.create_task(pool.ask(*[14.0] * 6, spread=0.05))
    short = asyncio.create_task(pool.ask(*[0.3] * 60, spread=0.1))
    before = {
        one.name: await pool.counted("picker_serving_log_alive_total", replicas=[one])
        for one in pool.replicas
    }
    await asyncio.sleep(2.5)
    heard = {
        one.name: await pool.counted("picker_serving_log_alive_total", replicas=[one]) - before[one.name]
        for one in pool.replicas
    }
    receiver = max(heard, key=lambda name: heard[name])
    assert heard[receiver] > 0
    await pool.cluster.kill(receiver)
    killed = time.monotonic()
    living = [one for one in pool.replicas if one.name != receiver]
    assert sum(not record.complete for record in await short) <= 2, "but picks in progress, none is lost"
    # ends whose entries died with the receiver: their streams are over, the log says nothing, the workers disprove them
    await pool.until_true(SILENT_SECONDS + REPORTED_SECONDS + SLACK_SECONDS, replicas=living)
    assert time.monotonic() - killed < 14.0, "the long ones still run"
    await pool.stays_true(1.0, replicas=living)
    assert [record.fault for record in await long if not record.complete] == []
    await pool.until_true(SOON, replicas=living)
    assert await pool.views(living) == {one.name: {} for one in living}
