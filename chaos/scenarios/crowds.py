"""Very many equal requests at once; responses that outlast every deadline."""

from __future__ import annotations

from chaos.checks import (
    ALWAYS,
    always,
    balanced,
    booking_shown,
    calls_made,
    fault_seen,
    in_flight,
    under_way_at_once,
)
from chaos.injectors.process import kill
from chaos.load import OpenLoop
from chaos.run import Run
from chaos.scenario import scenario
from chaos.topology import Topology

HERD = OpenLoop(
    rate=4, equal=True, bursts=((3.0, 60), (6.0, 60)), tokens=(20, 60), long_share=0, cancel_share=0
)
DEADLINES = {"PICKER_DRAIN_SECONDS": "4", "PICKER_DRAIN_BLIND_SECONDS": "4", "PICKER_TOMBSTONE_SECONDS": "5"}


@scenario(load=HERD, budget=75, twins=("one_replica",))
async def herd_of_equal_requests(run: Run) -> None:
    """Sixty equal requests at once spread over the workers nearly as one replica alone would spread them."""
    await run.steady(seconds=12)
    run.happened(calls_made(at_least=140), under_way_at_once(at_least=50))
    run.holds(*ALWAYS, balanced(within=0.35))


@scenario(
    topology=Topology(settings=DEADLINES),
    load=OpenLoop(rate=5, long_share=0.4, long_tokens=(650, 850), cancel_share=0),
    budget=90,
)
async def responses_longer_than_every_deadline(run: Run) -> None:
    """A response that outlasts lease and drain deadline counts to its end, also when its replica is dead by then."""
    await run.steady(seconds=4)
    replica = await run.a_busy_replica(at_least=3)
    async with run.inject(kill(replica)):
        await run.hold(seconds=10)
    await run.settle(seconds=1)
    run.happened(
        fault_seen("kill", replica, lasting=9), in_flight("kill", at_least=2, on="target"), calls_made(at_least=50),
        booking_shown(state="draining", cause="lease"),
    )  # fmt: skip
    run.holds(*always(lost=3))
