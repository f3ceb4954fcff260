"""Clocks are really stepped: the servers themselves, and what a NATS server's clients are told, say so."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chaos.injectors import InjectionError, clock
from chaos.injectors.nats import NatsWire
from chaos.injectors.natsclock import ServerClock
from picker.sim import programs
from picker.sim.programs import Replica
from stateplane.booking import Cause, Owner, Rules
from stateplane.nats.plane import NatsPlane
from stateplane.testing.world import booking
from tests.contract.chaos.conftest import Stage

FIVE_MINUTES = 300.0


@pytest.mark.parametrize("seconds", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_valkeys_clock_is_stepped_while_it_runs_and_back(stage: Stage, seconds: float) -> None:
    pid = (await stage.start_valkey(clocked=True)).pid
    assert abs(await clock.ahead(stage, "valkey")) < 1
    async with clock.step("plane", seconds=seconds).into(stage):
        assert abs(await clock.ahead(stage, "valkey") - seconds) < 2.5
        assert abs(stage.evidence("seen")["ahead"] - seconds) < 2.5
    assert abs(await clock.ahead(stage, "valkey")) < 2.5
    assert stage.pid("plane") == pid


async def test_an_engines_wall_clock_is_stepped_and_its_own_pace_is_not(stage: Stage) -> None:
    (worker,) = programs.workers_at(stage.servers.spare, 1)
    stage.servers.workers.append(worker)
    await stage.start(programs.engine(worker, ()), clocked=True)
    async with clock.step("engine-0", seconds=-FIVE_MINUTES).into(stage):
        begun = time.monotonic()
        assert await programs.engine(worker, ()).ready()
        assert time.monotonic() - begun < 5
    assert stage.phases == ["begin", "seen", "healing", "healed"]


async def test_a_clock_that_the_topology_does_not_name_cannot_be_stepped(stage: Stage) -> None:
    await stage.start_valkey()
    with pytest.raises(InjectionError, match="does not name it in clocks"):
        async with clock.step("plane", seconds=1).into(stage):
            pytest.fail("entered")


def test_a_missing_library_is_said_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(clock.LIBRARY_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InjectionError, match="there is no such file"):
        clock.environment(tmp_path, "valkey")
    monkeypatch.delenv(clock.LIBRARY_VARIABLE)
    monkeypatch.setattr(clock, "_PLACES", (tmp_path,))
    with pytest.raises(InjectionError, match="package libfaketime"):
        clock.environment(tmp_path, "valkey")


async def test_without_a_wire_before_the_plane_the_clock_of_nats_stays(stage: Stage) -> None:
    await stage.start_nats()
    stage.servers.replicas = [Replica("picker-0", "", "", "")]
    with pytest.raises(InjectionError, match="no wire that knows NATS on picker-0>plane"):
        async with clock.step("nats", seconds=1).into(stage):
            pytest.fail("entered")


async def test_every_plane_on_nats_is_told_the_stepped_time_and_bookings_live_on(stage: Stage) -> None:
    await stage.start_nats()
    planes = []
    for name in ("picker-0", "picker-1"):
        wire = await stage.nats_wire(f"{name}>plane")
        stage.servers.replicas.append(Replica(name, "", "", ""))
        planes.append(
            NatsPlane(
                f"nats://{wire.listen}/?storage=memory",
                pool="ns/p",
                owner=Owner(name, "1"),
                rules=Rules(),
                timeout=2.0,
            )
        )
    beats = asyncio.create_task(_beat(planes))
    try:
        await asyncio.sleep(0.5)
        await planes[0].book(booking("1"))
        await planes[0].drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=20)
        async with clock.step("nats", seconds=FIVE_MINUTES).into(stage):
            await asyncio.sleep(2.5)
            pictures = [await plane.snapshot() for plane in planes]
            assert [[one.id for one in each.bookings] for each in pictures] == [["1"], ["1"]]
            (told,) = {id(wire.clock) for wire in stage.open_wires.values() if isinstance(wire, NatsWire)}
            assert told
        shared = next(wire.clock for wire in stage.open_wires.values() if isinstance(wire, NatsWire))
        assert isinstance(shared, ServerClock)
        assert shared.stamped > 2
        assert stage.phases == ["begin", "seen", "healing", "healed"]
        assert [one.id for one in (await planes[1].snapshot()).bookings] == ["1"]
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
        for plane in planes:
            await plane.close()


async def _beat(planes: list[NatsPlane]) -> None:
    for plane in planes:
        await plane.start({})
    while True:
        for plane in planes:
            await plane.beat({})
        await asyncio.sleep(0.4)
