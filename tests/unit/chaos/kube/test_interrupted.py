"""Whoever ends the command ends no healing: a Job that is deleted leaves the release as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from chaos.targets.kube.options import Options
from tests.unit.chaos.kube.cluster import Cluster

PATIENCE = 90.0


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
async def test_a_run_that_is_ended_from_outside_heals_first(
    cluster: Cluster, options: Options, tmp_path: Path, sent: signal.Signals
) -> None:
    report = tmp_path / "report"
    words = ["--suite", "release", "-k", "scaled_up_and_down", "--report", str(report), *options.words()]
    environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    command = [str(Path(sys.executable).with_name("picker")), "chaos", "run", *words]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    spec = cluster.deployments["llama-epp"]["spec"]
    try:
        async with asyncio.timeout(PATIENCE):
            while spec["replicas"] != 5 and process.returncode is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        assert process.returncode is None, (await process.communicate())[0].decode()
        process.send_signal(sent)
        async with asyncio.timeout(PATIENCE):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert spec["replicas"] == 3, said.decode()
    assert process.returncode != 0, "what was not played to its end has not passed"
    assert await cluster.whole("llama", 3)
