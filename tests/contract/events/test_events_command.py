"""`picker bridge` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import aiohttp


async def start(*flags: str, **environment: str) -> asyncio.subprocess.Process:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PICKER_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "picker", "bridge", *flags,
        env=clean | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ready(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    while True:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line, "the bridge ended before it was ready"
        if b'"ready"' in line:
            facts: dict[str, Any] = json.loads(line)
            return facts


async def test_the_command_bridges_shows_itself_and_ends_cleanly(
    path: Any, until: Any, prompts: Any, free: Any
) -> None:
    engine, port = path.engine(), free()
    replica = path.replica()
    process = await start(
        "--worker", replica.worker, "--events", engine.events, "--replay", engine.replay, "--block-size", "4",
        "--nats-url", path.nats.url, "--admin-port", str(port),
        PICKER_POOL_NAMESPACE="team.a", PICKER_POOL_NAME="llama 3", PICKER_ADMIN_HOST="127.0.0.1",
    )  # fmt: skip
    try:
        facts = await ready(process)
        assert facts["state"]["engine"] == facts["state"]["nats"] == "connected"
        await engine.store(prompts(0))
        await until(lambda: replica.held == engine.truth())
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as page:
                assert (await page.json())["ranks"]["0"]["blocks"] == 6
            async with session.get(f"http://127.0.0.1:{port}/metrics") as page:
                text = await page.text()
        assert 'picker_bridge_announced_blocks{rank="0"} 6' in text
        assert "picker_bridge_batch_bad_batches_total 0" in text
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors


async def test_with_engine_and_nats_away_it_is_ready_all_the_same_and_says_so(free: Any) -> None:
    process = await start(
        PICKER_BRIDGE_WORKER="127.0.0.1:8000", PICKER_BRIDGE_EVENTS=f"tcp://127.0.0.1:{free()}",
        PICKER_NATS_URL=f"nats://127.0.0.1:{free()}",
    )  # fmt: skip
    try:
        facts = await ready(process)
        assert facts["state"]["engine"] == "away"
        assert facts["state"]["nats"].startswith("away")
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0


async def test_a_missing_or_bad_setting_stops_the_start_with_its_name() -> None:
    for environment, named in (
        ({}, b"PICKER_BRIDGE_WORKER"),
        ({"PICKER_BRIDGE_WORKER": "a:1"}, b"PICKER_NATS_URL"),
        ({"PICKER_BRIDGE_WORKER": "a:1", "PICKER_NATS_URL": "nats://u:s3cret@host:port"}, b"PICKER_NATS_URL: host or"),
        ({"PICKER_BRIGDE_WORKER": "a:1"}, b"did you mean PICKER_BRIDGE_WORKER"),
        ({"PICKER_BRIDGE_WORKER": "a:1", "PICKER_NATS_URL": "nats://127.0.0.1:1",
          "PICKER_BRIDGE_EVENTS": "nonsense"}, b"PICKER_BRIDGE_EVENTS"),
    ):  # fmt: skip
        process = await start(**environment)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode not in (0, None)
        assert named in errors
        assert b"s3cret" not in errors
        assert b"Traceback" not in errors
