"""All policies over one trace."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from picker.bench.budget import Budget, Result
from picker.bench.quality.fleet import Engine, Hardware, work_of
from picker.bench.quality.plane import Plane
from picker.bench.quality.policies import (
    AtRandom,
    Fleet,
    LeastLoad,
    Omniscient,
    Pickers,
    Policy,
    RoundRobin,
)
from picker.bench.quality.trace import BLOCK_TOKENS, Request, TraceError, read
from picker.bench.quality.world import World
from picker.bench.timing import percentile
from picker.events.bridge.changes import Change
from picker.sim.engine.scheduler import Sequence as Work

BASELINES = ("round_robin", "random", "least_load", "omniscient")
MODES = ("eventual", "isolated")

KEPT_SHARE = 0.99
"""Four replicas reuse at least this share of the prefix tokens that one does."""

COMPARED = (("eventual", 1), ("eventual", 4))
"""What that budget compares."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that decides a run beside the trace."""

    hardware: Hardware = field(default_factory=Hardware)
    staleness: float = 0.001
    """Seconds until a booking is seen by the other replicas."""
    event_delay: float = 0.005
    """Seconds until a change of an engine's cache is seen by the replicas."""
    replicas: Sequence[int] = (1, 2, 4, 8)
    seed: int = 1
    seeds: int = 5
    """So many seeds, from that one on, for what the budget compares."""


@dataclass(frozen=True, slots=True)
class Play:
    """What one policy made of the trace, once."""

    reused_tokens: int
    first_token_ms: Sequence[float]
    busiest_over_mean: float
    """Computed prompt tokens of the busiest engine over the mean."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy made of the trace, over its seeds."""

    policy: str
    replicas: int
    prompt_tokens: int
    plays: Sequence[Play]

    @property
    def reused_tokens(self) -> float:
        """Prompt tokens found in the engines' caches, mean over the seeds."""
        return mean(play.reused_tokens for play in self.plays)

    @property
    def error(self) -> float | None:
        """Standard error of that mean; None where there is one seed."""
        if len(self.plays) < 2:
            return None
        return stdev(play.reused_tokens for play in self.plays) / math.sqrt(len(self.plays))

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        first = [each for play in self.plays for each in play.first_token_ms]
        return {
            "policy": self.policy,
            "replicas": self.replicas,
            "reused_pct": round(100 * self.reused_tokens / self.prompt_tokens, 3),
            "reused_error_pct": None
            if self.error is None
            else round(100 * self.error / self.prompt_tokens, 3),
            "ttft_p50_ms": round(percentile(first, 0.5), 1),
            "ttft_p90_ms": round(percentile(first, 0.9), 1),
            "busiest_over_mean": round(mean(play.busiest_over_mean for play in self.plays), 3),
            "seeds": len(self.plays),
        }


Kind = tuple[str, int]
"""A policy and its number of replicas."""


