"""Selecting: choose by the exact sums and book, in one step."""

from __future__ import annotations

import asyncio

from stateplane.booking import Amount, Candidate, Cause, Status, Terms
from stateplane.testing.world import Case, World, booking, standing, stands

_TERMS = Terms(per_token=1.0, per_block=10.0, per_request=100.0)


def _offer(*workers: str, base: float = 0.0, most: int = 0) -> list[Candidate]:
    return [Candidate(worker, base, Amount(100, 10), most) for worker in workers]


async def the_cheapest_by_the_exact_sums_is_chosen(world: World) -> None:
    """Another's bookings count the moment that they are made."""
    a, b = await world.join("a"), await world.join("b")
    assert stands(await a.select(booking("1"), _offer("w1", "w2"), _TERMS)).worker == "w1"
    assert stands(await b.select(booking("2"), _offer("w1", "w2"), _TERMS)).worker == "w2"
    await a.release("1", Cause.ENDED)
    assert stands(await b.select(booking("3"), _offer("w2", "w1"), _TERMS)).worker == "w1"


async def each_term_of_the_price_counts(world: World) -> None:
    """Tokens, blocks, requests, and what does not depend on them."""
    a = await world.join("a")
    await a.book(booking("1", worker="tokens", tokens=1000, blocks=0))
    await a.book(booking("2", worker="blocks", tokens=0, blocks=100))
    offer = [Candidate("tokens", 0.0, Amount(1, 1)), Candidate("blocks", 0.0, Amount(1, 1))]
    for n, (terms, worker) in enumerate(
        [
            (Terms(1.0, 0.0, 0.0), "blocks"),
            (Terms(0.0, 1.0, 0.0), "tokens"),
            (Terms(1.0, 10.5, 0.0), "tokens"),
        ]
    ):
        chosen = stands(await a.select(booking(f"s{n}"), offer, terms))
        assert chosen.worker == worker
        await a.release(chosen.id, Cause.ENDED)
    offer = [Candidate("tokens", 0.5, Amount(1, 1)), Candidate("blocks", 0.25, Amount(1, 1))]
    assert stands(await a.select(booking("last"), offer, Terms(0.0, 0.0, 0.0))).worker == "blocks"


async def the_first_of_equals_is_chosen(world: World) -> None:
    """The caller has put them in random order."""
    a = await world.join("a")
    assert stands(await a.select(booking("1"), _offer("w9", "w1", "w5"), _TERMS)).worker == "w9"


async def what_a_candidate_would_hold_is_booked(world: World) -> None:
    """Each offer has its own amount: what is cached differs."""
    a = await world.join("a")
    offer = [Candidate("w1", 9.0, Amount(500, 50)), Candidate("w2", 1.0, Amount(20, 50))]
    assert stands(await a.select(booking("1", key="k"), offer, _TERMS)).amount == Amount(20, 50, 1)
    assert await a.sums() == {"w2": Amount(20, 50, 1)}


async def a_full_worker_is_passed_over_and_all_full_is_said(world: World) -> None:
    """Limits hold exactly, and nothing is booked past them."""
    a, b = await world.join("a"), await world.join("b")
    chosen = [
        (await plane.select(booking(f"{n}"), _offer("w1", "w2", most=2), _TERMS))
        for n, plane in enumerate([a, b, a, b, a])
    ]
    assert [outcome.status for outcome in chosen] == [Status.DONE] * 4 + [Status.FULL]
    assert {worker: amount.requests for worker, amount in (await a.sums()).items()} == {"w1": 2, "w2": 2}


async def a_select_sent_twice_keeps_its_first_choice(world: World) -> None:
    """Even if another worker is cheaper by now, and when a book of it comes late."""
    a = await world.join("a")
    first = stands(await a.select(booking("1"), _offer("w1", "w2"), _TERMS))
    again = stands(await a.select(booking("1"), _offer("w1", "w2"), _TERMS), Status.SAME)
    assert again == first
    assert stands(await a.book(booking("1", worker="w2")), Status.SAME).worker == "w1"
    assert await a.sums() == {"w1": Amount(100, 10, 1)}


async def a_late_select_after_its_fallback_does_nothing(world: World) -> None:
    """The budget passed, the pick was made on the view and booked; then the select lands."""
    a = await world.join("a")
    await a.book(booking("1", worker="w3"))
    assert stands(await a.select(booking("1"), _offer("w1"), _TERMS), Status.SAME).worker == "w3"
    await a.release("1", Cause.ENDED)
    assert (await a.select(booking("1"), _offer("w1"), _TERMS)).status is Status.GONE


async def a_select_is_an_attempt_like_any_other(world: World) -> None:
    """It supersedes what drains."""
    a = await world.join("a")
    await a.book(booking("1", key="k"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    second = await a.select(booking("2", key="k"), _offer("w2"), _TERMS)
    assert (stands(second).attempt, second.superseded) == (2, ("1",))
    assert (await standing(a, "1")).superseded


async def selects_at_once_spread_exactly(world: World) -> None:
    """Four replicas, sixty-four requests, eight workers: eight each."""
    planes = [await world.join(name) for name in "abcd"]
    offer = _offer(*(f"w{n}" for n in range(8)))
    await asyncio.gather(*(planes[n % 4].select(booking(str(n)), offer, _TERMS) for n in range(64)))
    assert {amount.requests for amount in (await planes[0].sums()).values()} == {8}


CASES: tuple[Case, ...] = (
    the_cheapest_by_the_exact_sums_is_chosen,
    each_term_of_the_price_counts,
    the_first_of_equals_is_chosen,
    what_a_candidate_would_hold_is_booked,
    a_full_worker_is_passed_over_and_all_full_is_said,
    a_select_sent_twice_keeps_its_first_choice,
    a_late_select_after_its_fallback_does_nothing,
    a_select_is_an_attempt_like_any_other,
    selects_at_once_spread_exactly,
)
