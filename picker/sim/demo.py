"""`picker demo`: the same trace round robin and through three replicas, one of which is killed in between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from picker.sim.agreement import Observer
from picker.sim.board import Board, ReplicaState, Story
from picker.sim.cluster import Cluster, Layout
from picker.sim.load import Arrival
from picker.sim.model import MODEL
from picker.sim.programs import Replica
from picker.sim.replay import Replay, Sent, in_flight, phase_of
from picker.sim.score import FEWEST_HELD, Check, Numbers, Score, read_numbers
from picker.sim.trace import arrivals, sample

CHECKS = 10
KILL_AFTER, RESTART_AFTER = 5, 7
"""After which checks the replica is killed, and brought back."""
HELD = 28
HELD_TOKENS = 160
ARRIVING_SECONDS = 50.0
"""The trace's arrivals are compressed into so many seconds."""
ENGINE = ("--decode-ms", "20", "--prefill-us-per-token", "300")
SETTINGS = {"PICKER_PREFILL_SCALE": "2"}
"""On these engines a block of prefill takes 5 ms of a step, and a block that is decoded next to nothing."""
ROUND_ROBIN, THROUGH_PICKER = "round robin", "picker"
_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


def layout() -> Layout:
    """Three replicas, four engines that are as fast as a large model on a small machine."""
    return Layout(replicas=3, workers=4, engine_options=ENGINE, settings=SETTINGS)


def requests_of_the_trace(count: int | None) -> Sequence[Arrival]:
    """The first ``count`` requests of the sample (all of them: None), in `ARRIVING_SECONDS`."""
    rows = sample()[:count]
    return arrivals(rows, speed=max(1.0, rows[-1].at / ARRIVING_SECONDS), model=MODEL)


@dataclass(slots=True)
class _Kill:
    replica: Replica
    begun: float = 0.0
    done: float = 0.0
    before: Numbers = field(default_factory=Numbers)


