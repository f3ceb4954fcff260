"""Several faults at once, and a replica of the next version: what they leave behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.injectors import InjectionError
from chaos.injectors.process import freeze, kill
from chaos.injectors.together import together
from chaos.injectors.upgrade import NEXT, VARIABLE, environment
from stateplane.booking import SCHEMA
from tests.contract.chaos.conftest import Stage


async def test_faults_that_are_brought_about_together_are_all_on_and_all_healed(stage: Stage) -> None:
    await asyncio.gather(stage.start_valkey(), stage.start_nats())
    async with together(kill("plane"), freeze("nats")).into(stage):
        on = {(each.kind, each.target) for each in stage.told if each.phase == "seen"}
        assert on == {("kill", "plane"), ("freeze", "nats")}
    healed = {(each.kind, each.target) for each in stage.told if each.phase == "healed"}
    assert healed == {("kill", "plane"), ("freeze", "nats")}
    assert stage.servers.children["valkey"].alive


async def test_one_that_cannot_be_brought_about_is_told_and_the_others_are_healed(stage: Stage) -> None:
    await stage.start_nats()
    with pytest.raises(InjectionError, match="picker-9"):
        async with together(freeze("nats"), kill("picker-9")).into(stage):
            pytest.fail("the block must not be entered")
    assert {each.target for each in stage.told if each.phase == "healed"} >= {"nats"}


async def test_a_cancelled_block_heals_all(stage: Stage) -> None:
    await asyncio.gather(stage.start_valkey(), stage.start_nats())

    async def scenario() -> None:
        async with together(freeze("nats"), freeze("plane")).into(stage):
            entered.set()
            await asyncio.sleep(60)

    entered = asyncio.Event()
    task = asyncio.create_task(scenario())
    await asyncio.wait_for(entered.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {each.target for each in stage.told if each.phase == "healed"} == {"nats", "plane"}


def test_a_process_of_the_next_version_reads_one_schema_more_and_nothing_else_changes(tmp_path: Path) -> None:
    said = "from stateplane.booking import SCHEMA; from stateplane.schema import oldest_of; print(SCHEMA, oldest_of())"
    for more, expected in (({}, SCHEMA), (environment(tmp_path), NEXT)):
        told = subprocess.run(
            [sys.executable, "-c", said],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.split() == [str(expected), str(max(1, expected - 1))]
    assert environment(tmp_path)[VARIABLE] == str(NEXT)
