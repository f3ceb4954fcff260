"""The atomic choice on memory and real servers: that of the price, and through real desks balanced like one replica."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import fmean
from typing import Literal

from hypothesis import HealthCheck, given, settings

from picker.core.choose import Candidate, Choice, Demand, Offer, choose, offer
from picker.core.cost import Weights, slopes
from picker.core.load import Load
from stateplane.booking import Amount, Booking, Cause, Owner, Terms
from stateplane.desk import Desk
from stateplane.plane import StatePlane
from stateplane.testing import RULES, Harness
from tests.unit.picking.pricing import ME, hold_to_the_price, offered, pools, surcharges

WORKERS = [f"10.0.0.{n}:80" for n in range(8)]
BURST = 64
BURSTS = 8
WEIGHTS = Weights()
PATIENCE = 5.0
"""Seconds: these tests are about balance and about what is left behind, not about time."""

CASES = itertools.count()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pools(), surcharges)
async def test_the_choice_is_the_cheapest_by_the_price(
    harness: Harness, pool: tuple[list[Candidate], Demand, Weights], added: dict[str, float]
) -> None:
    plane = harness.open(ME, pool="price")
    try:
        await plane.start({})
        await hold_to_the_price(plane, *pool, case=str(next(CASES)), added=added)
    finally:
        await plane.close()


class Hand:
    """One replica: its desk, and picks as the picker makes them."""

    def __init__(self, desk: Desk, plane: StatePlane, seed: str) -> None:
        self.desk, self.plane = desk, plane
        self.rng = random.Random(seed)

    def candidates(self) -> list[Candidate]:
        return [
            Candidate(name, Load(held.prefill_tokens, held.blocks, held.requests))
            for name in WORKERS
            for held in [self.desk.view.load(name)]
        ]

    async def pick(self, tokens: int) -> str:
        demand = Demand(tokens, -(-tokens // 16), 16)
        booking_id = self.desk.new_id()
        if self.desk.mode == "eventual":
            choice = choose(self.candidates(), demand, WEIGHTS, self.rng)
            assert isinstance(choice, Choice)
            self.desk.book(
                booking_id, key="", worker=choice.worker, amount=Amount(tokens, demand.blocks), now=0.0
            )
            return booking_id
        made = offer(self.candidates(), demand, WEIGHTS, self.rng, most=8)
        assert isinstance(made, Offer)
        selection = await self.desk.select(
            booking_id, key="", candidates=offered(made, demand, WEIGHTS), terms=Terms(*slopes(16, WEIGHTS))
        )
        assert selection.booking is not None, selection
        return booking_id


@asynccontextmanager
async def hands(
    harness: Harness, count: int, mode: Literal["eventual", "atomic"]
) -> AsyncIterator[list[Hand]]:
    """So many replicas, all joined."""
    found, tasks = [], []
    harness.timeout = PATIENCE
    for n in range(count):
        owner = Owner(f"r{n}", "1")
        plane = harness.open(owner, pool=f"{mode}-{count}")
        desk = Desk(
            plane, owner, rules=RULES, mode=mode, timeout=PATIENCE, budget=2 * PATIENCE, selects=BURST
        )
        assert await desk.start(10.0)
        tasks.append(asyncio.create_task(desk.run()))
        found.append(Hand(desk, plane, f"{mode}{n}"))
    try:
        await until_level(found)
        yield found
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for hand in found:
            await hand.plane.close()


async def until_level(hands: Sequence[Hand]) -> None:
    """Until the plane and all views say the same, and all members know of each other."""
    async with asyncio.timeout(20):
        while True:
            sums = await hands[0].plane.sums()
            if all(
                dict(hand.desk.view.loads()) == sums
                and len(hand.desk.members) == len(hands)
                and not hand.desk.status().outbox
                for hand in hands
            ):
                return
            await asyncio.sleep(0.01)


async def imbalance(hands: Sequence[Hand]) -> float:
    """Mean over bursts of the busiest worker's price against the mean one, all replicas picking at the same instant."""
    rng, found, ids = random.Random(3), [], []
    for _ in range(BURSTS):
        sizes = [rng.randint(256, 4096) for _ in range(BURST)]
        each = list(zip(itertools.cycle(hands), sizes, strict=False))
        picked = await asyncio.gather(*(hand.pick(tokens) for hand, tokens in each))
        ids += [(hand, booking_id) for (hand, _), booking_id in zip(each, picked, strict=True)]
        await until_level(hands)
        sums = await hands[0].plane.sums()
        assert sum(held.requests for held in sums.values()) == len(ids)
        loads = [sums[name].prefill_tokens / 16 + sums[name].blocks for name in WORKERS]
        found.append(max(loads) / fmean(loads))
        for hand, booking_id in ids[: BURST // 2]:
            hand.desk.end(booking_id, Cause.ENDED)
        del ids[: BURST // 2]
        await until_level(hands)
    return fmean(found)


async def test_eight_replicas_in_atomic_balance_like_one_and_better_than_in_eventual(
    harness: Harness,
) -> None:
    async with hands(harness, 1, "atomic") as one:
        alone = await imbalance(one)
    async with hands(harness, 8, "atomic") as eight:
        together = await imbalance(eight)
        assert sum(hand.desk.counts.selects.chosen for hand in eight) == BURST * BURSTS
    async with hands(harness, 8, "eventual") as eight:
        eventual = await imbalance(eight)
    assert together <= alone * 1.05
    assert eventual > together * 1.05


async def test_a_choice_given_up_before_it_lands_leaves_one_booking_on_a_real_plane(harness: Harness) -> None:
    async with hands(harness, 2, "atomic") as [a, b]:
        for n in range(20):
            asked = asyncio.create_task(a.pick(100))
            await asyncio.sleep(0.0001 * n)  # on its way, landed, answered, whichever
            answered = asked.done()
            asked.cancel()
            found = await asyncio.gather(asked, return_exceptions=True)
            if answered:
                a.desk.end(str(found[0]), Cause.ENDED)
        a.desk.book("fallback", key="", worker=WORKERS[0], amount=Amount(1, 1), now=0.0)
        await until_level([a, b])
        assert await b.plane.sums() == {WORKERS[0]: Amount(1, 1)}


async def test_a_late_choice_meets_the_tombstone_of_its_id(harness: Harness) -> None:
    async with hands(harness, 1, "atomic") as [a]:
        a.desk.end("late", Cause.REFUSED)
        await until_level([a])
        demand = Demand(16, 1, 16)
        made = offer(a.candidates(), demand, WEIGHTS, a.rng, most=8)
        assert isinstance(made, Offer)
        booking = Booking("late", "", "", a.desk.owner, Amount(0, 0))
        outcome = await a.plane.select(booking, offered(made, demand, WEIGHTS), Terms(*slopes(16, WEIGHTS)))
        assert (outcome.status, outcome.cause) == ("gone", Cause.REFUSED)
        assert await a.plane.sums() == {}