class Demo:
    """One demo on a cluster that runs already."""

    def __init__(self, cluster: Cluster, board: Board, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._board = board
        self._session = session
        self._observer = Observer(session)
        self._checks: list[Check] = []
        self._kill = _Kill(cluster.replicas[1])
        self._killing: asyncio.Task[None] | None = None
        self._replay: Replay | None = None
        board.replicas = {replica.name: ReplicaState() for replica in cluster.replicas}

    async def run(self, wanted: Sequence[Arrival]) -> tuple[Score, Story]:
        """Both replays; raises ProcessError or aiohttp's errors when the cluster itself breaks."""
        begun = time.monotonic()
        watching = asyncio.create_task(self._watch(), name="watch")
        try:
            before = await self._first(wanted)
            await self._reset_caches()
            after = await self._second(wanted)
            numbers = await self._numbers()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        lost = [each for each in in_flight(after, self._kill.begun, self._kill.done) if each.record.failed]
        score = Score(
            round_robin=phase_of(before),
            picker=phase_of(after, excused=len(lost)),
            killed=self._kill.replica.name,
            killed_in_flight=len(lost),
            numbers=numbers,
            checks=self._checks,
            wanted_checks=CHECKS,
        )
        return score, self._story(after, time.monotonic() - begun)

    def _story(self, sent: Sequence[Sent], seconds: float) -> Story:
        open_then = in_flight(sent, self._kill.done, self._kill.begun)
        return Story(
            replicas=len(self._cluster.replicas),
            workers=len(self._cluster.workers),
            killed_after=sum(1 for each in sent if each.began < self._kill.begun),
            open_at_kill=len(open_then),
            seconds=seconds,
        )

    # the two replays

    async def _first(self, wanted: Sequence[Arrival]) -> list[Sent]:
        self._board.say(f"first: {len(wanted)} requests round robin, no picker")

        async def pause(number: int) -> None:
            replay.hold(HELD, tokens=HELD_TOKENS, about=f"Stop {number}")
            await asyncio.sleep(1.0)

        replay = Replay(self._cluster.round_robin_url, wanted, stretches=CHECKS, on_pause=pause)
        self._board.phases[ROUND_ROBIN] = replay.progress
        return await replay.run()

    async def _second(self, wanted: Sequence[Arrival]) -> list[Sent]:
        self._board.say(f"now the same through {len(self._cluster.replicas)} replicas of the picker")
        self._replay = Replay(self._cluster.envoy_url, wanted, stretches=CHECKS, on_pause=self._pause)
        self._board.phases[THROUGH_PICKER] = self._replay.progress
        try:
            return await self._replay.run()
        finally:
            if self._killing:
                self._killing.cancel()
                await asyncio.gather(self._killing, return_exceptions=True)

    async def _pause(self, number: int) -> None:
        if number == RESTART_AFTER + 1:
            await self._revive()
        await self._check(number)
        if number == KILL_AFTER:
            self._killing = asyncio.create_task(self._strike(), name="kill")

    # one comparison

    async def _check(self, number: int) -> None:
        assert self._replay is not None
        replicas = self._cluster.living_replicas()
        self._replay.hold(HELD, tokens=HELD_TOKENS, about=f"Stop {number}")
        await self._until_held(replicas)
        views, truth = await asyncio.gather(
            self._observer.agree(replicas, within=2.0),
            self._observer.truth(replicas, self._cluster.workers, within=8.0),
        )
        check = Check(len(replicas), views, truth)
        self._checks.append(check)
        outcome = "the same" if check.good else "NOT the same: " + "; ".join(check.faults())
        self._board.say(
            f"check {number} of {CHECKS}: {len(replicas)} replicas, {views.bookings} bookings held, {outcome}"
        )

    async def _until_held(self, replicas: Sequence[Replica]) -> None:
        """Wait until every replica has heard of enough bookings; a comparison before would say little."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
                views = await self._observer.views(replicas)
                if min(len(shown) for shown in views.values()) >= FEWEST_HELD:
                    return
            await asyncio.sleep(0.05)

    # the kill

    async def _strike(self) -> None:
        """Kill one replica while arrivals go on and responses that it placed are running."""
        await asyncio.sleep(0.5)
        name = self._kill.replica.name
        self._kill.before = await self._numbers_of(self._kill.replica)
        self._kill.begun = time.monotonic()
        await self._cluster.kill(name)
        self._kill.done = time.monotonic()
        self._board.replicas[name].state = "killed"
        self._board.say(f"SIGKILL of {name}")

    async def _revive(self) -> None:
        name = self._kill.replica.name
        await self._cluster.restart(name)
        self._board.replicas[name].state = "back"
        self._board.say(f"{name} is started again, and ready")

    # the cluster around

    async def _reset_caches(self) -> None:
        """Empty every engine's prefix cache, so that the second replay finds what the first one found: nothing."""
        for worker in self._cluster.workers:
            for _ in range(100):
                async with self._session.post(
                    f"http://{worker.address}/reset_prefix_cache", timeout=_TIMEOUT
                ) as response:
                    if (await response.json())["cleared"]:
                        break
                await asyncio.sleep(0.1)
            else:
                raise RuntimeError(f"{worker.name} does not empty its cache: requests still run after 10 s")
        self._board.say("the engines' caches are emptied")

    async def _numbers_of(self, replica: Replica) -> Numbers:
        async with self._session.get(f"http://{replica.admin}/metrics", timeout=_TIMEOUT) as response:
            response.raise_for_status()
            return read_numbers(await response.text())

    async def _numbers(self) -> dict[str, Numbers]:
        """Each replica's numbers; of the killed one those before the kill and those of its new life."""
        found: dict[str, Numbers] = {}
        for replica in self._cluster.replicas:
            found[replica.name] = Numbers()
            if self._cluster.children[replica.name].alive:
                found[replica.name] = await self._numbers_of(replica)
            if replica is self._kill.replica:
                found[replica.name] += self._kill.before
        return found

    async def _watch(self) -> None:
        """Keep the board's replicas fresh."""
        while True:
            for replica in self._cluster.living_replicas():
                state = self._board.replicas[replica.name]
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
                    state.numbers = await self._numbers_of(replica)
                    if replica is self._kill.replica:
                        state.numbers += self._kill.before
                    state.bookings = len(await self._observer.bookings(replica))
            self._board.tick()
            await asyncio.sleep(1.0)
