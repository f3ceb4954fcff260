"""The file of model rewrites, watched: what is broken or gone changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from picker.requests.rewritefile import WatchedRules

TEXT = """
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModelRewrite
metadata: {{name: rollout}}
spec:
  poolRef: {{name: p}}
  rules:
  - matches: [{{model: {{value: chat}}}}]
    targets: [{{modelRewrite: {model}}}]
"""


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Path, WatchedRules]]:
    file = tmp_path / "rewrites.yaml"
    watching = WatchedRules(file, pool="p", namespace="default", poll_seconds=0.01)
    task = asyncio.create_task(watching.run())
    yield file, watching
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the file tells nobody
            await asyncio.sleep(0.005)


def model(watching: WatchedRules) -> str | None:
    rule = watching.rules.find("chat")
    return None if rule is None else rule.target(0.0)


async def test_rules_follow_the_file_and_outlive_a_broken_one(watched: tuple[Path, WatchedRules]) -> None:
    file, watching = watched
    await until(lambda: watching.counts.failures)
    assert not watching.known
    assert watching.status()["fault"]
    file.write_text(TEXT.format(model="v1"))
    await until(lambda: model(watching) == "v1")
    assert watching.known
    assert watching.status() == {"file": str(file), "rules": 1, "fault": None}
    failures = watching.counts.failures
    with capture_logs() as said:
        file.write_text("kind: Pod")
        await until(lambda: watching.fault)
        looks = watching.counts.looks
        await until(lambda: watching.counts.looks > looks + 5)
    assert model(watching) == "v1"
    assert watching.counts.failures == failures + 1
    assert [entry["event"] for entry in said] == ["model rewrites unusable, the last known rules stay"]
    file.unlink()
    await until(lambda: "FileNotFoundError" in watching.fault)
    assert model(watching) == "v1"
    file.write_text(TEXT.format(model="v2"))
    await until(lambda: model(watching) == "v2")
    assert not watching.fault
    file.write_text("[]")
    await until(lambda: model(watching) is None)


async def test_a_file_that_comes_back_as_it_was_clears_the_fault(watched: tuple[Path, WatchedRules]) -> None:
    file, watching = watched
    file.write_text(TEXT.format(model="v1"))
    await until(lambda: model(watching) == "v1")
    away = file.rename(file.with_suffix(".away"))
    await until(lambda: watching.fault)
    away.rename(file)
    await until(lambda: not watching.fault)
    assert (model(watching), watching.counts.changes) == ("v1", 1)


async def test_without_a_file_there_are_no_rules_and_nothing_is_wrong() -> None:
    watching = WatchedRules(None, pool="p", namespace="default")
    assert watching.known
    assert watching.status() == {"file": None, "rules": 0, "fault": None}
