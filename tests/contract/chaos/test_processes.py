"""Processes really end, stand still and come back; nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from chaos.injectors import Injection, InjectionError
from chaos.injectors.process import freeze, kill, restart, states, terminate
from chaos.injectors.servers import valkey_says
from picker.sim.processes import lives
from tests.contract.chaos.conftest import Stage


async def told(stage: Stage, command: str) -> str:
    return (await valkey_says(stage.servers.valkey, command))[0]


async def test_a_killed_server_is_gone_in_the_block_and_back_and_empty_after_it(stage: Stage) -> None:
    pid = (await stage.start_valkey()).pid
    await told(stage, "SET a 1")
    async with kill("plane").into(stage):
        assert not lives(pid)
        with pytest.raises(ConnectionRefusedError):
            await told(stage, "PING")
        await asyncio.sleep(0.5)
        assert not stage.servers.children["valkey"].alive
    assert await told(stage, "DBSIZE") == "0"
    assert stage.pid("plane") != pid
    assert stage.phases == ["begin", "seen", "healing", "healed"]


async def test_what_is_killed_for_good_stays_away(stage: Stage) -> None:
    await stage.start_valkey()
    async with kill("valkey", back=False).into(stage):
        pass
    await asyncio.sleep(0.5)
    assert not stage.servers.children["valkey"].alive
    assert stage.evidence("healed")["alive"] is False


async def test_a_frozen_server_says_nothing_and_goes_on_where_it_was(stage: Stage) -> None:
    pid = (await stage.start_valkey()).pid
    await told(stage, "SET a 1")
    async with freeze("plane").into(stage):
        assert set(states(pid)) == {"T"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await told(stage, "PING")
    assert "T" not in states(pid)
    assert await told(stage, "DBSIZE") == "1"
    assert stage.pid("plane") == pid


async def test_a_frozen_server_goes_on_when_the_block_is_cancelled(stage: Stage) -> None:
    pid = (await stage.start_valkey()).pid
    inside = asyncio.Event()

    async def scenario() -> None:
        async with freeze("plane").into(stage):
            inside.set()
            await asyncio.sleep(60)

    playing = asyncio.create_task(scenario())
    await inside.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert "T" not in states(pid)


async def test_a_frozen_server_that_is_killed_meanwhile_is_no_failure_of_the_heal(stage: Stage) -> None:
    pid = (await stage.start_valkey()).pid
    async with freeze("plane").into(stage):
        await stage.servers.kill("valkey")
        assert not lives(pid)
    assert stage.evidence("healed") == {"pid": pid, "gone": True}


async def test_a_terminated_server_ends_by_itself_and_comes_back(stage: Stage) -> None:
    await stage.start_nats()
    async with terminate("nats").into(stage):
        assert stage.evidence("seen")["exit_code"] in (0, 1, -signal.SIGTERM)
        assert not stage.servers.children["nats"].alive
    assert stage.servers.children["nats"].alive


@pytest.mark.parametrize("kept", [False, True])
async def test_a_restart_loses_what_was_held_unless_it_is_kept(stage: Stage, kept: bool) -> None:
    pid = (await stage.start_valkey()).pid
    await told(stage, "SET a 1")
    async with restart("plane", kept=kept).into(stage):
        assert await told(stage, "DBSIZE") == str(int(kept))
        assert stage.pid("plane") != pid
    assert not (Path(stage.folder) / "dump.rdb").exists()


@pytest.mark.parametrize("fault", [kill("nats"), freeze("nats"), terminate("nats"), restart("nats")])
async def test_what_does_not_run_cannot_be_hit_and_comes_back_with_the_heal(
    stage: Stage, fault: Injection
) -> None:
    await stage.start_nats()
    await stage.servers.kill("nats")
    with pytest.raises(InjectionError, match="nats does not run"):
        async with fault.into(stage):
            pytest.fail("entered")
    assert stage.phases == ["begin", "healing", "healed"]


async def test_a_target_that_nobody_knows_is_named_with_those_that_are(stage: Stage) -> None:
    await stage.start_valkey()
    with pytest.raises(InjectionError, match=r"no child named 'picker-9'; there are: valkey"):
        async with freeze("picker-9").into(stage):
            pytest.fail("entered")


async def test_a_process_that_is_not_the_clusters_is_never_signalled(stage: Stage) -> None:
    with pytest.raises(InjectionError):
        async with freeze(str(os.getpid())).into(stage):
            pytest.fail("entered")
    assert states(os.getpid())
