"""All policies over one trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
from picker.sim.engine.scheduler import Sequence as Work

BASELINES = ("round_robin", "random", "least_load", "omniscient")
MODES = ("eventual", "isolated")

KEPT_SHARE = 0.99
"""Four replicas reuse at least this share of the prefix tokens that one does."""

KEPT_REPLICAS = 4


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that decides a run beside the trace."""

    hardware: Hardware = Hardware()
    staleness: float = 0.001
    """Seconds until a booking is seen by the other replicas."""
    event_delay: float = 0.005
    """Seconds until a change of an engine's cache is seen by the replicas."""
    replicas: Sequence[int] = (1, 2, 4, 8)
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy made of the trace."""

    policy: str
    replicas: int
    prompt_tokens: int
    reused_tokens: int
    first_token_ms: Sequence[float]
    busiest_over_mean: float
    """Computed prompt tokens of the busiest engine over the mean."""

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "policy": self.policy,
            "replicas": self.replicas,
            "reused_pct": round(100 * self.reused_tokens / self.prompt_tokens, 3),
            "ttft_p50_ms": round(percentile(self.first_token_ms, 0.5), 1),
            "ttft_p90_ms": round(percentile(self.first_token_ms, 0.9), 1),
            "reused_tokens": self.reused_tokens,
            "busiest_over_mean": round(self.busiest_over_mean, 3),
        }


def run(
    trace: Path,
    setup: Setup,
    *,
    requests: int | None = None,
    speed: float = 1.0,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Every policy over the trace; deterministic from the trace and the setup.

    Raises:
        TraceError: the trace cannot be read, or a request of it fits no engine.
    """
    say(f"reading {trace.name}")
    asked = read(trace, requests=requests, speed=speed)
    _check_fit(asked, setup.hardware)
    rows = []
    for mode in MODES:
        for replicas in setup.replicas:
            if mode == "isolated" and replicas == 1:
                continue  # alone there is nobody to share with
            say(f"{replicas} replica{'s' if replicas > 1 else ''}, {mode}")
            rows.append(play(asked, setup, mode, replicas))
    for policy in BASELINES:
        say(policy.replace("_", " "))
        rows.append(play(asked, setup, policy, 1))
    return Result(
        "quality",
        {"trace": trace.name, "rows": [row.as_json() for row in rows]},
        _conditions(asked, setup, speed),
        _budgets(rows),
    )


def play(asked: Sequence[Request], setup: Setup, policy: str, replicas: int) -> Row:
    """One policy over the trace, from empty caches to the last answer."""
    world, rng, first = World(), random.Random(setup.seed), []
    left = len(asked)

    def ended(work: Work) -> None:
        nonlocal left
        left -= 1
        first.append(1e3 * (work.first_token - work.arrived))
        decider.ended(work.booking)

    fleet = {
        name: Engine(
            name,
            world,
            setup.hardware,
            told=lambda worker, changes: decider.announced(worker, changes),
            ended=ended,
        )
        for name in (f"10.0.0.{number + 1}:8000" for number in range(setup.hardware.engines))
    }
    decider = _decider(policy, fleet, world, setup, replicas, rng)
    for request in asked:
        world.later(request.at, partial(_arrive, request, decider, fleet))
    world.run(lambda: left > 0)
    return _row(policy, replicas, fleet, first)


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


def _row(policy: str, replicas: int, fleet: Fleet, first: Sequence[float]) -> Row:
    counts = [engine.scheduler.counts for engine in fleet.values()]
    computed = [each.prompt_tokens - each.cached_tokens for each in counts]
    return Row(
        policy=policy if policy not in MODES else f"picker_{policy}",
        replicas=replicas,
        prompt_tokens=sum(each.prompt_tokens for each in counts),
        reused_tokens=sum(each.cached_tokens for each in counts),
        first_token_ms=first,
        busiest_over_mean=max(computed) * len(computed) / max(sum(computed), 1),
    )


def _budgets(rows: Sequence[Row]) -> list[Budget]:
    reused = {row.replicas: row.reused_tokens for row in rows if row.policy == "picker_eventual"}
    if not {1, KEPT_REPLICAS} <= reused.keys():
        return []
    share = reused[KEPT_REPLICAS] / reused[1] if reused[1] else 1.0
    name = f"prefix tokens that {KEPT_REPLICAS} replicas reuse, of what one does"
    return [Budget(name, round(share, 4), KEPT_SHARE, at_least=True)]


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
