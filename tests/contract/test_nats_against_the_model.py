"""The NATS plane does what the model does, whatever happens in whatever order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from stateplane.booking import Booking, Owner
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.nats.address import Names
from stateplane.plane import StatePlane
from tests.contract.natsserver import NatsHarness
from tests.contract.natsserver import Server as NatsServer
from tests.contract.stateplane.test_against_the_model import NAMES, POOLS, RULES, Comparison, Operation


class NatsComparison(Comparison):
    """The same steps, with planes on NATS for the real ones. Checkpoints are stored after every few messages."""

    nats: NatsServer
    storage: str

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.runner = asyncio.Runner()
        self.pool = f"pool-{next(POOLS)}"
        self.harness = NatsHarness(self.nats, self.storage, rules=RULES, checkpoint_every=5)
        self.harness.timeout = 5
        self.seconds = 1_000.0
        self.store = MemoryStore(RULES, clock=lambda: self.seconds)
        self.model: dict[str, StatePlane] = {}
        self.real: dict[str, StatePlane] = {}
        self.sent: list[tuple[str, Operation]] = []
        self.seen: dict[str, Booking] = {}

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            owner = Owner(name, "1")
            self.model[name] = MemoryPlane(self.store, owner=owner, timeout=5)
            self.real[name] = self.harness.open(owner, pool=self.pool)
        self.start_all()

    def move_clock(self, seconds: float) -> None:
        self.seconds += seconds
        self.run(self.harness.move_clock(seconds))

    def select(self) -> None:
        """No such step: NATS does not choose."""

    @rule(lose=st.booleans())
    def the_plane_restarts(self, lose: bool) -> None:
        self.run(self.lose_all() if lose else self.harness.begin_anew())
        self.store.restart(lose=lose)
        self.start_all()

    async def lose_all(self) -> None:
        jetstream = (await self.harness.client()).jetstream(timeout=5)
        names = Names.of(self.pool)
        await jetstream.delete_stream(names.log)
        await jetstream.delete_stream(names.store)
        self.harness.clocks[self.pool].restart()

    def teardown(self) -> None:
        try:
            if self.model:
                self.changes_fold_into_the_picture()
        finally:
            for plane in self.model.values():
                self.run(plane.close())
            if self.model:
                self.run(self.lose_all())
            self.run(self.harness.close())
            self.runner.close()


@pytest.mark.parametrize("kept", ["memory", "file"])
@pytest.mark.timeout(600)
def test_the_nats_plane_does_what_the_model_does(nats_server: NatsServer, kept: str) -> None:
    class OnNats(NatsComparison):
        nats = nats_server
        storage = kept

    run_state_machine_as_test(
        OnNats,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
