"""What a desk knows of its own ignorance: staleness, rate, and what it has probably not seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import NOTHING, Amount, Booking, Cause, Change, Owner, State, Version
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane
from stateplane.view import View
from tests.unit.stateplane.choosing import SMALL, TERMS, ChoosingPlane, offered, pool, until


def muted(plane: ChoosingPlane) -> asyncio.Event:
    """The plane's feed brings nothing until the event is set."""
    heard = asyncio.Event()

    async def changes(after: Version) -> AsyncIterator[Change]:
        async for change in MemoryPlane.changes(plane, after):
            await heard.wait()
            yield change

    plane.changes = changes  # type: ignore[method-assign]
    return heard


async def book(desk: Desk, count: int) -> None:
    for _ in range(count):
        desk.book(desk.new_id(), key="", worker="w1", amount=SMALL, now=time.monotonic())
        await asyncio.sleep(0.001)


async def test_a_level_view_misses_nothing_and_knows_rate_and_staleness() -> None:
    async with pool("ab") as (_, [(a, _), (b, _)]):
        await book(a, 40)
        await until(lambda: len(b.view.bookings()) == 40)
        assert a.unseen(time.monotonic()) == b.unseen(time.monotonic()) == 0.0
        assert 0 < a.status().staleness < 1.0
        assert b.status().staleness == 0.0  # it has placed nothing itself
        assert a.status().rate > 1.0
        assert b.status().rate > 1.0


async def test_an_own_choice_tells_the_staleness_too() -> None:
    async with pool("a") as (_, [(a, _)]):
        await a.select("x", key="", candidates=offered("w1"), terms=TERMS)
        await until(lambda: a.status().staleness > 0)


async def test_a_feed_that_falls_silent_is_noticed_and_what_it_hides_is_estimated() -> None:
    async with pool("ab") as (_, [(a, _), (b, other)]):
        await book(a, 40)
        await until(lambda: len(b.view.bookings()) == 40)
        before = b.status().rate
        heard = muted(other)
        b._link._reread(resync=False)
        await book(a, 40)
        await until(lambda: b.unseen(time.monotonic()) > 0)
        status = b.status()
        assert status.lag > 0.05
        assert status.staleness >= status.lag
        assert status.rate >= before * 0.5  # a silent feed is no slow pool
        heard.set()
        await until(lambda: b.unseen(time.monotonic()) == 0 and len(b.view.bookings()) == 80)


async def test_a_plane_that_is_away_hides_more_and_more() -> None:
    async with pool("ab") as (store, [(a, _), (b, _)]):
        await book(a, 40)
        await until(lambda: len(b.view.bookings()) == 40)
        store.away = True
        store.wake()
        await until(lambda: b.degraded)
        first = b.unseen(time.monotonic())
        assert first > 0
        await asyncio.sleep(0.2)
        assert b.unseen(time.monotonic()) > first
        store.away = False
        await until(lambda: b.unseen(time.monotonic()) == 0)


ME, OTHER = Owner("me", "1"), Owner("other", "1")
steps = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from([ME, OTHER]), st.sampled_from(["w1", "w2"]), st.integers(0, 9),
        st.booleans(),
    )
)  # fmt: skip


@given(steps)
def test_own_load_is_the_sum_of_the_own_bookings(steps: list[tuple[int, Owner, str, int, bool]]) -> None:
    view = View(owner=ME)
    for id_, owner, worker, tokens, ends in steps:
        if ends:
            view.hide(str(id_), 0.0)
        else:
            view.lay(Booking(str(id_), "", worker, owner, Amount(tokens, 1)), 0.0)
        for name in ("w1", "w2"):
            mine = [one.amount for one in view.on(name) if one.owner == ME]
            assert view.own_load(name) == sum(mine, start=NOTHING)


async def test_own_load_follows_an_adoption() -> None:
    async with pool("ab") as (_, [(a, _), (b, _)]):
        a.book("x", key="", worker="w1", amount=SMALL, now=0.0)
        await until(lambda: b.view.booking("x") is not None)
        a.lose("x", Cause.BROKEN)
        await until(lambda: (one := b.view.booking("x")) is not None and one.state is State.DRAINING)
        b.alive(["x"])
        await until(lambda: b.view.own_load("w1") == SMALL and a.view.own_load("w1") == NOTHING)
