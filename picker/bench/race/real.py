"""Replicas in processes of their own, on a real plane: each with a real desk and view, and the product's choice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

from picker.bench.bare import TIMEOUT, plane_on
from picker.bench.fleet import Fleet, Stage
from picker.bench.race.hands import Hand, request_of
from picker.bench.race.log import Pick, Verdict, in_plane_order, judge
from picker.bench.race.world import Request, Setting, names, requests, warm_up
from picker.bench.servers import Server
from stateplane.booking import Booked, Gone, Owner, Rules
from stateplane.desk import Desk, Mode

BUDGET_SECONDS = 0.02
"""Of an atomic choice; past it the pick is made on the view."""
JOINED_SECONDS = 2.5
"""After so long every replica has said that all its bookings stand; before, no choice is atomic."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What one process is to do."""

    server: Server
    pool: str
    replica: int
    setting: Setting
    count: int
    """Requests of the whole pool."""
    seed: int


@dataclass(frozen=True, slots=True)
class Taken:
    """One pick of one process, in seconds after the common start."""

    number: int
    at: float
    until: float
    worker: str
    tokens: int
    degraded: bool


async def replica(stage: Stage, spec: Spec) -> list[Taken]:
    """Serve this replica's requests as they come."""
    setting = spec.setting
    mine = [
        one
        for one in requests(setting.rate, setting.workers, spec.count, spec.seed)
        if one.replica(setting.replicas) == spec.replica
    ]
    async with _hand(spec) as hand:
        start = await stage.ready()
        taken: list[Taken] = []
        async with asyncio.TaskGroup() as underway:
            for request in mine:
                await asyncio.sleep(start + request.at - time.monotonic())
                underway.create_task(_serve(hand, request, start, taken))
    return taken


async def _serve(hand: Hand, request: Request, start: float, taken: list[Taken]) -> None:
    worker, degraded = await hand.pick(request)
    at = time.monotonic() - start
    await asyncio.sleep(request.seconds)
    hand.end(request)
    until = time.monotonic() - start
    taken.append(Taken(request.number, at, until, worker, request.tokens, degraded))


@asynccontextmanager
async def _hand(spec: Spec) -> AsyncIterator[Hand]:
    """This replica, joined."""
    setting, server = spec.setting, spec.server
    owner = Owner(f"r{spec.replica}", str(spec.seed))
    rng = random.Random(f"real/{spec.seed}/{spec.replica}")
    plane = plane_on(server, spec.pool, owner, Rules())
    mode = cast("Mode", setting.mode)
    desk = Desk(plane, owner, rules=Rules(), mode=mode, timeout=TIMEOUT, budget=BUDGET_SECONDS)
    task = asyncio.create_task(desk.run())
    try:
        if not await desk.start(20.0):
            raise RuntimeError(f"a replica did not join the plane at {server.url} within 20 s")
        yield Hand(desk, names(setting.workers), rng)
        await desk.leave()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await plane.close()


async def race(
    fleet: Fleet, server: Server, setting: Setting, *, count: int, seed: int, turn: int
) -> Verdict:
    """One run. ``turn`` numbers the runs on this server, so that no two share a pool."""
    pool = f"bench/race-{turn}"
    specs = [Spec(server, pool, n, setting, count, seed) for n in range(setting.replicas)]
    if setting.mode == "atomic":
        async with _recorder(server, pool) as changes:
            told = await fleet.together(replica, specs)
        order = in_plane_order(_numbered(changes, setting.workers), setting.workers)
    else:
        told, order = await fleet.together(replica, specs), {}
    return judge(
        _picks(told, setting, order),
        setting.workers,
        max(warm_up(setting.rate, setting.workers), JOINED_SECONDS),
    )


def _picks(told: Sequence[Sequence[Taken]], setting: Setting, order: dict[int, bool]) -> list[Pick]:
    """A pick on the plane's own sums is judged in the plane's order, one on a view by the clock that all share."""
    numbers = {name: number for number, name in enumerate(names(setting.workers))}
    found = []
    for taken in (one for each in told for one in each):
        pick = Pick(taken.at, taken.until, numbers[taken.worker], taken.tokens, degraded=taken.degraded)
        found.append(pick if taken.degraded else replace(pick, wrong=order.get(taken.number)))
    return found


@asynccontextmanager
async def _recorder(server: Server, pool: str) -> AsyncIterator[list[Booked | Gone]]:
    """All that is booked and ends in a pool meanwhile, in the plane's order."""
    plane = plane_on(server, pool, Owner("recorder", pool), Rules())
    found: list[Booked | Gone] = []
    keep = found.append
    beat = await plane.start({})
    await plane.rebooked()

    async def follow() -> None:
        async for change in plane.changes(beat.version):
            if isinstance(change, Booked | Gone):
                keep(change)

    following = asyncio.create_task(follow())
    try:
        yield found
        await asyncio.sleep(0.1)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await plane.close()


def _numbered(changes: Sequence[Booked | Gone], workers: int) -> list[tuple[int, int, int]]:
    numbers = {name: number for number, name in enumerate(names(workers))}
    return [
        (request_of(change.booking.id), numbers[change.booking.worker], change.booking.amount.prefill_tokens)
        if isinstance(change, Booked)
        else (request_of(change.id), 0, 0)
        for change in changes
    ]
