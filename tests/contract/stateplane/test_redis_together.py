"""Calls made together: one write, and each is answered as its own method would have answered it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from stateplane.booking import Amount, Booking, Cause, Outcome, Owner, Rules, Status
from stateplane.calls import Adjust, Book, Call, Drain, Move, Reclaim, Release, Together
from stateplane.errors import (
    PlaneClosedError,
    PlaneCorruptError,
    PlaneEpochError,
    PlaneTimeoutError,
    PlaneUnavailableError,
)
from stateplane.redis.plane import RedisPlane
from tests.contract.stateplane.servers import Server

OWNER = Owner("a", "1")
POOL = "ns/together"
AMOUNT = Amount(10, 2)


def booking(booking_id: str, worker: str = "w") -> Booking:
    return Booking(booking_id, "", worker, OWNER, AMOUNT)


@pytest.fixture
def server(valkey: Server) -> Server:
    if valkey.process is None:
        valkey.start()
    with valkey.client() as client:
        client.flushall()
    return valkey


def opened(server: Server, *, timeout: float = 1.0) -> RedisPlane:
    return RedisPlane(server.url, pool=POOL, owner=OWNER, rules=Rules(), timeout=timeout)


@pytest.fixture
async def plane(server: Server) -> AsyncIterator[RedisPlane]:
    made = opened(server)
    await made.start({})
    yield made
    await made.close()


def test_the_plane_says_that_it_takes_calls_together(server: Server) -> None:
    assert isinstance(opened(server), Together)


async def test_each_call_is_answered_as_its_own_method_would_answer_it(
    server: Server, plane: RedisPlane
) -> None:
    for number in range(5):
        await plane.book(booking(f"old{number}"))
    calls: list[Call] = [
        Book(booking("new")),
        Adjust("old0", 1, 1, Amount(0, 2)),
        Drain("old1", 1, 1, Cause.BROKEN, None),
        Move("old2", 1, 1, "other", AMOUNT),
        Release("old3", Cause.ENDED, None),
        Reclaim("old4"),
        Adjust("nobody", 1, 1, AMOUNT),
        Book(booking("old4")),
    ]
    batches = plane.counts.batches
    together = await plane.together(calls)
    assert plane.counts.batches == batches + 1
    assert [answer.status for answer in together if isinstance(answer, Outcome)] == [
        Status.DONE, Status.DONE, Status.DONE, Status.DONE, Status.DONE, Status.SAME, Status.UNKNOWN, Status.SAME,
    ]  # fmt: skip
    moved = together[3]
    assert isinstance(moved, Outcome)
    assert moved.booking is not None
    assert (moved.booking.worker, moved.booking.term) == ("other", 2)
    apart = [await call.on(plane) for call in calls[:2]]
    assert [outcome.status for outcome in apart] == [Status.SAME, Status.SAME]


async def test_a_call_that_no_plane_takes_fails_alone(plane: RedisPlane) -> None:
    answers = await plane.together([Book(booking("")), Book(booking("one")), Adjust("one", 1, -1, AMOUNT)])
    bad, good, negative = answers
    assert isinstance(bad, ValueError)
    assert isinstance(good, Outcome)
    assert isinstance(negative, ValueError)
    assert await plane.together([]) == []


async def test_a_record_that_does_not_decode_fails_its_call_alone(server: Server, plane: RedisPlane) -> None:
    await plane.book(booking("broken"))
    with server.client() as client:
        (key,) = [key for key in client.scan_iter() if key.endswith(b":books")]
        client.hset(key, "broken", b"junk")
    broken, fine = await plane.together([Adjust("broken", 1, 1, AMOUNT), Book(booking("fine"))])
    assert isinstance(broken, PlaneCorruptError)
    assert isinstance(fine, Outcome)


async def test_scripts_that_the_server_forgot_are_loaded_again_for_all(
    server: Server, plane: RedisPlane
) -> None:
    await plane.book(booking("old"))
    with server.client() as client:
        client.script_flush()
    answers = await plane.together([Book(booking("new")), Release("old", Cause.ENDED, None)])
    assert [isinstance(answer, Outcome) for answer in answers] == [True, True]


async def test_a_new_epoch_is_told_to_every_call(server: Server, plane: RedisPlane) -> None:
    with server.client() as client:
        client.flushall()
    other = RedisPlane(server.url, pool=POOL, owner=Owner("b", "1"), rules=Rules(), timeout=1.0)
    await other.start({})
    answers = await plane.together([Book(booking("one")), Book(booking("two"))])
    assert [type(answer) for answer in answers] == [PlaneEpochError, PlaneEpochError]
    assert plane.counts.epochs == 2
    await other.close()


async def test_without_a_start_or_after_the_close_every_call_says_so(server: Server) -> None:
    made = opened(server)
    (answer,) = await made.together([Book(booking("one"))])
    assert isinstance(answer, PlaneEpochError)
    await made.close()
    (answer,) = await made.together([Book(booking("one"))])
    assert isinstance(answer, PlaneClosedError)


async def test_a_server_that_does_not_answer_fails_every_call_in_time(server: Server) -> None:
    made = opened(server, timeout=0.2)
    await made.start({})
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            answers = await made.together([Book(booking(str(number))) for number in range(5)])
        assert all(isinstance(answer, PlaneTimeoutError) for answer in answers), answers
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    await made.close()


async def test_a_plane_that_is_closed_meanwhile_fails_every_call(server: Server) -> None:
    made = opened(server)
    await made.start({})
    asking = asyncio.create_task(made.together([Book(booking("one")), Book(booking("two"))]))
    await asyncio.sleep(0)
    await made.close()
    assert all(isinstance(answer, PlaneUnavailableError | PlaneClosedError) for answer in await asking)
