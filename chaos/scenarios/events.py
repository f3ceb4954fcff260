"""KV events and the server that carries them: away, lost, doubled, out of order, poisoned, held up by a slow one."""

from __future__ import annotations

from chaos.checks import ALWAYS, calls_made, counted, fault_seen, indexes_true
from chaos.indexes import compare_indexes
from chaos.injectors.consumer import slow_consumer
from chaos.injectors.links import partition
from chaos.injectors.messages import double, drop, reorder
from chaos.injectors.poison import poison_events
from chaos.injectors.process import restart
from chaos.run import Run
from chaos.scenario import scenario
from chaos.scenarios.common import BRISK, WIRED, in_time


@scenario(topology=WIRED, load=BRISK, planes=("redis",), budget=75)
async def events_server_restarts(run: Run) -> None:
    """A NATS server that comes back costs no pick anything, and every index is what the engines hold again.

    On Redis alone: with the NATS plane the same server keeps the bookings, and `plane_comes_back_empty` restarts it.
    """
    run.happened(fault_seen("restart"), calls_made(at_least=50))
    run.holds(*ALWAYS, in_time("restart"), indexes_true())
    await run.steady(seconds=3)
    async with run.inject(restart("nats")):
        await run.hold(seconds=4)
    await run.settle(seconds=3)
    await compare_indexes(run)


@scenario(topology=WIRED, load=BRISK, budget=75)
async def one_replica_cut_off_from_events(run: Run) -> None:
    """A replica that hears no events picks on, and knows afterwards what every engine holds."""
    run.happened(fault_seen("partition", lasting=5), calls_made(at_least=70))
    run.holds(*ALWAYS, in_time("partition"), indexes_true())
    await run.steady(seconds=2)
    async with run.inject(partition(f"{run.a_replica()}>nats")):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    await compare_indexes(run)


@scenario(topology=WIRED, load=BRISK, budget=75)
async def events_lost(run: Run) -> None:
    """Of lost events every replica sees the gap and asks: afterwards it knows what every engine holds."""
    run.happened(
        fault_seen("messages-drop"),
        counted("picker_events_stream_gaps_total"),
        counted("picker_events_asks_total"),
    )
    run.holds(*ALWAYS, in_time("messages-drop"), indexes_true())
    await run.steady(seconds=1)
    async with run.inject(drop("bridge-*>nats", share=0.3, seed=run.rng.randrange(1000))):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    await compare_indexes(run)


@scenario(topology=WIRED, load=BRISK, budget=75)
async def events_doubled_and_out_of_order(run: Run) -> None:
    """Events that come twice, or after their successor, change nothing but the work they make."""
    run.happened(fault_seen("messages-double"), fault_seen("messages-reorder"), calls_made(at_least=60))
    run.holds(*ALWAYS, in_time("messages-double"), indexes_true())
    await run.steady(seconds=1)
    seed = run.rng.randrange(1000)
    async with run.inject(double("picker-*>nats", share=0.5, seed=seed), reorder("bridge-*>nats", seed=seed)):
        await run.hold(seconds=5)
    await run.settle(seconds=3)
    await compare_indexes(run)


@scenario(topology=WIRED, load=BRISK, budget=75)
async def poisoned_events(run: Run) -> None:
    """Bytes that are no events are counted and dropped; what the worker truly said counts on."""
    run.happened(fault_seen("poison-events"), counted("picker_events_malformed_total", at_least=30))
    run.holds(*ALWAYS, in_time("poison-events"), indexes_true())
    await run.steady(seconds=2)
    async with run.inject(poison_events(run.an_engine(), seed=run.rng.randrange(1000))):
        await run.hold(seconds=3)
    await run.settle(seconds=3)
    await compare_indexes(run)


@scenario(topology=WIRED, load=BRISK, budget=75)
async def slow_consumer_on_nats(run: Run) -> None:
    """A stranger that takes everything from NATS and reads nothing holds nobody up."""
    run.happened(fault_seen("slow-consumer", lasting=5), calls_made(at_least=70))
    run.holds(*ALWAYS, in_time("slow-consumer"), indexes_true())
    await run.steady(seconds=2)
    async with run.inject(slow_consumer()):
        await run.hold(seconds=6)
    await run.settle(seconds=3)
    await compare_indexes(run)
