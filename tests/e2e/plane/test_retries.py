"""One request, several bookings: retries, late and early ends, equal keys. Load is compared with what engines carry."""

import asyncio
import uuid

import pytest

from tests.e2e.plane.gateway import Gateway, completion
from tests.e2e.plane.pool import REPORTED_SECONDS, SLACK_SECONDS, SOON, Pool

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_retry_on_another_replica_counts_beside_the_first_try_until_its_worker_has_done(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, _ = pool.replicas
    body, name = completion(7), str(uuid.uuid4())
    first = await gateway.attempt(here, body, request_id=name, only=pool.workers[:1])
    await first.send()
    await first.break_off()  # before any response: nobody can say whether the worker goes on
    await pool.until_shown(first, state="draining", cause="broken")

    second = await gateway.attempt(there, body, request_id=name, only=pool.workers[1:2])
    await second.send()
    await second.answered()
    await pool.until_shown(second, state="active", attempt=2)
    await pool.until_shown(first, state="draining", superseded=True, attempt=1)
    await pool.until_true(SOON)
    await pool.stays_true(2.0)

    await first.served_out()
    await pool.until_gone(first, seconds=REPORTED_SECONDS + SLACK_SECONDS)
    await second.served_out()
    await second.finished()
    await pool.until_gone(second, seconds=SOON)


async def test_a_retry_milliseconds_after_its_owners_sigkill_supersedes_the_first_try_when_the_lease_falls(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, third = pool.replicas
    living = [there, third]
    body, name = completion(60), str(uuid.uuid4())
    first = await gateway.attempt(here, body, request_id=name, only=pool.workers[:1])
    await first.send()
    await pool.until_seen(first)
    await pool.cluster.kill(here.name)
    second = await gateway.attempt(there, body, request_id=name, only=pool.workers[1:2])
    await second.send()
    await second.answered()
    await pool.until_shown(second, replicas=living, state="active", attempt=2)
    await pool.until_true(SOON, replicas=living)

    # the gateway still sees the first one run; whoever hears of it may not take it over
    logs = gateway.logs(third)

    async def superseded() -> list[str]:
        await logs.tell(first, end=False)
        rows = await pool.shown(first, replicas=living)
        return [str(dict(row)) for row in rows if not row["superseded"] or row["state"] != "draining"]

    await pool.until(superseded, seconds=4.0 + SLACK_SECONDS, what="the first try is superseded")
    assert {row["owner"].partition("/")[0] for row in await pool.shown(first, replicas=living)} == {here.name}
    await pool.stays_true(2.0, replicas=living)

    await first.hang_up()
    await pool.until_gone(first, replicas=living, seconds=REPORTED_SECONDS + SLACK_SECONDS)
    await pool.until_true(SOON, replicas=living)
    await second.hang_up()
    await second.finished()
    await pool.until_gone(second, replicas=living, seconds=SOON)


async def test_a_second_endpoint_in_the_same_stream_gets_the_booking_and_the_first_counts_while_it_works(
    pool: Pool, gateway: Gateway
) -> None:
    attempt = await gateway.attempt(pool.replicas[0], completion(60), only=pool.workers[:2])
    first = attempt.worker
    second = next(worker for worker in pool.workers[:2] if worker != first)
    await attempt.send()
    await attempt.send(second)
    await attempt.answered(served=second)

    async def look() -> list[str]:
        lines = []
        for name, rows in (await pool.views()).items():
            mine = {id_: row for id_, row in rows.items() if id_.partition("~")[0] == attempt.booking}
            told = {(row["worker"], row["state"], row["superseded"]) for row in mine.values()}
            if told != {(second, "active", False), (first, "draining", True)}:
                lines.append(f"{name} shows {mine}")
        return lines

    await pool.until(look, seconds=SOON, what="it has moved, and what it left behind drains")
    await pool.until_true(SOON)
    await pool.stays_true(2.0)

    attempt.responses[0].cancel()
    await pool.until_true(REPORTED_SECONDS + SLACK_SECONDS)
    assert [row["worker"] for row in await pool.shown(attempt)] == [second] * 3
    await attempt.hang_up()
    await attempt.finished()
    await pool.until_gone(attempt, seconds=SOON)


@pytest.mark.parametrize("by", ["stream", "log"])
async def test_the_end_of_the_first_try_after_the_second_began_ends_the_first_alone(
    pool: Pool, gateway: Gateway, by: str
) -> None:
    here, there, third = pool.replicas
    body, name = completion(60), str(uuid.uuid4())
    first = await gateway.attempt(here, body, request_id=name, only=pool.workers[:1])
    await first.send()
    await first.answered()
    await pool.until_seen(first)
    second = await gateway.attempt(there, body, request_id=name, only=pool.workers[1:2])
    await second.send()
    await second.answered()
    await pool.until_shown(second, state="active", attempt=2)
    await pool.until_shown(first, state="active", attempt=1)
    await pool.until_true(SOON)

    await first.hang_up()
    if by == "stream":
        await first.finished()
    else:
        await gateway.logs(third).tell(first, end=True)
    await pool.until_gone(first, seconds=SOON)
    assert {row["state"] for row in await pool.shown(second)} == {"active"}
    await pool.until_true(SOON)
    await second.hang_up()
    await second.finished()
    await pool.until_gone(second, seconds=SOON)


async def test_ends_that_reach_the_plane_before_their_bookings_leave_nothing(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, _ = pool.replicas
    logs = gateway.logs(there)
    await pool.freeze(pool.cluster.plane_server)
    attempts = [await gateway.attempt(here, completion(1)) for _ in range(12)]
    assert {one.booking for one in attempts} <= (await pool.rows(here)).keys(), "counted at once where picked"
    await logs.tell(*attempts, end=True)
    await asyncio.sleep(0.3)
    await pool.thaw(pool.cluster.plane_server)
    await asyncio.gather(*(pool.until_gone(one, seconds=5 + SLACK_SECONDS) for one in attempts))
    for one in attempts[:6]:
        await one.answered()
        await one.finished()
    for one in attempts[6:]:
        await one.break_off()
    await asyncio.sleep(1.5)
    assert await pool.views() == {replica.name: {} for replica in pool.replicas}


async def test_one_key_booked_by_two_replicas_at_once_is_two_bookings_that_end_each_by_itself(
    pool: Pool, gateway: Gateway
) -> None:
    here, there, _ = pool.replicas
    body, name = completion(60), str(uuid.uuid4())
    one, other = await asyncio.gather(
        gateway.attempt(here, body, request_id=name, only=pool.workers[:1]),
        gateway.attempt(there, body, request_id=name, only=pool.workers[1:2]),
    )
    await asyncio.gather(one.send(), other.send())
    await asyncio.gather(one.answered(), other.answered())
    await pool.until_seen(one, other)

    async def ordered() -> list[str]:
        told = {
            (a["attempt"], b["attempt"])
            for a, b in zip(await pool.shown(one), await pool.shown(other), strict=True)
        }
        return [] if told in ({(1, 2)}, {(2, 1)}) else [f"attempts {told}"]

    await pool.until(ordered, seconds=SOON, what="all replicas see the same order")
    assert {row["state"] for row in await pool.shown(one) + await pool.shown(other)} == {"active"}
    await pool.until_true(SOON)
    await one.hang_up()
    await one.finished()
    await pool.until_gone(one, seconds=SOON)
    await pool.until_true(SOON)
    await other.hang_up()
    await other.finished()
    await pool.until_gone(other, seconds=SOON)


async def test_the_same_id_with_another_body_joins_nothing(pool: Pool, gateway: Gateway) -> None:
    here, there, _ = pool.replicas
    name = str(uuid.uuid4())
    first = await gateway.attempt(here, completion(60), request_id=name, only=pool.workers[:1])
    await first.send()
    await first.break_off()
    await pool.until_shown(first, state="draining")
    second = await gateway.attempt(there, completion(60), request_id=name, only=pool.workers[:1])
    await second.send()
    await second.answered()
    await pool.until_shown(second, state="active", attempt=1)
    assert not any(row["superseded"] for row in await pool.shown(first))
    await pool.until_true(SOON)
    await pool.stays_true(1.0)
    await first.hang_up()
    await pool.until_gone(first, seconds=REPORTED_SECONDS + SLACK_SECONDS)
    await second.hang_up()
    await second.finished()
    await pool.until_gone(second, seconds=SOON)


@pytest.mark.parametrize("cluster", ["redis"], indirect=True)
async def test_choices_that_the_plane_makes_after_their_fallback_book_nothing(
    pool: Pool, gateway: Gateway
) -> None:
    async with pool.another("atomic", 2, PICKER_SYNC="atomic") as atomic:
        await pool.freeze(pool.cluster.plane_server)
        body = completion(60)
        attempts = await asyncio.gather(
            *(gateway.attempt(replica, body) for replica in atomic.replicas for _ in range(8))
        )
        await pool.thaw(pool.cluster.plane_server)
        assert await atomic.counted("picker_picks_degraded_total", 'reason="late"'), "no choice was under way"
        await asyncio.gather(*(one.send() for one in attempts))
        await asyncio.gather(*(one.answered() for one in attempts))
        ids = {one.booking for one in attempts}
        await atomic.until_true(5 + SLACK_SECONDS)
        await atomic.stays_true(2.0)
        assert all(rows.keys() == ids for rows in (await atomic.views()).values())
        for one in attempts:
            await one.hang_up()
            await one.finished()
        await atomic.until_quiet()
