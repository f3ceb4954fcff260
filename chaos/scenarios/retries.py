"""One request, several tries: on another replica, on another worker, one after the other or side by side."""

from __future__ import annotations

from chaos.checks import always, booking_shown, calls_made, fault_seen, in_flight, retried
from chaos.injectors.process import kill
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology

LONG_ANSWERS = OpenLoop(rate=8, long_share=0.5, long_tokens=(150, 300), retries=3, cancel_share=0)
BESIDE = OpenLoop(rate=4, cancel_share=0)


@scenario(topology=Topology(hold="response", access_log=False), load=LONG_ANSWERS, budget=75)
async def retried_after_a_loss_where_the_gateway_fails_closed(run: Run) -> None:
    """What a replica's death cuts is sent again and answered by another one; no try counts for longer than it works."""
    await run.steady(seconds=4)
    replica = await run.a_busy_replica(at_least=3)
    async with run.inject(kill(replica)):
        await run.hold(seconds=7)
    await run.settle(seconds=2)
    run.happened(fault_seen("kill"), in_flight("kill", at_least=2, on="target"), retried(at_least=1))
    run.holds(*always(lost=4))


@scenario(topology=Topology(hold="response", fails_open=True), load=LONG_ANSWERS, budget=75)
async def retried_after_a_loss_where_the_gateway_fails_open(run: Run) -> None:
    """A gateway that goes on without a picker changes none of it: what was cut is sent again, and counted once."""
    await run.steady(seconds=4)
    replica = await run.a_busy_replica(at_least=3)
    async with run.inject(kill(replica)):
        await run.hold(seconds=7)
    await run.settle(seconds=2)
    run.happened(fault_seen("kill"), in_flight("kill", at_least=2, on="target"), retried(at_least=1))
    run.holds(*always(lost=4, refused=4))


@scenario(load=BESIDE, suites=("smoke", "release"), budget=60)
async def retried_while_the_first_worker_still_works(run: Run) -> None:
    """A stream breaks, its worker works on, the retry runs elsewhere: both count as long as they run, and no longer."""
    run.happened(
        calls_made(at_least=20), booking_shown(attempt=2), booking_shown(superseded=True, state="draining")
    )
    run.holds(*always())
    here, there = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=2)
    async with run.streams() as gateway:
        first = await gateway.ask(here, tokens=240)
        await first.send()
        await run.hold(seconds=1)
        await first.break_off()
        second = await gateway.ask(there, again=first)
        await second.send()
        await second.answered()
        await run.hold(seconds=4)
        await second.served_out()
        await second.finished()
        await first.served_out()
    await run.settle(seconds=2)


@scenario(load=BESIDE, budget=60)
async def gateway_tries_another_worker_in_the_same_stream(run: Run) -> None:
    """The gateway itself goes on to a second worker: the booking moves there, the first counts while it still works."""
    run.happened(calls_made(at_least=15), booking_shown(cause="moved", superseded=True))
    run.holds(*always())
    await run.steady(seconds=2)
    async with run.streams() as gateway:
        attempt = await gateway.ask(run.a_replica(), tokens=160)
        await attempt.send()
        second = next(worker for worker in run.target.engines().values() if worker != attempt.worker)
        await attempt.send(second)
        await attempt.answered(served=second)
        await run.hold(seconds=3)
        await attempt.served_out()
        await attempt.finished()
    await run.settle(seconds=2)


@scenario(load=BESIDE, budget=60)
async def hedged_on_two_replicas(run: Run) -> None:
    """A caller asks two replicas at once and leaves the slower answer: each try counts until its own end."""
    run.happened(calls_made(at_least=15), booking_shown(attempt=2, state="active"))
    run.holds(*always())
    here, there = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=2)
    async with run.streams() as gateway:
        first = await gateway.ask(here, tokens=200)
        second = await gateway.ask(there, again=first)
        for attempt in (first, second):
            await attempt.send()
            await attempt.answered()
        await run.hold(seconds=2)
        await second.hang_up()
        await second.break_off()
        await run.hold(seconds=2)
        await first.served_out()
        await first.finished()
    await run.settle(seconds=2)
