"""Virtual time, bookings shared late, and what the policies make of a small trace."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path

import pytest

from picker.bench.quality.fleet import Engine, Hardware, work_of
from picker.bench.quality.plane import Hand, Plane
from picker.bench.quality.policies import Pickers
from picker.bench.quality.replica import default_weights
from picker.bench.quality.run import Setup, play, run
from picker.bench.quality.trace import TraceError, read
from picker.bench.quality.world import World
from picker.core.cost import Weights
from stateplane.booking import NOTHING, Amount, Cause

SMALL = Setup(hardware=Hardware(engines=3, blocks=60), replicas=(1, 4), seeds=2)


def test_what_is_due_happens_in_order_and_at_its_time() -> None:
    world, seen = World(), list[tuple[str, float]]()
    world.later(2, lambda: seen.append(("late", world.now())))
    world.later(1, lambda: world.later(0.5, lambda: seen.append(("nested", world.now()))))
    world.later(1, lambda: seen.append(("second", world.now())))
    world.later(0, lambda: seen.append(("now", world.now())))
    world.every(0.8, lambda: seen.append(("tick", world.now())), first=0.8)
    world.run(lambda: ("late", 2.0) not in seen)
    assert seen == [
        ("now", 0), ("tick", 0.8), ("second", 1), ("nested", 1.5), ("tick", 1.6), ("late", 2),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="stands still"):
        World().run(lambda: True)


def test_a_booking_counts_at_once_here_and_after_the_staleness_elsewhere() -> None:
    world = World()
    plane = Plane(world, staleness=0.01, shared=True)
    one, other = Hand("one", world, plane), Hand("other", world, plane)
    one.book("b", worker="w", amount=Amount(100, 3))
    assert (one.view.load("w").prefill_tokens, other.view.load("w")) == (100, NOTHING)
    one.adjust("b", Amount(0, 3))
    world.run(lambda: world.now() < 0.01)
    world.later(0.005, lambda: one.end("b", Cause.ENDED))
    world.run(lambda: other.view.load("w") != Amount(0, 3))
    world.run(lambda: one.owns("b"))
    assert (one.view.load("w"), other.view.load("w")) == (NOTHING, Amount(0, 3))
    world.run(lambda: other.view.load("w") != NOTHING)
    assert not one.view.laid("b")


def test_an_isolated_replica_sees_its_own_bookings_only_and_forgets_them_at_their_end() -> None:
    world = World()
    plane = Plane(world, staleness=0, shared=False)
    one, other = Hand("one", world, plane), Hand("other", world, plane)
    one.book("b", worker="w", amount=Amount(100, 3))
    assert (one.view.load("w"), other.view.load("w")) == (Amount(100, 3), NOTHING)
    one.end("b", Cause.ENDED)
    assert one.view.load("w") == NOTHING
    assert not one.view.laid("b")


def test_the_price_is_the_one_that_a_replica_has_without_any_setting() -> None:
    assert default_weights() == Weights()
    assert {field.name for field in fields(Weights)} == {
        "prefill_scale", "overlap_credit", "host_tier", "disk_tier", "request_weight", "temperature",
    }  # fmt: skip


@pytest.mark.parametrize("staleness", [0.0, 0.05])
def test_after_quiet_every_replica_knows_every_cache_and_nothing_is_booked(
    trace: Path, staleness: float
) -> None:
    world, left = World(), len(read(trace))

    def ended(work: object) -> None:
        nonlocal left
        left -= 1
        pickers.ended(work.booking)  # type: ignore[attr-defined]

    fleet = {
        name: Engine(name, world, SMALL.hardware, told=lambda *told: pickers.announced(*told), ended=ended)
        for name in ("10.0.0.1:1", "10.0.0.2:1")
    }
    plane = Plane(world, staleness=staleness, shared=True)
    pickers = Pickers(fleet, world, plane, replicas=3, event_delay=0.02, rng=random.Random(2))
    for request in read(trace):
        world.later(request.at, lambda r=request: fleet[pickers.pick(r)].submit(work_of(r)))  # type: ignore[misc]
    world.run(lambda: left > 0)
    until = world.now() + 1
    world.run(lambda: world.now() < until)
    assert sum(engine.pool.evictions for engine in fleet.values()) > 0
    for replica in pickers._replicas:
        assert not replica._hand.view.bookings()
        assert not replica._hand._untold
        assert len(replica._underway) == 0
        for request in read(trace):
            match = replica._index.match(request.hashes)
            for name, engine in fleet.items():
                held = engine.cached(engine.pool.chain(None, request.prompt(), lora="", salt=""))
                assert match.overlap(name).total == held


@pytest.mark.parametrize(
    "policy", ["eventual", "isolated", "round_robin", "random", "least_load", "omniscient"]
)
def test_a_run_is_the_same_from_the_same_seed(trace: Path, policy: str) -> None:
    asked = read(trace)
    first, again = (play(asked, SMALL, policy, 2) for _ in range(2))
    assert first == again
    assert len(first.first_token_ms) == len(asked)
    assert all(each > 0 for each in first.first_token_ms)
    assert play(asked, replace(SMALL, seed=9), policy, 2).reused_tokens >= 0


def test_the_picker_reuses_what_round_robin_does_not(trace: Path) -> None:
    result = run(trace, SMALL)
    rows = {(row["policy"], row["replicas"]): row for row in result.numbers["rows"]}
    assert set(rows) == {
        ("picker_eventual", 1), ("picker_eventual", 4), ("picker_isolated", 4),
        ("round_robin", 1), ("random", 1), ("least_load", 1), ("omniscient", 1),
    }  # fmt: skip
    reused = {key: row["reused_pct"] for key, row in rows.items()}
    assert reused["picker_eventual", 1] > 1.3 * reused["round_robin", 1]
    assert reused["picker_eventual", 4] > 1.3 * reused["round_robin", 1]
    assert {row["seeds"] for key, row in rows.items() if key[0] == "picker_eventual"} == {2}
    assert result.numbers["kept"]["replicas"] == 4
    assert [budget.measured for budget in result.budgets] == [result.numbers["kept"]["share"]]
    assert all(0 <= row["ttft_p50_ms"] <= row["ttft_p90_ms"] for row in rows.values())


def test_two_processes_find_what_one_does(trace: Path) -> None:
    setup = replace(SMALL, replicas=(2,))
    assert run(trace, setup, jobs=2).as_json() == run(trace, setup).as_json()


def test_a_request_that_fits_no_engine_is_refused_with_the_way_out(trace: Path) -> None:
    with pytest.raises(TraceError, match="--blocks"):
        run(trace, replace(SMALL, hardware=Hardware(engines=3, blocks=4)))
