"""New bookings go at once; what is said of them later waits a moment, for more may be said of them."""

from __future__ import annotations

import asyncio

import pytest

from stateplane.booking import Amount, Booking, Cause, Owner, Rules
from stateplane.claims import Claims
from stateplane.outbox import LINGER_SECONDS, Outbox
from stateplane.table import Table
from stateplane.view import View

ME = Owner("a", "1")
MOST = 8


async def test_what_is_urgent_is_due_at_once() -> None:
    outbox = Outbox(MOST)
    outbox.put("a")
    await asyncio.wait_for(outbox.gathered(), 5)
    assert outbox.due(0.0, MOST) == ["a"]
    assert not outbox


async def test_what_may_wait_is_due_a_moment_later_and_lets_others_go_before_it() -> None:
    outbox = Outbox(MOST)
    outbox.put("a", at=10.0)
    outbox.put("b")
    assert outbox.due(10.0, MOST) == ["b"]
    assert outbox.due(10.0 + LINGER_SECONDS, MOST) == ["a"]


async def test_what_is_urgent_stays_so_whatever_is_said_of_it_after() -> None:
    outbox = Outbox(MOST)
    outbox.put("a")
    outbox.put("a", at=10.0)
    assert outbox.due(10.0, MOST) == ["a"]


async def test_of_what_is_due_only_so_much_is_taken_and_the_oldest_first() -> None:
    outbox = Outbox(MOST)
    for booking_id in "abcd":
        outbox.put(booking_id)
    assert (outbox.due(0.0, 3), outbox.due(0.0, 3)) == (["a", "b", "c"], ["d"])


async def test_what_may_wait_is_gathered_in_the_end_though_nothing_urgent_comes() -> None:
    outbox = Outbox(MOST)
    outbox.put("a", at=0.0)
    await asyncio.wait_for(outbox.gathered(), 5)


async def test_something_urgent_ends_the_wait_of_others() -> None:
    outbox = Outbox(MOST)
    outbox.put("a")
    await outbox.gathered()
    waiting = asyncio.create_task(outbox.gathered())
    await asyncio.sleep(0)
    outbox.put("b")
    await asyncio.wait_for(waiting, 5)


async def test_a_prefill_and_a_request_that_end_in_one_moment_make_one_call() -> None:
    table = Table(ME, View(owner=ME), rules=Rules(), capacity=MOST)
    claims = Claims(table)
    claims.book("a", key="", worker="w", amount=Amount(1, 1), now=10.0)
    assert table.outbox.due(10.0, MOST) == ["a"]
    claims.begin("a", 10.0)  # the booking is on its way
    table.claims["a"].busy = False
    claims.adjust("a", Amount(0, 1), 11.0)
    assert table.outbox.due(11.0, MOST) == []
    claims.end("a", Cause.ENDED, 11.0 + LINGER_SECONDS / 2)
    assert table.outbox.due(11.0 + LINGER_SECONDS, MOST) == ["a"]
    assert not table.outbox


def test_an_id_on_which_nothing_was_said_is_laid_as_any_other() -> None:
    made = Booking("a", "k", "w", ME, Amount(5, 2))
    first, second = (Table(ME, View(owner=ME), rules=Rules(), capacity=MOST) for _ in range(2))
    first.overlay.begin(made, 0.0)
    second.overlay.lay(made, 0.0)
    assert dict(first.view.bookings()) == dict(second.view.bookings())
    assert dict(first.view.loads()) == dict(second.view.loads()) == {"w": Amount(5, 2)}
    assert first.view.laid("a")


@pytest.mark.parametrize("at", [None, 10.0])
async def test_a_full_outbox_pushes_out_the_oldest(at: float | None) -> None:
    outbox = Outbox(2)
    assert [outbox.put(booking_id, at=at) for booking_id in "abc"] == [None, None, "a"]
