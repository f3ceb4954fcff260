"""Faults of links prove themselves by the wire's counters, and heal whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.injectors import Injection, InjectionError, Running
from chaos.injectors import life as lives
from chaos.injectors.lane import Conditions
from chaos.injectors.links import bandwidth, half_open, latency, partition, refuse, reset, slow_close
from chaos.injectors.wire import TcpWire
from tests.unit.chaos.injectors.conftest import Echo, Stage

EVERY: list[Injection] = [
    latency("a>b", seconds=0.02, jitter=0.01),
    bandwidth("a>b", bytes_per_second=1000),
    partition("a>b"),
    partition("a>b", ways="there"),
    half_open("a>b"),
    half_open("*>b", ways="back"),
    refuse("a>b"),
    refuse("a>b", cut=False),
    reset("a>b"),
    reset("a>b", after=5.0),
]
IDS = [f"{each.kind}-{number}" for number, each in enumerate(EVERY)]


@pytest.fixture
async def talk(wire: TcpWire) -> AsyncIterator[None]:
    """Somebody who speaks over the wire all the time and dials again whenever that fails."""

    async def speak() -> None:
        host, _, port = wire.listen.rpartition(":")
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    while True:
                        writer.write(b"beat")
                        async with asyncio.timeout(0.2):
                            await reader.readexactly(4)
                        await asyncio.sleep(0.01)
                finally:
                    writer.transport.abort()
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.01)

    speaking = asyncio.create_task(speak())
    await asyncio.sleep(0.05)
    yield
    assert not speaking.done(), speaking
    speaking.cancel()
    await asyncio.gather(speaking, return_exceptions=True)


def plain(wire: TcpWire) -> bool:
    none = Conditions()
    return (
        (wire.there.conditions, wire.back.conditions) == (none, none)
        and not wire.refusing
        and wire.reset_after is None
    )


async def flows(echo: Echo) -> bool:
    had = len(echo.got)
    for _ in range(500):
        await asyncio.sleep(0.02)
        if len(echo.got) > had:
            return True
    return False


@pytest.mark.parametrize("fault", EVERY, ids=IDS)
@pytest.mark.usefixtures("talk")
async def test_a_fault_is_seen_before_the_block_and_healed_after_it(
    fault: Injection, wire: TcpWire, stage: Stage, echo: Echo
) -> None:
    async with fault.into(stage):
        assert stage.phases == ["begin", "seen"]
        assert stage.told[1].value
    assert stage.phases == ["begin", "seen", "healing", "healed"]
    assert {told.id for told in stage.told} == {f"{fault.kind} {fault.target} #1"}
    assert plain(wire)
    assert await flows(echo)


@pytest.mark.parametrize("fault", EVERY, ids=IDS)
@pytest.mark.usefixtures("talk")
async def test_a_fault_heals_when_the_block_is_cancelled(
    fault: Injection, wire: TcpWire, stage: Stage, echo: Echo
) -> None:
    inside = asyncio.Event()

    async def scenario() -> None:
        async with fault.into(stage):
            inside.set()
            await asyncio.sleep(60)

    playing = asyncio.create_task(scenario())
    await inside.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert stage.phases[-1] == "healed"
    assert plain(wire)
    assert await flows(echo)


async def test_a_fault_on_a_link_without_traffic_is_not_believed_and_undone(
    wire: TcpWire, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives.seen, "__kwdefaults__", {"within": 0.1})
    with pytest.raises(InjectionError, match="delayed bytes on a>b: not within"):
        async with latency("a>b", seconds=1.0).into(stage):
            pytest.fail("entered without proof")
    assert stage.phases == ["begin", "healing", "healed"]
    assert plain(wire)


async def test_a_link_without_a_wire_is_named_with_those_that_have_one(wire: TcpWire, stage: Stage) -> None:
    del wire
    with pytest.raises(InjectionError, match=r"'b>a'.*its links are: a>b"):
        async with half_open("b>a").into(stage):
            pytest.fail("entered")
    assert stage.phases == ["begin", "healing", "healed"]


@pytest.mark.usefixtures("talk")
async def test_a_slow_close_is_proven_by_the_first_end(wire: TcpWire, stage: Stage) -> None:
    async def leave() -> None:
        host, _, port = wire.listen.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(0.05)
        writer.close()

    leaving = asyncio.create_task(leave())
    async with slow_close("a>b", seconds=0.2).into(stage):
        assert stage.phases == ["begin", "seen"]
    await leaving
    assert plain(wire)


@pytest.mark.usefixtures("talk")
async def test_two_faults_in_two_directions_heal_apart(wire: TcpWire, stage: Stage) -> None:
    async with latency("a>b", seconds=0.05).into(stage):
        async with half_open("a>b", ways="back").into(stage):
            assert wire.there.conditions == Conditions(latency=0.05)
            assert wire.back.conditions == Conditions(swallow=True)
        assert wire.there.conditions == Conditions(latency=0.05)
        assert wire.back.conditions == Conditions()
    assert plain(wire)


async def test_a_heal_is_carried_through_when_it_is_cancelled_itself(stage: Stage) -> None:
    healing, healed = asyncio.Event(), asyncio.Event()

    async def act() -> dict[str, bool]:
        return {"done": True}

    async def heal() -> dict[str, bool]:
        healing.set()
        await asyncio.sleep(0.05)
        healed.set()
        return {}

    async def scenario() -> None:
        async with lives.life(stage, kind="x", target="y", value={}, act=act, heal=heal):
            pass

    playing = asyncio.create_task(scenario())
    await healing.wait()
    for _ in range(3):
        playing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert healed.is_set()


@pytest.mark.parametrize("fault", EVERY, ids=IDS)
def test_a_fault_says_what_it_would_do(fault: Injection) -> None:
    assert isinstance(fault, Injection)
    assert fault.target in fault.describe()
    assert hash(fault) == hash(fault)


def test_the_stage_of_these_tests_is_what_injectors_ask_for(stage: Stage) -> None:
    assert isinstance(stage, Running)
