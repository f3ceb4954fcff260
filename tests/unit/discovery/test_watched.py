"""A watched file: rewritten, half written, broken, gone."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from discovery import Endpoint, open_workers
from discovery.watched import WatchedWorkers
from tests.unit.discovery.conftest import Taken

Until = Callable[[Callable[[], bool]], Awaitable[None]]
A, B = Endpoint("a:1"), Endpoint("b:1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "workers"


@pytest.fixture
def watched(file: Path) -> WatchedWorkers:
    return WatchedWorkers(file, poll_seconds=0.01)


@pytest.fixture
async def taken(watched: WatchedWorkers, file: Path) -> AsyncIterator[Taken[Endpoint]]:
    """Taking has begun, on a file that names one worker."""
    write(file, "a:1\n")
    mine = Taken[Endpoint](watched)
    yield mine
    await mine.stop()


def write(file: Path, text: str) -> None:
    """Write over what stands there, in the same file."""
    file.write_text(text, errors="surrogateescape")


def replace(file: Path, text: str) -> None:
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


async def test_each_rewriting_yields_the_whole_new_set(
    taken: Taken[Endpoint], file: Path, until: Until
) -> None:
    await until(lambda: taken.sets == [{A}])
    write(file, "a:1\nb:1\n")
    await until(lambda: len(taken.sets) == 2)
    replace(file, '{"workers": []}')
    await until(lambda: len(taken.sets) == 3)
    assert taken.sets == [{A}, {A, B}, set()]


async def test_a_rewriting_that_changes_nothing_yields_nothing(
    taken: Taken[Endpoint], watched: WatchedWorkers, file: Path, until: Until
) -> None:
    await until(lambda: taken.sets == [{A}])
    replace(file, "# again\na:1\n")
    looks = watched.counts.looks
    await until(lambda: watched.counts.looks > looks + 4)
    assert taken.sets == [{A}]
    assert watched.counts.changes == 1


async def test_a_file_being_written_is_not_read_before_it_rests(watched: WatchedWorkers, file: Path) -> None:
    write(file, "a:1\n")
    assert await watched._look() == frozenset({A})
    written = ""
    for piece in ("b:1", "00\nlong-na", "me:1", "0\n"):  # what stands in between may be in order
        written += piece
        write(file, written)
        assert await watched._look() is None
    assert await watched._look() == frozenset({Endpoint("b:100"), Endpoint("long-name:10")})
    assert await watched._look() is None
    assert watched.counts.failures == 0


async def test_a_broken_file_keeps_the_last_set_and_is_said_once(
    taken: Taken[Endpoint], watched: WatchedWorkers, file: Path, until: Until
) -> None:
    await until(lambda: taken.sets == [{A}])
    with capture_logs() as logs:
        replace(file, '{"workers": [{"address": ')
        await until(lambda: watched.counts.failures > 0)
        looks = watched.counts.looks
        await until(lambda: watched.counts.looks > looks + 4)
        assert taken.sets == [{A}]
        replace(file, "b:1\n")
        await until(lambda: taken.sets == [{A}, {B}])
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert "JSON" in logs[0]["reason"]


async def test_a_file_that_is_gone_keeps_the_last_set_and_ages(
    taken: Taken[Endpoint], watched: WatchedWorkers, file: Path, until: Until
) -> None:
    await until(lambda: taken.sets == [{A}])
    await until(lambda: watched.age(time.monotonic()) < 1)
    with capture_logs() as logs:
        os.unlink(file)  # noqa: PTH108 - a test may block
        await until(lambda: watched.counts.failures > 3)
        age = watched.age(time.monotonic())
        await until(lambda: watched.age(time.monotonic()) > age)
        assert taken.sets == [{A}]
        write(file, "a:1\n")
        await until(lambda: watched.age(time.monotonic()) < age)
    assert taken.sets == [{A}]
    assert len(logs) == 2


async def test_before_the_file_was_in_order_nothing_is_known(
    watched: WatchedWorkers, file: Path, until: Until
) -> None:
    taken = Taken[Endpoint](watched)
    await until(lambda: watched.counts.failures > 1)
    assert taken.sets == []
    assert watched.age(time.monotonic()) == math.inf
    write(file, "\udcff\udcfe\n")
    await until(lambda: "Unicode" in watched.fault)
    write(file, "a:1\n")
    await until(lambda: taken.sets == [{A}])
    await taken.stop()


async def test_a_change_of_the_same_size_in_the_same_file_is_seen(
    taken: Taken[Endpoint], file: Path, until: Until
) -> None:
    await until(lambda: taken.sets == [{A}])
    write(file, "b:1\n")
    os.utime(file, ns=(1, 1))
    await until(lambda: taken.sets == [{A}, {B}])


async def test_a_file_too_large_is_refused(
    taken: Taken[Endpoint], watched: WatchedWorkers, file: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: taken.sets == [{A}])
    monkeypatch.setattr(watched._file, "_most", 10)
    write(file, "b:1\n" * 100)
    await until(lambda: "at most 10" in watched.fault)
    assert taken.sets == [{A}]


async def test_without_a_file_there_are_no_workers() -> None:
    async for workers in open_workers().sets():
        assert workers == frozenset()
        break
