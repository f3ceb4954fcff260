"""What only a cluster does to replicas: rollouts, scaling, evictions, nodes that are cordoned, policies that cut."""

from __future__ import annotations

from chaos.checks import always, calls_made, fault_seen
from chaos.injectors.release import cordon, cut_off, evict, rollout, scale
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario

STEADY = OpenLoop(rate=10, long_share=0.15)


@scenario(load=STEADY, suites=("smoke", "release"), budget=90, needs=("rollout",))
async def release_rolled_out_under_load(run: Run) -> None:
    """A rollout exchanges every pod under load; it costs no request, cuts no response, and leaves no load behind."""
    await run.steady(seconds=4)
    async with run.inject(rollout()):
        await run.hold(seconds=1)
    await run.settle(seconds=4)
    run.happened(fault_seen("rollout"), calls_made(at_least=100))
    run.holds(*run.ending_in_good_order)


@scenario(load=STEADY, budget=120, needs=("scale",))
async def release_scaled_up_and_down_under_load(run: Run) -> None:
    """Two replicas more, back, one fewer, back: it costs no request; who joins knows all, who leaves takes nothing."""
    await run.steady(seconds=3)
    for more in (2, -1):
        async with run.inject(scale(more)):
            await run.hold(seconds=4)
    await run.settle(seconds=4)
    run.happened(fault_seen("scale"), calls_made(at_least=100))
    run.holds(*run.ending_in_good_order)


@scenario(load=STEADY, budget=90, needs=("evict",))
async def replica_evicted_under_load(run: Run) -> None:
    """A pod that is evicted ends in good order: it costs no request, and another one takes its place."""
    replica = run.a_replica()
    await run.steady(seconds=4)
    async with run.inject(evict(replica)):
        await run.hold(seconds=2)
    await run.settle(seconds=4)
    run.happened(fault_seen("evict", replica), calls_made(at_least=80))
    run.holds(*run.ending_in_good_order)


@scenario(load=STEADY, budget=120, needs=("cordon", "evict"))
async def node_drained_under_load(run: Run) -> None:
    """A node is cordoned and its replica evicted: the others serve all of it, until there is room again."""
    replica = run.a_replica()
    await run.steady(seconds=4)
    async with run.inject(cordon(replica), evict(replica, back=False)):
        await run.hold(seconds=6)
    await run.settle(seconds=4)
    run.happened(fault_seen("cordon", replica), fault_seen("evict", replica), calls_made(at_least=80))
    run.holds(*run.ending_in_good_order)


@scenario(load=OpenLoop(rate=10, long_share=0.25), budget=120, needs=("cut-off",))
async def replica_cut_off_by_a_policy(run: Run) -> None:
    """A replica that reaches neither plane nor peers answers what comes; the others drop what it leaves behind."""
    replica = run.a_replica()
    await run.steady(seconds=5)
    async with run.inject(cut_off(replica)):
        await run.hold(seconds=10)
    await run.settle(seconds=6)
    run.happened(fault_seen("cut-off", replica, lasting=9), calls_made(at_least=100))
    run.holds(*always(lost=run.lost(0)))
