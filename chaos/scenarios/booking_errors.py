"""What a death and a retry cost in booking error, beside replicas that share nothing, or only tell and forget.

`picker chaos errors` makes the page of numbers from the reports.
"""

from __future__ import annotations

import asyncio

from chaos.checks import always, booking_error, booking_shown, calls_made, fault_seen, in_flight
from chaos.injectors.process import kill
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario

LONGER = OpenLoop(rate=8, long_share=0.4, long_tokens=(120, 240), cancel_share=0)
BESIDE = OpenLoop(rate=4, cancel_share=0)
TRIES = 8


@scenario(load=LONGER, budget=75, twins=("fault_free",))
async def booking_error_of_a_death(run: Run) -> None:
    """What replicas believe wrongly because one of them died is a tenth at most of what tell-and-forget makes of it."""
    await run.steady(seconds=4)
    replica = await run.a_busy_replica(at_least=4)
    async with run.inject(kill(replica)):
        await run.hold(seconds=8)
    await run.settle(seconds=3)
    run.happened(fault_seen("kill"), calls_made(at_least=80), in_flight("kill", at_least=3, on="target"))
    run.holds(*always(lost=3), booking_error(at_most_share=0.1, noise=0))


@scenario(load=BESIDE, budget=75, twins=("fault_free",))
async def booking_error_of_retries(run: Run) -> None:
    """Requests whose replica dies are sent again to another; half of their first workers stop, half work on in vain."""
    run.happened(fault_seen("kill"), booking_shown(attempt=2, at_least=TRIES))
    run.holds(*always(lost=3), booking_error(at_most_share=0.1, noise=0))
    here, there = run.rng.sample(run.replicas, 2)
    await run.steady(seconds=2)
    async with run.streams() as gateway, asyncio.TaskGroup() as ends:
        firsts = [await gateway.ask(here, tokens=200) for _ in range(TRIES)]
        for first in firsts:
            await first.send()
        await run.hold(seconds=1)
        async with run.inject(kill(here)):
            if run.faults:
                for number, first in enumerate(firsts):
                    await (first.break_off() if number % 2 else first.hang_up())
                firsts = [await gateway.ask(there, again=first) for first in firsts]
                for second in firsts:
                    await second.send()
            for each in firsts:
                ends.create_task(each.completed())
            await run.hold(seconds=7)
    await run.settle(seconds=3)
