"""Atomic choices through the desk: exact, within their budget, and nothing left behind."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from stateplane.booking import Candidate, Cause, State
from stateplane.desk import Desk
from stateplane.errors import PlaneDisconnectedError
from stateplane.memory import MemoryStore
from stateplane.selecting import LATE_MOST, REST_SECONDS, UNTOLD_MOST, Miss, Selection
from tests.unit.stateplane.choosing import RULES, SMALL, TERMS, joined, offered, pool, standing, until

TWO = offered("w1", "w2")


async def choose(
    desk: Desk, id_: str = "", *, workers: Sequence[Candidate] = TWO, key: str = ""
) -> Selection:
    return await desk.select(id_ or desk.new_id(), key=key, candidates=workers, terms=TERMS)


async def test_two_replicas_that_choose_at_the_same_instant_spread() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        eight = offered(*(f"w{n}" for n in range(8)))
        found = await asyncio.gather(*(choose(desk, workers=eight) for _ in range(16) for desk in (a, b)))
        assert all(selection.booking is not None for selection in found)
        assert Counter(standing(store).values()) == dict.fromkeys((f"w{n}" for n in range(8)), 4)
        for desk in (a, b):
            await until(lambda desk=desk: dict(desk.view.loads()) == store.ledger.sums())  # type: ignore[misc]


async def test_a_choice_counts_in_the_own_view_at_once_and_only_once() -> None:
    async with pool("a") as (store, [(a, _)]):
        selection = await choose(a, "x")
        assert selection.booking is not None
        assert a.view.load(selection.booking.worker) == SMALL
        assert a.owns("x")
        await until(lambda: a.view.standing("x") is not None)
        assert a.view.load(selection.booking.worker) == SMALL
        assert not a.view.laid("x")
        a.end("x", Cause.ENDED)
        await until(lambda: not standing(store))
        assert not a.view.bookings()


async def test_what_the_feed_brings_before_the_answer_is_no_stray() -> None:
    async with pool("a") as (store, [(a, plane)]):
        plane.after = asyncio.Event()
        asked = asyncio.create_task(choose(a, "x"))
        await until(lambda: a.view.booking("x") is not None)
        await asyncio.sleep(0.25)  # some heartbeats
        plane.after.set()
        selection = await asked
        assert selection.booking is not None
        assert a.counts.bookings.strays == 0
        [one] = store.ledger.snapshot(now=store.now()).bookings
        assert (one.state, one.term) == (State.ACTIVE, 1)
        a.adjust("x", SMALL)
        a.end("x", Cause.ENDED)
        await until(lambda: not standing(store))


async def test_a_choice_that_lands_after_its_fallback_leaves_one_booking() -> None:
    async with pool("ab", budget=0.05) as (store, [(a, plane), (b, _)]):
        plane.before = asyncio.Event()
        selection = await choose(a, "late")
        assert selection == Selection(miss=Miss.LATE)
        a.book("fallback", key="", worker="w2", amount=SMALL, now=0.0)
        await until(lambda: "fallback" in standing(store) and a.status().outbox == 0)
        plane.before.set()
        await until(lambda: plane.landed == 1)
        await asyncio.sleep(0.25)
        assert standing(store) == {"fallback": "w2"}
        for desk in (a, b):
            await until(lambda desk=desk: set(desk.view.bookings()) == {"fallback"})  # type: ignore[misc]


async def test_a_choice_that_landed_although_its_answer_came_too_late_is_ended() -> None:
    async with pool("ab", budget=0.05) as (store, [(a, plane), (b, _)]):
        plane.after = asyncio.Event()
        assert (await choose(a, "x")).miss is Miss.LATE
        assert "x" not in a.view.bookings()
        await until(lambda: not standing(store))
        await until(lambda: not b.view.bookings())
        assert a.counts.selects.missed["late"] == 1
        assert not a.owns("x")


async def test_a_client_that_leaves_during_the_call_leaves_nothing_booked() -> None:
    async with pool("a") as (store, [(a, plane)]):
        for held in ("before", "after"):
            setattr(plane, held, asyncio.Event())
            asked = asyncio.create_task(choose(a))
            await asyncio.sleep(0.05)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            getattr(plane, held).set()
            setattr(plane, held, None)
            await asyncio.sleep(0.05)
            await until(lambda: not standing(store) and not a.view.bookings())
        assert a.counts.selects.abandoned == 2
        assert (await choose(a)).booking is not None


async def test_full_is_said_and_books_nothing() -> None:
    async with pool("a") as (store, [(a, _)]):
        one = offered("w1", most=1)
        assert (await choose(a, workers=one)).booking is not None
        assert await choose(a, workers=one) == Selection(miss=Miss.FULL)
        assert len(standing(store)) == len(a.view.bookings()) == 1


async def test_calls_in_flight_are_bounded() -> None:
    async with pool("a", selects=2) as (store, [(a, plane)]):
        plane.after = asyncio.Event()
        asked = [asyncio.create_task(choose(a)) for _ in range(5)]
        await until(lambda: sum(task.done() for task in asked) == 3)
        assert {task.result().miss for task in asked if task.done()} == {Miss.BUSY}
        plane.after.set()
        found = await asyncio.gather(*asked)
        assert sum(selection.booking is not None for selection in found) == 2
        assert len(standing(store)) == 2


async def test_a_plane_that_is_late_time_and_again_is_left_alone_for_a_while() -> None:
    async with pool("a", budget=0.02) as (_, [(a, plane)]):
        plane.after = asyncio.Event()
        found = [await choose(a) for _ in range(LATE_MOST + 3)]
        assert [selection.miss for selection in found] == [Miss.LATE] * LATE_MOST + [Miss.RESTING] * 3
        assert plane.asked == LATE_MOST
        plane.after = None
        await asyncio.sleep(REST_SECONDS)
        found = [await choose(a) for _ in range(20)]
        assert found[0].miss in (None, Miss.LATE)
        assert found[-1].booking is not None


async def test_an_answer_that_arrived_while_this_process_was_stalled_is_taken() -> None:
    async with pool("a", budget=0.02) as (_, [(a, plane)]):
        plane.after = asyncio.Event()
        loop = asyncio.get_running_loop()
        asked = asyncio.create_task(choose(a))
        await until(lambda: plane.landed == 1)
        loop.call_soon(time.sleep, 0.05)
        loop.call_soon(plane.after.set)
        assert (await asked).booking is not None


async def test_a_failing_call_is_a_miss_and_never_an_error() -> None:
    async with pool("a") as (store, [(a, plane)]):
        plane.fails = PlaneDisconnectedError("gone")
        assert (await choose(a)).miss is Miss.FAILED
        plane.fails = ValueError("a price that is no number")
        assert (await choose(a)).miss is Miss.FAILED
        plane.fails = None
        assert (await choose(a, workers=[])).miss is Miss.FAILED
        assert a.counts.calls.invalid == 2
        await until(lambda: a.status().outbox == 0)
        assert not standing(store)


async def test_a_plane_that_is_away_is_not_asked() -> None:
    async with pool("a") as (store, [(a, plane)]):
        store.away = True
        store.wake()
        await until(lambda: a.degraded)
        before = plane.asked
        assert (await choose(a)).miss is Miss.AWAY
        assert plane.asked == before


async def test_sums_that_lack_what_a_member_has_yet_to_book_again_are_not_asked_for() -> None:
    async with pool("ab") as (store, [(a, plane), (b, other)]):
        b.book("theirs", key="", worker="w1", amount=SMALL, now=0.0)
        await until(lambda: "theirs" in a.view.bookings())
        slow = asyncio.Event()
        real = other.rebooked

        async def held() -> object:
            await slow.wait()
            return await real()

        other.rebooked = held  # type: ignore[method-assign, assignment]
        store.restart(lose=True)
        await until(lambda: a.joined and a.view.version.epoch == 2 and len(a.members) == 2)
        assert (await choose(a)).miss is Miss.REBUILDING
        assert a.view.load("w1") == SMALL
        slow.set()
        await until(lambda: not a._link.rebuilding)
        assert (await choose(a)).booking is not None
        assert plane.asked == 1


async def test_a_fresh_member_does_not_degrade_the_others_for_long() -> None:
    async with pool("ab") as (_, [(a, _), _]):
        await until(lambda: not a._link.rebuilding, within=0.5)
        assert (await choose(a)).booking is not None


async def test_with_many_own_bookings_untold_the_sums_are_not_called_exact() -> None:
    async with pool("a") as (_, [(a, plane)]):
        for _ in range(UNTOLD_MOST + 1):
            a.book(a.new_id(), key="", worker="w1", amount=SMALL, now=0.0)
        assert (await choose(a)).miss is Miss.BEHIND
        assert plane.asked == 0


async def test_a_chosen_booking_is_booked_again_after_the_plane_lost_everything() -> None:
    async with pool("a") as (store, [(a, _)]):
        assert (await choose(a, "x", key="k")).booking is not None
        store.restart(lose=True)
        await until(lambda: a.joined and a.view.version.epoch == 2 and "x" in standing(store))
        assert "x" in a.view.bookings()
        second = await choose(a, "y", key="k")
        assert second.booking is not None
        assert second.booking.attempt == 2


async def test_an_answer_of_an_epoch_that_is_over_is_booked_again() -> None:
    async with pool("a") as (store, [(a, plane)]):
        plane.after = asyncio.Event()
        asked = asyncio.create_task(choose(a, "x"))
        await until(lambda: plane.landed == 1)
        store.restart(lose=True)
        await until(lambda: a.joined and a.view.version.epoch == 2)
        plane.after.set()
        assert (await asked).booking is not None
        await until(lambda: "x" in standing(store))
        a.end("x", Cause.ENDED)
        await until(lambda: not standing(store))


async def test_mode_isolated_never_asks() -> None:
    async with joined(MemoryStore(RULES), "a", mode="isolated") as (a, plane):
        assert (await choose(a)).miss is Miss.AWAY
        assert plane.asked == 0
