"""Ending the watches of a source, whatever happens meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from discovery.kubernetes.workers import stop


async def slow_to_end(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
        ended.append(name)


async def begun(*tasks: asyncio.Task[None]) -> None:
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in tasks)


async def test_all_tasks_have_ended_when_it_returns() -> None:
    ended: list[str] = []
    tasks = [asyncio.create_task(slow_to_end(ended, name)) for name in "ab"]
    await begun(*tasks)
    await stop(tasks)
    assert sorted(ended) == ["a", "b"]


async def test_a_cancellation_of_our_own_is_not_taken_for_theirs() -> None:
    went_on = False

    async def stopping(task: asyncio.Task[None]) -> None:
        nonlocal went_on
        await stop([task])
        went_on = True

    inner = asyncio.create_task(slow_to_end([], "a"))
    await begun(inner)
    outer = asyncio.create_task(stopping(inner))
    await asyncio.sleep(0.01)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert not went_on
    await asyncio.wait([inner])


async def test_one_that_failed_leaves_no_other_running() -> None:
    async def failing() -> None:
        raise ValueError("nonsense")

    ended: list[str] = []
    failed = asyncio.create_task(failing())
    other = asyncio.create_task(slow_to_end(ended, "other"))
    await asyncio.sleep(0.01)
    await stop([failed, other])
    assert ended == ["other"]