def run(
    trace: Path,
    setup: Setup,
    *,
    requests: int | None = None,
    speed: float = 1.0,
    jobs: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Every policy over the trace, ``jobs`` at a time; the same numbers from the same trace and setup.

    What the budget compares is played with several seeds, everything else with the first one: a tie that falls
    otherwise early on changes all that follows.

    Raises:
        TraceError: the trace cannot be read, or a request of it fits no engine.
    """
    say(f"reading {trace.name}")
    asked = read(trace, requests=requests, speed=speed)
    _check_fit(asked, setup.hardware)
    kinds = [(mode, n) for mode in MODES for n in setup.replicas if mode == "eventual" or n > 1]
    kinds += [(policy, 1) for policy in BASELINES]
    plans = [
        (kind, setup.seed + number)
        for kind in kinds
        for number in range(setup.seeds if kind in COMPARED else 1)
    ]
    plays: dict[Kind, list[Play]] = {}
    for (kind, seed), play_ in zip(plans, _played(asked, setup, plans, jobs), strict=True):
        plays.setdefault(kind, []).append(play_)
        say(f"{kind[0].replace('_', ' ')}, replicas: {kind[1]}, seed {seed}: done")
    tokens = sum(request.input_length for request in asked)
    rows = [Row(_shown(kind[0]), kind[1], tokens, plays[kind]) for kind in kinds]
    return Result(
        "quality",
        {"trace": trace.name, "rows": [row.as_json() for row in rows], **_kept(rows)},
        _conditions(asked, setup, speed),
        _budgets(rows),
    )


def _played(
    asked: Sequence[Request], setup: Setup, plans: Sequence[tuple[Kind, int]], jobs: int
) -> Iterator[Play]:
    """The plays in the order of the plans."""
    if jobs <= 1:
        yield from (play(asked, replace(setup, seed=seed), *kind) for kind, seed in plans)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_take, initargs=(asked, setup)
    ) as pool:
        yield from pool.map(_play_here, plans)


_taken: list[tuple[Sequence[Request], Setup]] = []
"""In a child process: what it was given at its start."""


def _take(asked: Sequence[Request], setup: Setup) -> None:
    _taken.append((asked, setup))


def _play_here(plan: tuple[Kind, int]) -> Play:
    (asked, setup), (kind, seed) = _taken[0], plan
    return play(asked, replace(setup, seed=seed), *kind)


def play(asked: Sequence[Request], setup: Setup, policy: str, replicas: int) -> Play:
    """One policy over the trace, from empty caches to the last answer."""
    world, rng, first = World(), random.Random(setup.seed), []
    left = len(asked)

    def ended(work: Work) -> None:
        nonlocal left
        left -= 1
        first.append(1e3 * (work.first_token - work.arrived))
        decider.ended(work.booking)

    def told(worker: str, changes: list[Change]) -> None:
        decider.announced(worker, changes)

    fleet = {
        name: Engine(
            name,
            world,
            setup.hardware,
            told=told,
            ended=ended,
        )
        for name in (f"10.0.0.{number + 1}:8000" for number in range(setup.hardware.engines))
    }
    decider = _decider(policy, fleet, world, setup, replicas, rng)
    for request in asked:
        world.later(request.at, partial(_arrive, request, decider, fleet))
    world.run(lambda: left > 0)
    return _outcome(fleet, first)


def _arrive(request: Request, decider: Policy, fleet: Fleet) -> None:
    fleet[decider.pick(request)].submit(work_of(request))


def _decider(
    policy: str, fleet: Fleet, world: World, setup: Setup, replicas: int, rng: random.Random
) -> Policy:
    if policy in MODES:
        plane = Plane(world, staleness=setup.staleness, shared=policy == "eventual")
        return Pickers(fleet, world, plane, replicas=replicas, event_delay=setup.event_delay, rng=rng)
    made: dict[str, Callable[[], Policy]] = {
        "round_robin": lambda: RoundRobin(sorted(fleet)),
        "random": lambda: AtRandom(sorted(fleet), rng),
        "least_load": lambda: LeastLoad(fleet, rng),
        "omniscient": lambda: Omniscient(fleet, rng),
    }
    return made[policy]()


def _outcome(fleet: Fleet, first: Sequence[float]) -> Play:
    counts = [engine.scheduler.counts for engine in fleet.values()]
    computed = [each.prompt_tokens - each.cached_tokens for each in counts]
    return Play(
        sum(each.cached_tokens for each in counts),
        first,
        max(computed) * len(computed) / max(sum(computed), 1),
    )


def _shown(policy: str) -> str:
    return f"picker_{policy}" if policy in MODES else policy


def _kept(rows: Sequence[Row]) -> dict[str, Any]:
    """How much of what one replica reuses several reuse, with the error of that share."""
    found = {(row.policy, row.replicas): row for row in rows}
    pair = [found.get((_shown(mode), replicas)) for mode, replicas in COMPARED]
    one, several = pair
    if one is None or several is None or not one.reused_tokens:
        return {}
    share = several.reused_tokens / one.reused_tokens
    error = None
    if one.error is not None and several.error is not None:
        parts = (one.error / one.reused_tokens, several.error / max(several.reused_tokens, 1))
        error = round(share * math.hypot(*parts), 4)
    return {"kept": {"replicas": several.replicas, "share": round(share, 4), "error": error}}


def _budgets(rows: Sequence[Row]) -> list[Budget]:
    kept = _kept(rows).get("kept")
    if kept is None:
        return []
    name = f"prefix tokens that {kept['replicas']} replicas reuse, of what one does"
    return [Budget(name, kept["share"], KEPT_SHARE, at_least=True)]


def _check_fit(asked: Sequence[Request], hardware: Hardware) -> None:
    longest = max(request.input_length + request.output_length for request in asked)
    if longest > hardware.blocks * BLOCK_TOKENS:
        raise TraceError(
            f"a request of {longest:,} tokens does not fit an engine of {hardware.blocks} blocks of "
            f"{BLOCK_TOKENS} tokens; give larger ones with --blocks"
        )


def _conditions(asked: Sequence[Request], setup: Setup, speed: float) -> dict[str, Any]:
    pace = setup.hardware.pace
    return {
        "requests": len(asked),
        "prompt_tokens": sum(request.input_length for request in asked),
        "speed": speed,
        "seed": setup.seed,
        "staleness_ms": setup.staleness * 1e3,
        "event_delay_ms": setup.event_delay * 1e3,
        "engines": setup.hardware.engines,
        "blocks": setup.hardware.blocks,
        "block_tokens": BLOCK_TOKENS,
        "prefill_us_per_token": round(pace.prefill_seconds_per_token * 1e6, 3),
        "decode_ms": round(pace.decode_seconds * 1e3, 3),
    }
