"""Exact: the sums per worker equal the sum of the bookings, whatever happens."""

from __future__ import annotations

import asyncio
import random

from stateplane.booking import Amount, Cause
from stateplane.plane import StatePlane
from stateplane.testing.world import RULES, Case, World, booking, exact


async def _storm(plane: StatePlane, rng: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        name, term = f"b{rng.randrange(40)}", rng.randrange(1, 4)
        amount = Amount(rng.randrange(4096), rng.randrange(200))
        worker = f"w{rng.randrange(4)}"
        match rng.randrange(8):
            case 0 | 1 | 2:
                key = f"k{rng.randrange(10)}"
                await plane.book(
                    booking(name, key=key, worker=worker, tokens=amount.prefill_tokens, blocks=amount.blocks)
                )
            case 3:
                await plane.adjust(name, term=term, op=rng.randrange(1, 9), amount=amount)
            case 4:
                await plane.move(name, term=term, op=rng.randrange(1, 9), worker=worker, amount=amount)
            case 5:
                await plane.drain(
                    name, term=term, op=rng.randrange(1, 9), cause=Cause.BROKEN, seconds=rng.randrange(4)
                )
            case 6:
                await plane.reclaim(name)
            case _:
                await plane.release(name, rng.choice([Cause.ENDED, Cause.EVIDENCE]), term=term)


async def sums_are_exact_through_a_storm_of_operations(world: World) -> None:
    """Two writers at once, random operations, deadlines passing between."""
    a, b = await world.join("a"), await world.join("b")
    rng = random.Random(7)
    for _ in range(5):
        await asyncio.gather(*(_storm(plane, rng, 60) for plane in (a, b)))
        await exact(a)
        await world.live(2, a, b)
        await exact(b)


async def sums_are_exact_through_the_death_of_an_owner(world: World) -> None:
    """At every heartbeat of the one left."""
    a, b = await world.join("a"), await world.join("b")
    rng = random.Random(11)
    await _storm(a, rng, 80)
    await _storm(b, rng, 20)
    for _ in range(int(RULES.drain) + 8):
        await world.live(1, b)
        await exact(b)
    owners = {one.owner.name for one in (await b.snapshot()).bookings}
    assert "a" not in owners


async def sums_are_exact_after_a_crash_of_the_server(world: World) -> None:
    """With all it held or with nothing left."""
    a = await world.join("a")
    for lose in (False, True):
        await _storm(a, random.Random(13), 60)
        await world.harness.restart(lose=lose)
        await a.start({})
        await exact(a)
        await _storm(a, random.Random(17), 60)
        await exact(a)


async def draining_bookings_count_in_full(world: World) -> None:
    """The worker may still work."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await a.book(booking("2"))
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN)
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert await b.sums() == {"w1": Amount(200, 20, 2)}


async def pools_on_one_server_never_meet(world: World) -> None:
    """Equal workers, ids and keys; one dies, the other does not notice."""
    a, b = await world.join("a", pool="ns/one"), await world.join("a", pool="ns/two")
    await a.book(booking("1", key="k"))
    assert (await b.book(booking("1", key="k"))).booking is not None
    assert (await b.snapshot()).bookings[0].attempt == 1
    await a.release("1", Cause.ENDED)
    assert await a.sums() == {}
    assert await b.sums() == {"w1": Amount(100, 10, 1)}
    await world.live(10, b)
    assert len((await b.snapshot()).bookings) == 1


CASES: tuple[Case, ...] = (
    sums_are_exact_through_a_storm_of_operations,
    sums_are_exact_through_the_death_of_an_owner,
    sums_are_exact_after_a_crash_of_the_server,
    draining_bookings_count_in_full,
    pools_on_one_server_never_meet,
)
