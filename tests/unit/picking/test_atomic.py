"""Mode atomic: the plane chooses among the best by its exact sums; where it cannot, the pick is made on the view."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from picker import settings
from picker.admin.journal import Journal
from picker.admin.metrics import Metrics
from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex
from picker.picking import Picking
from picker.requests.tokens import Tokens
from picker.serving.seam import Picked, Refused
from picker.underway import Underway
from stateplane.booking import Amount, Cause
from stateplane.desk import Desk
from tests.unit.picking.world import A, B, C, Workers, completion
from tests.unit.stateplane.choosing import ChoosingPlane, pool, standing, until

PROMPT = list(range(1, 18))  # four full blocks of four, and one token


class Replica:
    """One picking over a real desk."""

    def __init__(self, desk: Desk, plane: ChoosingPlane, **given: Any) -> None:
        self.desk, self.plane = desk, plane
        self.settings = settings.load({}, block_size=4, sync="atomic", plane_url="redis://x", **given)
        self.workers = Workers([A, B, C])
        self.index = PrefixIndex()
        for name in self.workers.names:
            self.index.add(name)
        self.underway = Underway(desk, known=lambda _: True, clock=time.monotonic)
        self.journal, self.metrics = Journal(100), Metrics()
        self.tokens = Tokens(self.settings.requests)
        self.picking = Picking(
            self.settings,
            pool=self.workers,
            index=self.index,
            bookings=desk,
            tokens=self.tokens,
            underway=self.underway,
            journal=self.journal,
            metrics=self.metrics,
            clock=time.monotonic,
            wall=lambda: 0.0,
            rng=random.Random(desk.owner.name),
        )

    async def pick(self, ids: list[int] = PROMPT) -> Picked | Refused:
        return await self.picking.decide(completion(ids))

    async def why(self) -> Any:
        answer = await self.pick()
        assert isinstance(answer, Picked)
        return self.journal.why(answer.booking_id)[0]


@asynccontextmanager
async def replicas(
    names: str, *, desks: dict[str, Any] | None = None, **given: Any
) -> AsyncIterator[list[Replica]]:
    async with pool(names, **(desks or {})) as (_, made):
        found = [Replica(desk, plane, **given) for desk, plane in made]
        try:
            yield found
        finally:
            for one in found:
                one.tokens.close()
                one.metrics.close()


async def test_replicas_that_pick_at_the_same_instant_spread() -> None:
    async with replicas("abcd") as four:
        for one in four:
            one.workers.names = [f"10.0.1.{n}:80" for n in range(8)]
        picked = await asyncio.gather(*(one.pick() for _ in range(8) for one in four))
        assert Counter(
            answer.destination for answer in picked if isinstance(answer, Picked)
        ) == dict.fromkeys(four[0].workers.names, 4)
        assert all(one.picking.counts.by_plane == 8 for one in four)


async def test_why_says_that_the_plane_chose_and_among_whom() -> None:
    async with replicas("a", atomic_candidates=2) as [one]:
        one.index.store(B, sequence_hashes(PROMPT, 4))
        one.index.store(C, sequence_hashes(PROMPT, 4)[:2])
        decision = await one.why()
        assert decision["worker"] == B
        chosen = decision["chosen"]
        assert (chosen["mode"], chosen["by"], chosen["degraded_because"]) == ("atomic", "plane", None)
        assert sorted(chosen["offered"]) == [B, C]
        booking = one.desk.view.booking(decision["booking"])
        assert booking is not None
        assert booking.amount == Amount(prefill_tokens=1, blocks=5)


async def test_the_plane_weighs_its_sums_against_what_is_cached() -> None:
    async with replicas("ab") as [one, other]:
        one.index.store(B, sequence_hashes(PROMPT, 4))
        other.desk.book("theirs", key="", worker=B, amount=Amount(0, 100), now=time.monotonic())
        await until(lambda: standing(one.plane.store) == {"theirs": B})
        one.desk.view.hide("theirs", 0.0)  # this view has not heard of it
        assert (await one.why())["worker"] != B


async def test_past_the_budget_the_pick_is_made_on_the_view_and_counted() -> None:
    async with replicas("a", desks={"budget": 0.05}) as [one]:
        one.plane.before = asyncio.Event()
        decision = await one.why()
        assert (decision["chosen"]["by"], decision["chosen"]["degraded_because"]) == ("view", "late")
        assert one.picking.counts.degraded["late"] == 1
        one.plane.before.set()
        await until(lambda: one.plane.landed == 1 and one.desk.status().outbox == 0)
        await until(lambda: set(standing(one.plane.store)) == {decision["booking"]})
        assert set(one.desk.view.bookings()) == {decision["booking"]}


async def test_without_the_plane_picks_are_made_at_once_and_told_later() -> None:
    async with replicas("a") as [one]:
        store = one.plane.store
        store.away = True
        store.wake()
        await until(lambda: one.desk.degraded)
        decision = await one.why()
        assert decision["chosen"]["degraded_because"] == "away"
        store.away = False
        await until(lambda: set(standing(store)) == {decision["booking"]})


async def test_all_full_by_the_exact_sums_is_429() -> None:
    async with replicas("ab", max_worker_requests=1) as two:
        answers = await asyncio.gather(*(one.pick() for _ in range(2) for one in two))
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        assert [answer.status for answer in refused] == [429]
        assert len(standing(two[0].plane.store)) == 3


async def test_when_those_offered_are_full_another_worker_is_taken_on_the_view() -> None:
    async with replicas("ab", max_worker_requests=1, atomic_candidates=1) as [one, other]:
        one.index.store(A, sequence_hashes(PROMPT, 4))
        other.desk.book("theirs", key="", worker=A, amount=Amount(0, 1), now=time.monotonic())
        await until(lambda: standing(one.plane.store) == {"theirs": A})
        one.desk.view.hide("theirs", 0.0)  # this view has not heard of it
        decision = await one.why()
        assert decision["worker"] in {B, C}
        assert decision["chosen"]["degraded_because"] == "full"


async def test_room_that_the_view_has_not_heard_of_is_found() -> None:
    async with replicas("ab", max_worker_requests=1) as [one, other]:
        for n, worker in enumerate((A, B, C)):
            other.desk.book(f"{n}", key="", worker=worker, amount=Amount(0, 1), now=time.monotonic())
        await until(lambda: len(one.desk.view.bookings()) == 3)
        booking = one.desk.view.booking("1")
        assert booking is not None
        one.desk.view.lay(booking, 0.0)  # this view goes on seeing it
        other.desk.end("1", Cause.ENDED)
        await until(lambda: len(standing(one.plane.store)) == 2)
        assert (await one.why())["worker"] == B


async def test_a_client_that_leaves_while_the_plane_is_asked_leaves_nothing_booked() -> None:
    async with replicas("a") as [one]:
        one.plane.after = asyncio.Event()
        asked = asyncio.create_task(one.pick())
        await until(lambda: one.plane.landed == 1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: not standing(one.plane.store) and not one.desk.view.bookings())
        assert len(one.underway) == 0


async def test_a_worker_that_left_while_the_plane_was_asked_is_not_answered() -> None:
    async with replicas("a") as [one]:
        one.index.store(A, sequence_hashes(PROMPT, 4))
        one.plane.after = asyncio.Event()
        asked = asyncio.create_task(one.pick())
        await until(lambda: one.plane.landed == 1)
        one.workers.names.remove(A)
        one.plane.after.set()
        answer = await asked
        assert isinstance(answer, Picked)
        assert answer.destination in {B, C}
        assert one.picking.counts.degraded["left"] == 1
        await until(lambda: list(standing(one.plane.store)) == [answer.booking_id])


async def test_fallbacks_are_named_behind_the_plane_s_choice() -> None:
    async with replicas("a", fallbacks=2) as [one]:
        one.index.store(B, sequence_hashes(PROMPT, 4))
        one.index.store(C, sequence_hashes(PROMPT, 4)[:2])
        answer = await one.pick()
        assert isinstance(answer, Picked)
        assert answer.destination == f"{B},{C},{A}"


async def test_an_empty_pool_is_503_and_the_plane_is_not_asked() -> None:
    async with replicas("a") as [one]:
        one.workers.names.clear()
        answer = await one.pick()
        assert isinstance(answer, Refused)
        assert (answer.status, one.plane.asked) == (503, 0)


async def test_equal_workers_share_the_first_pick_at_random() -> None:
    seen = Counter[str]()
    async with replicas("a") as [one]:
        for _ in range(30):
            decision = await one.why()
            seen[decision["worker"]] += 1
            one.desk.end(decision["booking"], Cause.ENDED)
            await until(lambda: not standing(one.plane.store))
    assert len(seen) == 3
